// A backend that works on host memory, for tensors of a device as well: they are fetched, worked on and
// stored. The host waits for the view's stream before each operation, and the result is stored on that
// stream.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "collectives/communicator.hpp"
#include "core/host_staging.hpp"

namespace amaxscope {

/// Base: a Communicator with its do_ functions. Groups that are split from it are Base's business.
template <class Base>
class Staged final : public Base {
 public:
  template <class... Arguments>
  explicit Staged(std::shared_ptr<HostStaging> staging, Arguments&&... arguments)
      : Base(std::forward<Arguments>(arguments)...), staging_(std::move(staging)) {}

  [[nodiscard]] std::optional<Device> device() const noexcept override { return staging_->device(); }

 protected:
  void do_all_reduce(const MutableTensorView& io, ReduceOp op) override {
    if (on_host(io)) return Base::do_all_reduce(io, op);
    const auto copy = fetched(io);
    Base::do_all_reduce(copy->host(), op);
    copy->store(io);
  }
  void do_all_gather(const TensorView& in, const MutableTensorView& out) override {
    if (on_host(in)) return Base::do_all_gather(in, out);
    const auto copy = fetched(in);
    const auto result = staging_->room_for(out);
    Base::do_all_gather(copy->host(), result->host());
    result->store(out);
  }
  void do_reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op) override {
    if (on_host(in)) return Base::do_reduce_scatter(in, out, op);
    const auto copy = fetched(in);
    const auto result = staging_->room_for(out);
    Base::do_reduce_scatter(copy->host(), result->host(), op);
    result->store(out);
  }
  void do_broadcast(const MutableTensorView& io, int root) override {
    if (on_host(io)) return Base::do_broadcast(io, root);
    const auto copy = this->rank() == root ? fetched(io) : staging_->room_for(io);
    Base::do_broadcast(copy->host(), root);
    if (this->rank() != root) copy->store(io);
  }
  void do_send(const TensorView& in, int to) override {
    if (on_host(in)) return Base::do_send(in, to);
    Base::do_send(fetched(in)->host(), to);
  }
  void do_receive(const MutableTensorView& out, int from) override {
    if (on_host(out)) return Base::do_receive(out, from);
    const auto result = staging_->room_for(out);
    Base::do_receive(result->host(), from);
    result->store(out);
  }
  /// For groups that are split from this one.
  [[nodiscard]] std::shared_ptr<HostStaging> staging() const override { return staging_; }

 private:
  static bool on_host(const TensorView& view) { return view.device().kind == DeviceKind::kCpu; }
  [[nodiscard]] std::unique_ptr<HostCopy> fetched(const TensorView& tensor) const {
    auto copy = staging_->room_for(tensor);
    copy->fetch(tensor);
    return copy;
  }

  std::shared_ptr<HostStaging> staging_;
};

}  // namespace amaxscope
