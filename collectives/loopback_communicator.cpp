#include "collectives/loopback_communicator.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "collectives/last_line.hpp"
#include "collectives/rendezvous.hpp"
#include "collectives/split_members.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {

using Bytes = Rendezvous::Bytes;
using Kind = Rendezvous::Kind;

Bytes bytes_of(const TensorView& view) {
  const auto* data = static_cast<const std::byte*>(view.data());
  return view.bytes() == 0 ? Bytes() : Bytes(data, data + view.bytes());
}

/// view = its part of the bytes.
void copy_to(const MutableTensorView& view, const Bytes& from, std::size_t offset = 0) {
  if (view.bytes() != 0) std::memcpy(view.data(), from.data() + offset, view.bytes());
}

class LoopbackPending final : public PendingCollective {
 public:
  LoopbackPending(std::shared_ptr<Rendezvous> group, std::shared_ptr<Tensor> io, std::uint64_t number)
      : group_(std::move(group)), io_(std::move(io)), number_(number) {}
  ~LoopbackPending() override {
    if (!done_) group_->leave(number_);  // the deposited part is a copy: the others can still complete
  }
  bool test() override {
    if (done_) return true;
    const std::shared_ptr<const Rendezvous::Outcome> outcome = group_->poll(number_);
    if (outcome == nullptr) return false;
    copy_to(*io_, outcome->reduced);
    group_->leave(number_);
    done_ = true;
    return true;
  }

 private:
  std::shared_ptr<Rendezvous> group_;
  std::shared_ptr<Tensor> io_;
  std::uint64_t number_;
  bool done_ = false;
};

class LoopbackSideChannel final : public SideChannel {
 public:
  LoopbackSideChannel(std::shared_ptr<Rendezvous> group, int rank) : group_(std::move(group)), rank_(rank) {}
  void send(int to, std::string_view text) noexcept override {
    group_->post(rank_, to, std::string(text.substr(0, kLongest)));
  }
  std::optional<SideMessage> receive() noexcept override { return group_->take(rank_); }

 private:
  std::shared_ptr<Rendezvous> group_;
  int rank_;
};

class LoopbackCommunicator : public Communicator {
 public:
  LoopbackCommunicator(std::shared_ptr<Rendezvous> group, int rank, std::shared_ptr<TrafficCounters> counters)
      : Communicator(group->world_ranks(), std::move(counters)), group_(std::move(group)), rank_(rank) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(world_ranks().size()); }

  [[nodiscard]] std::unique_ptr<SideChannel> side_channel() override {
    return std::make_unique<LoopbackSideChannel>(group_, rank_);
  }

  [[noreturn]] void abort(int status, std::string_view reason) override {
    const Error error(ErrorCode::kInternal,
                      fmt::format("rank {} aborted with status {}: {}",
                                  world_ranks()[static_cast<std::size_t>(rank_)], status, reason));
    group_->job()->fail(std::make_exception_ptr(error));
    throw error;
  }

 protected:
  void do_all_reduce(const MutableTensorView& io, ReduceOp op) override {
    const auto outcome = meet({Kind::kAllReduce, io.bytes(), std::pair(io.dtype(), op)}, bytes_of(io));
    copy_to(io, outcome->reduced);
  }

  std::unique_ptr<PendingCollective> do_start_all_reduce(std::shared_ptr<Tensor> io, ReduceOp op) override {
    const std::uint64_t number = group_->arrive(
        rank_, {Kind::kAllReduce, io->bytes(), std::pair(io->dtype(), op)}, bytes_of(io->view()));
    return std::make_unique<LoopbackPending>(group_, std::move(io), number);
  }

  void do_all_gather(const TensorView& in, const MutableTensorView& out) override {
    const auto outcome = meet({Kind::kAllGather, in.bytes()}, bytes_of(in));
    auto* target = static_cast<std::byte*>(out.data());
    for (const Bytes& part : outcome->parts) target = std::ranges::copy(part, target).out;
  }

  void do_reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op) override {
    const auto outcome = meet({Kind::kReduceScatter, in.bytes(), std::pair(in.dtype(), op)}, bytes_of(in));
    copy_to(out, outcome->reduced, static_cast<std::size_t>(rank_) * out.bytes());
  }

  void do_broadcast(const MutableTensorView& io, int root) override {
    const auto outcome = meet({.kind = Kind::kBroadcast, .bytes = io.bytes(), .root = root},
                              rank_ == root ? bytes_of(io) : Bytes());
    if (rank_ != root) copy_to(io, outcome->parts[static_cast<std::size_t>(root)]);
  }

  void do_barrier() override { meet({Kind::kBarrier}, {}); }

  void do_send(const TensorView& in, int to) override { group_->send(rank_, to, bytes_of(in)); }

  void do_receive(const MutableTensorView& out, int from) override {
    copy_to(out, group_->receive(rank_, from, out.bytes()));
  }

  std::unique_ptr<Communicator> do_split(int color, int key) override {
    const SplitChoice own{color, key};
    Bytes sent(sizeof own);
    std::memcpy(sent.data(), &own, sizeof own);
    const std::uint64_t number = group_->arrive(rank_, {Kind::kSplit}, std::move(sent));
    const auto outcome = group_->wait(number);
    group_->leave(number);
    if (color < 0) return nullptr;

    std::vector<SplitChoice> choices(outcome->parts.size());
    for (std::size_t rank = 0; rank < choices.size(); ++rank) {
      std::memcpy(&choices[rank], outcome->parts[rank].data(), sizeof choices[rank]);
    }
    const std::vector<int> members = split_members(choices, color);
    const auto child_rank = std::ranges::find(members, rank_) - members.begin();
    return make_child(group_->child(number, color, of_members(world_ranks(), members)),
                      static_cast<int>(child_rank));
  }

  virtual std::unique_ptr<Communicator> make_child(std::shared_ptr<Rendezvous> group, int rank) const {
    return std::make_unique<LoopbackCommunicator>(std::move(group), rank, shared_counters());
  }

 private:
  std::shared_ptr<const Rendezvous::Outcome> meet(const Rendezvous::Call& call, Bytes part) {
    const std::uint64_t number = group_->arrive(rank_, call, std::move(part));
    std::shared_ptr<const Rendezvous::Outcome> outcome = group_->wait(number);
    group_->leave(number);
    return outcome;
  }

  std::shared_ptr<Rendezvous> group_;
  int rank_;
};

/// The rank of a program that is alone: there is a job to end, and nobody to tell.
class SingleRankCommunicator final : public LoopbackCommunicator {
 public:
  using LoopbackCommunicator::LoopbackCommunicator;

  [[noreturn]] void abort(int status, std::string_view reason) override {
    write_last_line(reason);
    std::_Exit(status);  // not exit(): destructors of a program in an unknown state do not run
  }

 protected:
  std::unique_ptr<Communicator> make_child(std::shared_ptr<Rendezvous> group, int rank) const override {
    return std::make_unique<SingleRankCommunicator>(std::move(group), rank, shared_counters());
  }
};

}  // namespace

std::unique_ptr<Communicator> make_single_rank_communicator() {
  auto group = std::make_shared<Rendezvous>(std::make_shared<LoopbackJob>(1), std::vector<int>{0});
  return std::make_unique<SingleRankCommunicator>(std::move(group), 0, std::make_shared<TrafficCounters>());
}

void run_loopback_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  AMAXSCOPE_CHECK(ranks >= 1, ErrorCode::kUsage, "{} ranks; at least 1 is needed", ranks);
  const auto job = std::make_shared<LoopbackJob>(ranks);
  std::vector<int> world_ranks(static_cast<std::size_t>(ranks));
  std::iota(world_ranks.begin(), world_ranks.end(), 0);
  const auto group = std::make_shared<Rendezvous>(job, world_ranks);
  const auto run = [&](int rank) {
    try {
      LoopbackCommunicator world(group, rank, std::make_shared<TrafficCounters>());
      body(world);
    } catch (...) {
      job->fail(std::current_exception());
    }
    job->end(rank);
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  }
  if (const std::exception_ptr failure = job->first_failure()) std::rethrow_exception(failure);
}

}  // namespace amaxscope
