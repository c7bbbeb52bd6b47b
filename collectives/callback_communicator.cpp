#include "collectives/callback_communicator.hpp"

#include <cstring>
#include <numeric>
#include <utility>

#include "core/error.hpp"

namespace amaxscope {

namespace {

class CompletedCollective final : public PendingCollective {
 public:
  bool test() override { return true; }
};

class CallbackCommunicator final : public Communicator {
 public:
  CallbackCommunicator(CollectiveCallbacks callbacks, std::vector<int> world_ranks)
      : Communicator(std::move(world_ranks), std::make_shared<TrafficCounters>()), callbacks_(std::move(callbacks)) {}

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
  std::unique_ptr<Communicator> do_split(int color, int key) override {
    AMAXSCOPE_CHECK(callbacks_.split != nullptr, ErrorCode::kUsage,
                    "these collectives cannot be split; hand in a group of its own instead");
    return callbacks_.split(color, key);
  }

 private:
  CollectiveCallbacks callbacks_;
};

}  // namespace

std::unique_ptr<Communicator> make_callback_communicator(CollectiveCallbacks callbacks) {
  const auto require = [](bool given, std::string_view name) {
    AMAXSCOPE_CHECK(given, ErrorCode::kUsage, "the {} callback is missing", name);
  };
  require(callbacks.all_reduce != nullptr, "all_reduce");
  require(callbacks.all_gather != nullptr, "all_gather");
  require(callbacks.broadcast != nullptr, "broadcast");
  require(callbacks.barrier != nullptr, "barrier");
  require(callbacks.abort != nullptr, "abort");
  AMAXSCOPE_CHECK(callbacks.size >= 1 && callbacks.rank >= 0 && callbacks.rank < callbacks.size, ErrorCode::kUsage,
                  "rank {} of {} ranks", callbacks.rank, callbacks.size);
  std::vector<int> world_ranks = callbacks.world_ranks;
  if (world_ranks.empty()) {
    world_ranks.resize(static_cast<std::size_t>(callbacks.size));
    std::iota(world_ranks.begin(), world_ranks.end(), 0);
  }
  AMAXSCOPE_CHECK(world_ranks.size() == static_cast<std::size_t>(callbacks.size), ErrorCode::kUsage,
                  "{} world ranks given for {} ranks", world_ranks.size(), callbacks.size);
  return std::make_unique<CallbackCommunicator>(std::move(callbacks), std::move(world_ranks));
}

}  // namespace amaxscope
