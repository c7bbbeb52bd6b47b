// A communicator of the imitated NCCL. Internal to tests/fake.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/fake/fake_gpu.hpp"
#include "tests/fake/shared_segment.hpp"

namespace amaxscope::fake {

enum class CallKind : std::uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kSend, kReceive };

/// One NCCL call. `bytes` is what this rank hands in (of a receive: what it wants).
struct NcclCall {
  CallKind kind = CallKind::kAllReduce;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  int peer = -1;  ///< or root
};

std::size_t size_of(ncclDataType_t type);
/// a = op(a, b) for bytes / size_of(type) elements, rounded each time.
void combine(std::byte* a, const std::byte* b, std::size_t bytes, ncclDataType_t type, ncclRedOp_t op);

/// Shared by the handle and by what is on streams.
class FakeComm : public std::enable_shared_from_this<FakeComm> {
 public:
  FakeComm(std::string name, int ranks, int rank, bool blocking)
      : name_(std::move(name)), ranks_(ranks), rank_(rank), blocking_(blocking) {}
  ~FakeComm();

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] bool blocking() const noexcept { return blocking_; }
  [[nodiscard]] bool aborted() const noexcept { return aborted_; }
  [[nodiscard]] bool finalized() const noexcept { return finalized_; }
  [[nodiscard]] int calls() const noexcept { return calls_; }
  /// Calls on streams that have not ended.
  [[nodiscard]] int pending() const noexcept { return pending_; }
  [[nodiscard]] ncclResult_t state() const noexcept { return static_cast<ncclResult_t>(state_.load()); }
  void set_state(ncclResult_t state) noexcept { state_ = state; }

  /// Runs the job here when the communicator blocks, and on a thread, in progress, when not. The job returns
  /// the communicator's state.
  ncclResult_t run(std::function<ncclResult_t()> job);
  /// Jobs of run().
  ncclResult_t attach();
  ncclResult_t finalize();
  struct Choice {
    int color;
    int key;
  };
  /// What everybody chose in a split, by rank.
  ncclResult_t gather_choices(const Choice& own, std::vector<Choice>& choices);
  [[nodiscard]] std::string child_name(int color);

  /// The calls, one after the other, on a stream; sends and receives among them side by side.
  ncclResult_t launch(const std::vector<NcclCall>& calls, cudaStream_t stream);
  /// Ends what runs and what waits.
  void abort();
  /// Jobs have ended.
  void join();

 private:
  void execute(const std::vector<NcclCall>& calls);
  bool collective(const NcclCall& call);
  bool messages(const std::vector<NcclCall>& calls);
  [[nodiscard]] GivenUp given_up() const;
  /// Whom the calls make this rank talk to for the first time: everybody (-1), or single ranks.
  std::set<int> new_contacts(const std::vector<NcclCall>& calls);

  std::string name_;
  int ranks_;
  int rank_;
  bool blocking_;
  std::shared_ptr<SharedSegment> segment_;
  std::thread job_;
  std::atomic<int> state_{ncclSuccess};
  std::atomic<bool> aborted_{false};
  std::atomic<bool> finalized_{false};
  std::atomic<int> calls_{0};
  std::atomic<int> pending_{0};
  std::set<int> contacts_;
  std::uint64_t stream_round_ = 0;
  std::uint64_t host_round_ = 0;
  int splits_ = 0;
};

}  // namespace amaxscope::fake
