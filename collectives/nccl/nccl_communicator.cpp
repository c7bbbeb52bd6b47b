#include "collectives/nccl/nccl_communicator.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "collectives/last_line.hpp"
#include "collectives/nccl/nccl_api.hpp"
#include "collectives/nccl/nccl_backend.hpp"
#include "collectives/nccl/nccl_group.hpp"
#include "collectives/nccl/nccl_host_operation.hpp"
#include "collectives/rank_order_reduction.hpp"
#include "collectives/split_members.hpp"
#include "core/cuda/cuda_device.hpp"
#include "core/cuda/cuda_error.hpp"

namespace amaxscope {

namespace {

using Bytes = std::span<const std::byte>;

bool on_device(const TensorView& view) { return view.device().kind == DeviceKind::kCuda; }

/// NCCL adds these types with a rounding after each addition.
bool rounds_in_between(DType dtype, ReduceOp op) {
  return op == ReduceOp::kSum && (dtype == DType::kF16 || dtype == DType::kBF16);
}

void refuse_rounding(DType dtype, ReduceOp op) {
  AMAXSCOPE_CHECK(
      !rounds_in_between(dtype, op), ErrorCode::kTensor,
      "sum of {} tensors on the device: NCCL rounds after each addition; reduce in f32, or hand in a "
      "tensor on the host",
      to_string(dtype));
}

cudaStream_t stream_of(const TensorView& view) { return static_cast<cudaStream_t>(view.stream().handle); }

void copy_to(const MutableTensorView& view, Bytes bytes) {
  if (!bytes.empty()) std::memcpy(view.data(), bytes.data(), bytes.size());
}

void copy_from(const TensorView& view, std::span<std::byte> bytes) {
  if (!bytes.empty()) std::memcpy(bytes.data(), view.data(), bytes.size());
}

/// Between these the calls are one. They are ended whatever happens in between.
ncclResult_t grouped(const std::function<ncclResult_t()>& calls) {
  ncclResult_t result = ncclGroupStart();
  if (result != ncclSuccess) return result;
  result = calls();
  const ncclResult_t ended = ncclGroupEnd();
  return is_accepted(result) ? ended : result;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclGroup> group, std::vector<int> world_ranks, AbortJob abort_job,
                   std::shared_ptr<TrafficCounters> counters)
      : Communicator(std::move(world_ranks), std::move(counters)),
        group_(std::move(group)),
        abort_job_(std::move(abort_job)) {
    check_nccl(ncclCommUserRank(group_->comm(), &rank_), "ncclCommUserRank");
    check_nccl(ncclCommCount(group_->comm(), &size_), "ncclCommCount");
    AMAXSCOPE_CHECK(this->world_ranks().size() == static_cast<std::size_t>(size_), ErrorCode::kUsage,
                    "{} world ranks given for an NCCL communicator of {} ranks", this->world_ranks().size(),
                    size_);
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] std::optional<Device> device() const noexcept override {
    return Device{DeviceKind::kCuda, group_->device()};
  }

  [[noreturn]] void abort(int status, std::string_view reason) override {
    if (abort_job_) abort_job_(status, reason);
    write_last_line(fmt::format("[rank {}] {}", world_ranks()[static_cast<std::size_t>(rank_)], reason));
    std::_Exit(status);  // not exit(): destructors would wait for ranks and the device
  }

 protected:
  void do_all_reduce(const MutableTensorView& io, ReduceOp op) override {
    do_all_reduce_each(std::span(&io, 1), op);
  }

  void do_all_reduce_each(std::span<const MutableTensorView> ios, ReduceOp op) override {
    const DType dtype = ios.front().dtype();
    if (on_device(ios.front())) {
      refuse_rounding(dtype, op);
      enqueue_on(ios.front(), "ncclAllReduce", [&](ncclComm_t comm, cudaStream_t stream) {
        const auto each = [&] { return all_reduce_calls(ios, op, comm, stream); };
        return ios.size() == 1 ? each() : grouped(each);
      });
      return;
    }
    // One after the other in memory they are one reduction.
    std::int64_t count = 0;
    for (const MutableTensorView& io : ios) count += io.numel();
    if (count == 0) return;
    HostAllReduce reduction(*this, dtype, count, op);
    std::byte* in = reduction.operation().in().data();
    for (const MutableTensorView& io : ios) {
      copy_from(io, {in, io.bytes()});
      in += io.bytes();
    }
    reduction.start();
    reduction.operation().wait();
    Bytes out = reduction.result();
    for (const MutableTensorView& io : ios) {
      copy_to(io, out.first(io.bytes()));
      out = out.subspan(io.bytes());
    }
  }

  std::unique_ptr<PendingCollective> do_start_all_reduce(std::shared_ptr<Tensor> io, ReduceOp op) override {
    auto reduction = std::make_unique<HostAllReduce>(*this, io->dtype(), io->numel(), op);
    copy_from(io->view(), reduction->operation().in());
    if (io->numel() != 0) reduction->start();
    return std::make_unique<Pending>(std::move(io), std::move(reduction));
  }

  void do_all_gather(const TensorView& in, const MutableTensorView& out) override {
    const auto call = [bytes = in.bytes()](ncclComm_t comm, const void* from, void* to, cudaStream_t stream) {
      return ncclAllGather(from, to, bytes, ncclUint8, comm, stream);
    };
    if (in.bytes() == 0) return;
    if (on_device(in)) {
      return enqueue_on(in, "ncclAllGather", [&](ncclComm_t comm, cudaStream_t stream) {
        return call(comm, in.data(), out.data(), stream);
      });
    }
    NcclHostOperation operation(group_, "ncclAllGather", {.in = in.bytes(), .out = out.bytes()});
    copy_from(in, operation.in());
    operation.start(call);
    operation.wait();
    copy_to(out, operation.out());
  }

  void do_reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op) override {
    if (in.bytes() == 0) return;
    const auto call = [&](ncclComm_t comm, const void* from, void* to, cudaStream_t stream) {
      return ncclReduceScatter(from, to, static_cast<std::size_t>(out.numel()), nccl_type(out.dtype()),
                               nccl_op(op), comm, stream);
    };
    if (on_device(in)) {
      refuse_rounding(in.dtype(), op);
      return enqueue_on(in, "ncclReduceScatter", [&](ncclComm_t comm, cudaStream_t stream) {
        return call(comm, in.data(), out.data(), stream);
      });
    }
    if (rounds_in_between(in.dtype(), op)) return reduce_scatter_exchanged(in, out, op);
    NcclHostOperation operation(group_, "ncclReduceScatter", {.in = in.bytes(), .out = out.bytes()});
    copy_from(in, operation.in());
    operation.start(call);
    operation.wait();
    copy_to(out, operation.out());
  }

  void do_broadcast(const MutableTensorView& io, int root) override {
    if (io.bytes() == 0) return;
    const auto call = [&](ncclComm_t comm, const void* from, void* to, cudaStream_t stream) {
      return ncclBroadcast(from, to, io.bytes(), ncclUint8, root, comm, stream);
    };
    if (on_device(io)) {
      return enqueue_on(io, "ncclBroadcast", [&](ncclComm_t comm, cudaStream_t stream) {
        return call(comm, io.data(), io.data(), stream);
      });
    }
    const bool gives = rank_ == root;
    NcclHostOperation operation(
        group_, "ncclBroadcast",
        {.in = gives ? io.bytes() : 0, .out = gives ? 0 : io.bytes(), .in_place = true});
    if (gives) copy_from(io, operation.in());
    operation.start(call);
    operation.wait();
    if (!gives) copy_to(io, operation.out());
  }

  /// NCCL has none: a sum that nobody looks at.
  void do_barrier() override {
    constexpr std::size_t kWord = sizeof(std::uint32_t);
    NcclHostOperation operation(group_, "barrier by ncclAllReduce",
                                {.in = kWord, .out = kWord, .in_place = true});
    std::ranges::fill(operation.in(), std::byte{0});
    operation.start([](ncclComm_t comm, void* in, void* out, cudaStream_t stream) {
      return ncclAllReduce(in, out, 1, ncclUint32, ncclSum, comm, stream);
    });
    operation.wait();
  }

  void do_send(const TensorView& in, int to) override {
    if (in.bytes() == 0) return;
    const auto call = [&](ncclComm_t comm, const void* from, cudaStream_t stream) {
      return ncclSend(from, in.bytes(), ncclUint8, to, comm, stream);
    };
    if (on_device(in)) {
      return enqueue_on(in, "ncclSend",
                        [&](ncclComm_t comm, cudaStream_t stream) { return call(comm, in.data(), stream); });
    }
    NcclHostOperation operation(group_, "ncclSend", {.in = in.bytes()});
    copy_from(in, operation.in());
    operation.start([&](ncclComm_t comm, void* from, void* /*out*/, cudaStream_t stream) {
      return call(comm, from, stream);
    });
    operation.wait();
  }

  void do_receive(const MutableTensorView& out, int from) override {
    if (out.bytes() == 0) return;
    const auto call = [&](ncclComm_t comm, void* to, cudaStream_t stream) {
      return ncclRecv(to, out.bytes(), ncclUint8, from, comm, stream);
    };
    if (on_device(out)) {
      return enqueue_on(out, "ncclRecv",
                        [&](ncclComm_t comm, cudaStream_t stream) { return call(comm, out.data(), stream); });
    }
    NcclHostOperation operation(group_, "ncclRecv", {.out = out.bytes()});
    operation.start(
        [&](ncclComm_t comm, void* /*in*/, void* to, cudaStream_t stream) { return call(comm, to, stream); });
    operation.wait();
    copy_to(out, operation.out());
  }

  std::unique_ptr<Communicator> do_split(int color, int key) override;

 private:
  /// A reduction on host memory. Types that NCCL would round in between are gathered and reduced here.
  class HostAllReduce {
   public:
    HostAllReduce(const NcclCommunicator& owner, DType dtype, std::int64_t count, ReduceOp op)
        : dtype_(dtype),
          count_(count),
          op_(op),
          gathers_(rounds_in_between(dtype, op)),
          ranks_(owner.size_),
          operation_(owner.group_, gathers_ ? "ncclAllGather" : "ncclAllReduce",
                     {.in = size_bytes(dtype, count),
                      .out = size_bytes(dtype, count) * static_cast<std::size_t>(gathers_ ? owner.size_ : 1),
                      .in_place = !gathers_}) {}

    [[nodiscard]] NcclHostOperation& operation() noexcept { return operation_; }

    void start() {
      operation_.start([this](ncclComm_t comm, void* in, void* out, cudaStream_t stream) {
        if (gathers_) return ncclAllGather(in, out, size_bytes(dtype_, count_), ncclUint8, comm, stream);
        return ncclAllReduce(in, out, static_cast<std::size_t>(count_), nccl_type(dtype_), nccl_op(op_), comm,
                             stream);
      });
    }

    /// Once, when the operation is done.
    [[nodiscard]] Bytes result() {
      if (!gathers_) return operation_.out();
      reduced_ = Tensor(dtype_, {count_});
      reduce_parts_in_order(operation_.out().data(), ranks_, reduced_.mutable_view().data(), count_, dtype_,
                            op_);
      return {static_cast<const std::byte*>(std::as_const(reduced_).view().data()), reduced_.bytes()};
    }

   private:
    DType dtype_;
    std::int64_t count_;
    ReduceOp op_;
    bool gathers_;
    int ranks_;
    NcclHostOperation operation_;
    Tensor reduced_;
  };

  class Pending final : public PendingCollective {
   public:
    Pending(std::shared_ptr<Tensor> io, std::unique_ptr<HostAllReduce> reduction)
        : io_(std::move(io)), reduction_(std::move(reduction)), done_(io_->numel() == 0) {}
    bool test() override {
      if (done_) return true;
      if (!reduction_->operation().test()) return false;
      copy_to(*io_, reduction_->result());
      done_ = true;
      return true;
    }

   private:
    std::shared_ptr<Tensor> io_;
    std::unique_ptr<HostAllReduce> reduction_;
    bool done_;
  };

  static ncclResult_t all_reduce_calls(std::span<const MutableTensorView> ios, ReduceOp op, ncclComm_t comm,
                                       cudaStream_t stream) {
    for (const MutableTensorView& io : ios) {
      if (io.numel() == 0) continue;
      const ncclResult_t result = ncclAllReduce(io.data(), io.data(), static_cast<std::size_t>(io.numel()),
                                                nccl_type(io.dtype()), nccl_op(op), comm, stream);
      if (!is_accepted(result)) return result;
    }
    return ncclSuccess;
  }

  /// NCCL calls on tensors of the device, on the view's stream.
  void enqueue_on(const TensorView& view, std::string_view name,
                  const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& call) {
    const CudaDeviceScope scope(group_->device());
    const cudaStream_t stream = stream_of(view);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
    if (capture != cudaStreamCaptureStatusNone) {
      return group_->enqueue_captured(stream, name, [&](ncclComm_t comm) { return call(comm, stream); });
    }
    group_->enqueue(stream, name, {}, [&](ncclComm_t comm) { return call(comm, stream); });
    // What the caller enqueues next has to come behind it.
    group_->wait_ready(name);
    group_->leave_stream();
  }

  /// Each rank gets everybody's values of its slice and adds them itself.
  void reduce_scatter_exchanged(const TensorView& in, const MutableTensorView& out, ReduceOp op) {
    const std::size_t slice = out.bytes();
    NcclHostOperation operation(group_, "ncclSend and ncclRecv of slices",
                                {.in = in.bytes(), .out = in.bytes()});
    copy_from(in, operation.in());
    operation.start([&](ncclComm_t comm, void* from, void* to, cudaStream_t stream) {
      return grouped([&] {
        for (int peer = 0; peer < size_; ++peer) {
          const std::size_t at = static_cast<std::size_t>(peer) * slice;
          ncclResult_t result =
              ncclSend(static_cast<std::byte*>(from) + at, slice, ncclUint8, peer, comm, stream);
          if (is_accepted(result)) {
            result = ncclRecv(static_cast<std::byte*>(to) + at, slice, ncclUint8, peer, comm, stream);
          }
          if (!is_accepted(result)) return result;
        }
        return ncclSuccess;
      });
    });
    operation.wait();
    reduce_parts_in_order(operation.out().data(), size_, out.data(), out.numel(), out.dtype(), op);
  }

  std::shared_ptr<NcclGroup> group_;
  AbortJob abort_job_;
  int rank_ = 0;
  int size_ = 1;
};

std::unique_ptr<Communicator> NcclCommunicator::do_split(int color, int key) {
  // NCCL does not say who is in the new group.
  const Tensor own = Tensor::of<std::int32_t>({color, key}, {1, 2});
  Tensor all(DType::kI32, {size_, 2});
  do_all_gather(own, all);
  std::vector<SplitChoice> choices;
  const std::span<const std::int32_t> said = std::as_const(all).values<std::int32_t>();
  for (std::size_t at = 0; at < said.size(); at += 2) choices.push_back({said[at], said[at + 1]});
  auto child = split_comm(group_->comm(), color, key, group_->device(), group_->limits(),
                          [&] { group_->wait_ready("ncclCommSplit"); });
  if (child == nullptr) return nullptr;
  return std::make_unique<NcclCommunicator>(std::move(child),
                                            of_members(world_ranks(), split_members(choices, color)),
                                            abort_job_, shared_counters());
}

}  // namespace

std::unique_ptr<Communicator> nccl_communicator_over(std::shared_ptr<NcclGroup> group,
                                                     std::vector<int> world_ranks, AbortJob abort_job,
                                                     std::shared_ptr<TrafficCounters> counters) {
  return std::make_unique<NcclCommunicator>(std::move(group), std::move(world_ranks), std::move(abort_job),
                                            std::move(counters));
}

}  // namespace amaxscope
