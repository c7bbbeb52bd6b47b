// Memory that the processes of one imitated NCCL communicator share, and how bytes go through it: each rank
// has a box for what it says to all, and one for each rank that it says something to. Every function that
// waits takes a predicate that ends the waiting. Internal to tests/fake.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace amaxscope::fake {

using GivenUp = std::function<bool()>;

/// Written by one process at a time, read by `readers` processes before it is written again.
struct Box {
  static constexpr std::size_t kBytes = std::size_t{32} * 1024;
  std::atomic<std::uint64_t> written;
  std::atomic<std::uint64_t> read;  ///< over all readers
  std::uint64_t call;               ///< what the writer takes this to be a part of
  std::byte bytes[kBytes];
};

class SharedSegment {
 public:
  static constexpr int kMaxRanks = 16;
  /// What ranks count each other in.
  enum class Roll { kAttached, kConnected, kFinalized, kCount };
  /// Two lanes do not meet: one for work on streams, one for what the host does (splits).
  enum class Lane { kStreams, kHost, kCount };

  /// Of this name among the processes of this machine; made by whoever comes first. Null when the system
  /// refuses.
  static std::shared_ptr<SharedSegment> open(const std::string& name, int ranks, int rank);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  /// Counts this rank in, and waits for all. False when given up.
  bool call_roll(Roll roll, const GivenUp& given_up);

  /// Tells `peer` that this rank wants to talk with it, and waits until it wants to as well. False when given
  /// up.
  bool contact(int peer, const GivenUp& given_up);

  enum class Exchanged { kDone, kGivenUp, kDifferentCalls };
  /// One round of everybody saying `bytes` (up to Box::kBytes) bytes to all, itself included; `heard` gets
  /// each rank's. `call` must be the same on all. Rounds of a lane are numbered by the caller from 1.
  Exchanged exchange(Lane lane, std::uint64_t round, std::uint64_t call, const std::byte* said,
                     std::size_t bytes, const std::function<void(int rank, const std::byte*)>& heard,
                     const GivenUp& given_up);

  /// One step of a message, at most one box full. False: the other side has not come so far.
  bool try_send(int to, const std::byte* from, std::size_t bytes);
  bool try_receive(int from, std::byte* to, std::size_t bytes);

 private:
  struct Layout;
  SharedSegment(std::string name, void* memory, std::size_t size, int ranks, int rank);
  [[nodiscard]] Box& box(Lane lane, int rank) const;
  [[nodiscard]] Box& box_between(int from, int to) const;

  std::string name_;
  void* memory_;
  std::size_t size_;
  int ranks_;
  int rank_;
};

}  // namespace amaxscope::fake
