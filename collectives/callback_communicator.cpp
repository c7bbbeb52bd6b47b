#include "collectives/callback_communicator.hpp"

#include <cstring>
#include <numeric>
#include <utility>

#include "core/error.hpp"

namespace amaxscope {

namespace {

/// With world_ranks filled in. Throws Error(kUsage) when something is missing or does not fit.
CollectiveCallbacks checked(CollectiveCallbacks callbacks) {
  const auto require = [](bool given, std::string_view name) {
    AMAXSCOPE_CHECK(given, ErrorCode::kUsage, "the {} callback is missing", name);
  };
  require(callbacks.all_reduce != nullptr, "all_reduce");
  require(callbacks.all_gather != nullptr, "all_gather");
  require(callbacks.broadcast != nullptr, "broadcast");
  require(callbacks.barrier != nullptr, "barrier");
  require(callbacks.abort != nullptr, "abort");
  AMAXSCOPE_CHECK(callbacks.size >= 1 && callbacks.rank >= 0 && callbacks.rank < callbacks.size,
                  ErrorCode::kUsage, "rank {} of {} ranks", callbacks.rank, callbacks.size);
  if (callbacks.world_ranks.empty()) {
    callbacks.world_ranks.resize(static_cast<std::size_t>(callbacks.size));
    std::iota(callbacks.world_ranks.begin(), callbacks.world_ranks.end(), 0);
  }
  AMAXSCOPE_CHECK(callbacks.world_ranks.size() == static_cast<std::size_t>(callbacks.size), ErrorCode::kUsage,
                  "{} world ranks given for {} ranks", callbacks.world_ranks.size(), callbacks.size);
  return callbacks;
}

class CompletedCollective final : public PendingCollective {
 public:
  bool test() override { return true; }
};

class CallbackCommunicator final : public Communicator {
 public:
  CallbackCommunicator(CollectiveCallbacks callbacks, std::shared_ptr<TrafficCounters> counters)
      : Communicator(callbacks.world_ranks, std::move(counters)), callbacks_(std::move(callbacks)) {}

  [[nodiscard]] int rank() const noexcept override { return callbacks_.rank; }
  [[nodiscard]] int size() const noexcept override { return callbacks_.size; }
  [[noreturn]] void abort(int status, std::string_view reason) override {
    callbacks_.abort(status, reason);
    throw Error(ErrorCode::kInternal, fmt::format("the abort callback returned; it was told: {}", reason));
  }

 protected:
  void do_all_reduce(const MutableTensorView& io, ReduceOp op) override {
    callbacks_.all_reduce(io.data(), io.numel(), io.dtype(), op);
  }
  std::unique_ptr<PendingCollective> do_start_all_reduce(std::shared_ptr<Tensor> io, ReduceOp op) override {
    if (callbacks_.start_all_reduce != nullptr) return callbacks_.start_all_reduce(std::move(io), op);
    do_all_reduce(*io, op);
    return std::make_unique<CompletedCollective>();
  }
  void do_all_gather(const TensorView& in, const MutableTensorView& out) override {
    callbacks_.all_gather(in.data(), out.data(), in.bytes());
  }
  void do_reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op) override {
    Tensor whole(in.dtype(), in.shape());
    if (in.bytes() != 0) std::memcpy(whole.mutable_view().data(), in.data(), in.bytes());
    do_all_reduce(whole, op);
    if (out.bytes() == 0) return;
    const auto* first = static_cast<const std::byte*>(whole.view().data());
    std::memcpy(out.data(), first + static_cast<std::size_t>(rank()) * out.bytes(), out.bytes());
  }
  void do_broadcast(const MutableTensorView& io, int root) override {
    callbacks_.broadcast(io.data(), io.bytes(), root);
  }
  void do_barrier() override { callbacks_.barrier(); }
  void do_send(const TensorView& in, int to) override {
    AMAXSCOPE_CHECK(callbacks_.send != nullptr, ErrorCode::kUsage,
                    "these collectives have no send callback, which pipeline stages need");
    callbacks_.send(in.data(), in.bytes(), to);
  }
  void do_receive(const MutableTensorView& out, int from) override {
    AMAXSCOPE_CHECK(callbacks_.receive != nullptr, ErrorCode::kUsage,
                    "these collectives have no receive callback, which pipeline stages need");
    callbacks_.receive(out.data(), out.bytes(), from);
  }
  std::unique_ptr<Communicator> do_split(int color, int key) override {
    AMAXSCOPE_CHECK(callbacks_.split != nullptr, ErrorCode::kUsage,
                    "these collectives cannot be split; hand in a group of its own instead");
    const std::unique_ptr<CollectiveCallbacks> child = callbacks_.split(color, key);
    AMAXSCOPE_CHECK((child != nullptr) == (color >= 0), ErrorCode::kInternal,
                    "the split callback gave {} group for color {}", child == nullptr ? "no" : "a", color);
    if (child == nullptr) return nullptr;
    return std::make_unique<CallbackCommunicator>(checked(std::move(*child)), shared_counters());
  }

 private:
  CollectiveCallbacks callbacks_;
};

}  // namespace

std::unique_ptr<Communicator> make_callback_communicator(CollectiveCallbacks callbacks) {
  return std::make_unique<CallbackCommunicator>(checked(std::move(callbacks)),
                                                std::make_shared<TrafficCounters>());
}

}  // namespace amaxscope
