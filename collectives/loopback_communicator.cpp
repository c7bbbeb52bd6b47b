#include "collectives/loopback_communicator.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "collectives/rank_order_reduction.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const TensorView& view) {
  const auto* data = static_cast<const std::byte*>(view.data());
  return data == nullptr ? Bytes() : Bytes(data, data + view.bytes());
}

/// What is common to all ranks of a job: a failure of one releases the others.
struct Job {
  std::mutex mutex;
  std::condition_variable changed;
  bool failed = false;
};

/// A rendezvous of one group: the n-th call of every rank is one operation.
struct Meeting {
  struct Operation {
    std::vector<Bytes> contributions;
    int arrived = 0;
    int left = 0;
    bool done = false;
    Bytes result;  ///< of a reduction
  };
  int ranks;
  std::map<std::uint64_t, Operation> operations;
  std::map<std::uint64_t, std::shared_ptr<Meeting>> children;  ///< by sequence of the split and color
};

class LoopbackCommunicator final : public Communicator {
 public:
  LoopbackCommunicator(std::shared_ptr<Job> job, std::shared_ptr<Meeting> meeting, int rank,
                       std::vector<int> world_ranks, std::shared_ptr<TrafficCounters> counters)
      : Communicator(std::move(world_ranks), std::move(counters)),
        job_(std::move(job)),
        meeting_(std::move(meeting)),
        rank_(rank) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return meeting_->ranks; }

  [[noreturn]] void abort(int status, std::string_view reason) override {
    {
      const std::scoped_lock lock(job_->mutex);
      job_->failed = true;
    }
    job_->changed.notify_all();
    throw Error(ErrorCode::kInternal, fmt::format("rank {} aborted with status {}: {}",
                                                  world_ranks()[static_cast<std::size_t>(rank_)], status, reason));
  }

 protected:
  void do_all_reduce(const MutableTensorView& io, ReduceOp op) override {
    const std::uint64_t sequence = arrive(bytes_of(io), io.dtype(), op);
    std::unique_lock lock(job_->mutex);
    const Meeting::Operation& operation = wait(lock, sequence);
    copy(operation.result, io);
    leave(sequence);
  }

  std::unique_ptr<PendingCollective> do_start_all_reduce(std::shared_ptr<Tensor> io, ReduceOp op) override {
    const std::uint64_t sequence = arrive(bytes_of(io->view()), io->dtype(), op);
    return std::make_unique<Pending>(*this, std::move(io), sequence);
  }

  void do_all_gather(const TensorView& in, const MutableTensorView& out) override {
    const std::uint64_t sequence = arrive(bytes_of(in));
    std::unique_lock lock(job_->mutex);
    const Meeting::Operation& operation = wait(lock, sequence);
    auto* target = static_cast<std::byte*>(out.data());
    for (const Bytes& part : operation.contributions) {
      require_same_size(part.size(), in.bytes());
      target = std::ranges::copy(part, target).out;
    }
    leave(sequence);
  }

  void do_reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op) override {
    const std::uint64_t sequence = arrive(bytes_of(in), in.dtype(), op);
    std::unique_lock lock(job_->mutex);
    const Meeting::Operation& operation = wait(lock, sequence);
    require_same_size(operation.result.size(), in.bytes());
    if (out.bytes() != 0) {
      std::memcpy(out.data(), operation.result.data() + static_cast<std::size_t>(rank_) * out.bytes(), out.bytes());
    }
    leave(sequence);
  }

  void do_broadcast(const MutableTensorView& io, int root) override {
    const std::uint64_t sequence = arrive(rank_ == root ? bytes_of(io) : Bytes());
    std::unique_lock lock(job_->mutex);
    copy(wait(lock, sequence).contributions[static_cast<std::size_t>(root)], io);
    leave(sequence);
  }

  void do_barrier() override {
    const std::uint64_t sequence = arrive({});
    std::unique_lock lock(job_->mutex);
    wait(lock, sequence);
    leave(sequence);
  }

  std::unique_ptr<Communicator> do_split(int color, int key) override {
    struct Choice {
      int color, key, world_rank;
    };
    const Choice own{color, key, world_ranks()[static_cast<std::size_t>(rank_)]};
    Bytes sent(sizeof own);
    std::memcpy(sent.data(), &own, sizeof own);
    const std::uint64_t sequence = arrive(std::move(sent));
    std::unique_lock lock(job_->mutex);
    std::vector<std::pair<int, Choice>> members;  // parent rank, choice
    const Meeting::Operation& operation = wait(lock, sequence);
    for (std::size_t rank = 0; rank < operation.contributions.size(); ++rank) {
      Choice choice{};
      std::memcpy(&choice, operation.contributions[rank].data(), sizeof choice);
      if (choice.color == color) members.emplace_back(static_cast<int>(rank), choice);
    }
    std::ranges::stable_sort(members, {}, [](const auto& member) { return member.second.key; });
    std::unique_ptr<Communicator> child;
    if (color >= 0) {
      constexpr std::uint64_t kColors = std::uint64_t{1} << 32U;
      std::shared_ptr<Meeting>& meeting = meeting_->children[sequence * kColors + static_cast<std::uint64_t>(color)];
      if (meeting == nullptr) {
        meeting = std::make_shared<Meeting>();
        meeting->ranks = static_cast<int>(members.size());
      }
      int child_rank = 0;
      std::vector<int> child_world_ranks;
      for (std::size_t i = 0; i < members.size(); ++i) {
        if (members[i].first == rank_) child_rank = static_cast<int>(i);
        child_world_ranks.push_back(members[i].second.world_rank);
      }
      child = std::make_unique<LoopbackCommunicator>(job_, meeting, child_rank, std::move(child_world_ranks),
                                                     shared_counters());
    }
    leave(sequence);
    return child;
  }

 private:
  class Pending final : public PendingCollective {
   public:
    Pending(LoopbackCommunicator& owner, std::shared_ptr<Tensor> io, std::uint64_t sequence)
        : owner_(owner), io_(std::move(io)), sequence_(sequence) {}
    bool test() override {
      if (done_) return true;
      const std::scoped_lock lock(owner_.job_->mutex);
      owner_.require_no_failure();
      const Meeting::Operation& operation = owner_.meeting_->operations.at(sequence_);
      if (!operation.done) return false;
      owner_.copy(operation.result, *io_);
      owner_.leave(sequence_);
      done_ = true;
      return true;
    }

   private:
    LoopbackCommunicator& owner_;
    std::shared_ptr<Tensor> io_;
    std::uint64_t sequence_;
    bool done_ = false;
  };

  static void require_same_size(std::size_t theirs, std::size_t own) {
    AMAXSCOPE_CHECK(theirs == own, ErrorCode::kInternal,
                    "ranks are in different collectives: another rank gave {} bytes, this one {}", theirs, own);
  }
  static void copy(const Bytes& from, const MutableTensorView& to) {
    require_same_size(from.size(), to.bytes());
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
  }

  void require_no_failure() const {
    AMAXSCOPE_CHECK(!job_->failed, ErrorCode::kInternal, "another rank of the job has failed");
  }

  /// Deposits this rank's part; the last to arrive reduces.
  std::uint64_t arrive(Bytes part, std::optional<DType> dtype = {}, ReduceOp op = ReduceOp::kSum) {
    const std::scoped_lock lock(job_->mutex);
    require_no_failure();
    const std::uint64_t sequence = next_sequence_++;
    Meeting::Operation& operation = meeting_->operations[sequence];
    operation.contributions.resize(static_cast<std::size_t>(meeting_->ranks));
    operation.contributions[static_cast<std::size_t>(rank_)] = std::move(part);
    if (++operation.arrived == meeting_->ranks) {
      if (dtype) reduce(operation, *dtype, op);
      operation.done = true;
      job_->changed.notify_all();
    }
    return sequence;
  }

  void reduce(Meeting::Operation& operation, DType dtype, ReduceOp op) const {
    const std::size_t bytes = operation.contributions[static_cast<std::size_t>(rank_)].size();
    std::vector<const void*> inputs;
    for (const Bytes& part : operation.contributions) {
      if (part.size() != bytes) job_->failed = true;
      inputs.push_back(part.data());
    }
    if (job_->failed) job_->changed.notify_all();
    require_no_failure();
    operation.result.resize(bytes);
    const auto count = static_cast<std::int64_t>(bytes * 8) / bits_per_element(dtype);
    reduce_in_order(inputs, operation.result.data(), count, dtype, op);
  }

  const Meeting::Operation& wait(std::unique_lock<std::mutex>& lock, std::uint64_t sequence) {
    const Meeting::Operation& operation = meeting_->operations.at(sequence);
    job_->changed.wait(lock, [&] { return operation.done || job_->failed; });
    if (!operation.done) require_no_failure();
    return operation;
  }

  /// The last to leave frees the operation. Needs the lock.
  void leave(std::uint64_t sequence) {
    if (++meeting_->operations.at(sequence).left == meeting_->ranks) meeting_->operations.erase(sequence);
  }

  std::shared_ptr<Job> job_;
  std::shared_ptr<Meeting> meeting_;
  int rank_;
  std::uint64_t next_sequence_ = 0;
};

std::unique_ptr<Communicator> make_rank(const std::shared_ptr<Job>& job, const std::shared_ptr<Meeting>& meeting,
                                        int rank, const std::shared_ptr<TrafficCounters>& counters) {
  std::vector<int> world_ranks(static_cast<std::size_t>(meeting->ranks));
  std::iota(world_ranks.begin(), world_ranks.end(), 0);
  return std::make_unique<LoopbackCommunicator>(job, meeting, rank, std::move(world_ranks), counters);
}

}  // namespace

std::unique_ptr<Communicator> make_single_rank_communicator() {
  auto meeting = std::make_shared<Meeting>();
  meeting->ranks = 1;
  return make_rank(std::make_shared<Job>(), meeting, 0, std::make_shared<TrafficCounters>());
}

void run_loopback_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  const auto job = std::make_shared<Job>();
  const auto meeting = std::make_shared<Meeting>();
  meeting->ranks = ranks;
  const auto counters = std::make_shared<TrafficCounters>();
  std::exception_ptr first;
  const auto run = [&](int rank) {
    try {
      const std::unique_ptr<Communicator> world = make_rank(job, meeting, rank, counters);
      body(*world);
    } catch (...) {
      const std::scoped_lock lock(job->mutex);
      if (first == nullptr) first = std::current_exception();
      job->failed = true;
      job->changed.notify_all();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace amaxscope
