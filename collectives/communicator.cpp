#include "collectives/communicator.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "collectives/flight_recorder.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {

void require_usable(const Communicator& group, const TensorView& view, std::string_view operation,
                    const CollectiveTag& tag) {
  const std::optional<Device> device = group.device();
  const bool placed = view.device().kind == DeviceKind::kCpu || view.device() == device;
  AMAXSCOPE_CHECK(placed && view.contiguous(), ErrorCode::kTensor,
                  "{} of {}: a contiguous tensor on the CPU{} is needed, got {} on {} with row stride {}",
                  operation, tag.what, device ? fmt::format(" or {}", to_string(*device)) : "",
                  to_string(view.shape()), to_string(view.device()), view.row_stride());
}

void require_together(const TensorView& one, const TensorView& other, std::string_view operation,
                      const CollectiveTag& tag) {
  AMAXSCOPE_CHECK(one.device() == other.device() && one.stream() == other.stream(), ErrorCode::kTensor,
                  "{} of {}: tensors on {} and {}, or on two streams; one device and stream is needed",
                  operation, tag.what, to_string(one.device()), to_string(other.device()));
}

void require_reducible(DType dtype, std::string_view operation, const CollectiveTag& tag) {
  switch (dtype) {
    case DType::kF64:
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kU32:
    case DType::kI32:
    case DType::kU64:
    case DType::kI64:
      return;
    default:
      break;
  }
  throw Error(ErrorCode::kTensor,
              fmt::format("{} of {}: {} tensors cannot be reduced over ranks; allowed: f64 "
                          "f32 f16 bf16 u32 i32 u64 i64",
                          operation, tag.what, to_string(dtype)));
}

FlightOp flight_op(FlightOperation operation, const TensorView& data, const CollectiveTag& tag,
                   ReduceOp op = ReduceOp::kSum, int world_peer = -1) {
  return {.operation = operation,
          .tag = tag,
          .count = static_cast<std::uint64_t>(data.numel()),
          .dtype = data.dtype(),
          .op = op,
          .world_peer = world_peer};
}

/// The libraries underneath forbid it, some without saying so.
void require_apart(const TensorView& in, const TensorView& out, std::string_view operation,
                   const CollectiveTag& tag) {
  const auto begin = [](const TensorView& view) { return reinterpret_cast<std::uintptr_t>(view.data()); };
  const bool overlap = in.bytes() != 0 && out.bytes() != 0 && begin(in) < begin(out) + out.bytes() &&
                       begin(out) < begin(in) + in.bytes();
  AMAXSCOPE_CHECK(!overlap, ErrorCode::kTensor, "{} of {}: input and output share memory", operation,
                  tag.what);
}

void require_other(const Communicator& group, int rank, std::string_view operation,
                   std::string_view preposition, const CollectiveTag& tag) {
  AMAXSCOPE_CHECK(rank >= 0 && rank < group.size() && rank != group.rank(), ErrorCode::kUsage,
                  "{} of {} {} rank {}: rank {} can do that with another of the {} ranks only", operation,
                  tag.what, preposition, rank, group.rank(), group.size());
}

}  // namespace

std::string_view to_string(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
  }
  return "unknown";
}

std::string_view to_string(Traffic traffic) noexcept {
  switch (traffic) {
    case Traffic::kTrainer:
      return "trainer";
    case Traffic::kRecipe:
      return "recipe";
    case Traffic::kDebug:
      return "debug";
  }
  return "unknown";
}

void TrafficCounters::count(Traffic traffic, std::size_t bytes) noexcept {
  Entry& entry = entries_[static_cast<std::size_t>(traffic)];
  entry.calls.fetch_add(1, std::memory_order_relaxed);
  entry.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

std::uint64_t TrafficCounters::calls(Traffic traffic) const noexcept {
  return entries_[static_cast<std::size_t>(traffic)].calls.load(std::memory_order_relaxed);
}

std::uint64_t TrafficCounters::bytes(Traffic traffic) const noexcept {
  return entries_[static_cast<std::size_t>(traffic)].bytes.load(std::memory_order_relaxed);
}

Communicator::Communicator(std::vector<int> world_ranks, std::shared_ptr<TrafficCounters> counters)
    : world_ranks_(std::move(world_ranks)), counters_(std::move(counters)) {}

void Communicator::all_reduce(const MutableTensorView& io, ReduceOp op, const CollectiveTag& tag) {
  require_usable(*this, io, "all_reduce", tag);
  require_reducible(io.dtype(), "all_reduce", tag);
  counters_->count(tag.traffic, io.bytes());
  const FlightScope recorded(flight_.get(), flight_group_,
                             flight_op(FlightOperation::kAllReduce, io, tag, op));
  do_all_reduce(io, op);
}

void Communicator::all_reduce_each(std::span<const MutableTensorView> ios, ReduceOp op,
                                   const CollectiveTag& tag) {
  std::size_t bytes = 0;
  FlightOp described = {.operation = FlightOperation::kAllReduce, .tag = tag, .op = op};
  for (const MutableTensorView& io : ios) {
    require_usable(*this, io, "all_reduce", tag);
    require_reducible(io.dtype(), "all_reduce", tag);
    require_together(ios.front(), io, "all_reduce", tag);
    AMAXSCOPE_CHECK(io.dtype() == ios.front().dtype(), ErrorCode::kTensor,
                    "all_reduce of {}: {} and {} tensors in one call; one type is needed", tag.what,
                    to_string(ios.front().dtype()), to_string(io.dtype()));
    bytes += io.bytes();
    described.count += static_cast<std::uint64_t>(io.numel());
    described.dtype = io.dtype();
  }
  if (ios.empty()) return;
  counters_->count(tag.traffic, bytes);
  const FlightScope recorded(flight_.get(), flight_group_, described);
  do_all_reduce_each(ios, op);
}

void Communicator::do_all_reduce_each(std::span<const MutableTensorView> ios, ReduceOp op) {
  for (const MutableTensorView& io : ios) do_all_reduce(io, op);
}

std::unique_ptr<PendingCollective> Communicator::start_all_reduce(std::shared_ptr<Tensor> io, ReduceOp op,
                                                                  const CollectiveTag& tag) {
  AMAXSCOPE_CHECK(io != nullptr, ErrorCode::kTensor, "all_reduce of {}: no tensor given", tag.what);
  require_usable(*this, *io, "all_reduce", tag);
  require_reducible(io->dtype(), "all_reduce", tag);
  counters_->count(tag.traffic, io->bytes());
  return do_start_all_reduce(std::move(io), op);
}

void Communicator::all_gather(const TensorView& in, const MutableTensorView& out, const CollectiveTag& tag) {
  require_usable(*this, in, "all_gather", tag);
  require_usable(*this, out, "all_gather", tag);
  require_together(in, out, "all_gather", tag);
  AMAXSCOPE_CHECK(in.dtype() == out.dtype() && in.numel() * size() == out.numel() &&
                      in.bytes() * static_cast<std::size_t>(size()) == out.bytes(),
                  ErrorCode::kTensor, "all_gather of {}: {} ranks x {} {} do not fill {} {}", tag.what,
                  size(), to_string(in.dtype()), to_string(in.shape()), to_string(out.dtype()),
                  to_string(out.shape()));
  require_apart(in, out, "all_gather", tag);
  counters_->count(tag.traffic, in.bytes());
  const FlightScope recorded(flight_.get(), flight_group_, flight_op(FlightOperation::kAllGather, in, tag));
  do_all_gather(in, out);
}

void Communicator::reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op,
                                  const CollectiveTag& tag) {
  require_usable(*this, in, "reduce_scatter", tag);
  require_usable(*this, out, "reduce_scatter", tag);
  require_together(in, out, "reduce_scatter", tag);
  require_reducible(in.dtype(), "reduce_scatter", tag);
  const bool divides = in.shape().rank() > 0 && in.shape()[0] % size() == 0;
  AMAXSCOPE_CHECK(
      divides && in.dtype() == out.dtype() && in.numel() == out.numel() * size(), ErrorCode::kTensor,
      "reduce_scatter of {}: the first dimension of {} {} does not split into {} slices of {} {}", tag.what,
      to_string(in.dtype()), to_string(in.shape()), size(), to_string(out.dtype()), to_string(out.shape()));
  require_apart(in, out, "reduce_scatter", tag);
  counters_->count(tag.traffic, in.bytes());
  const FlightScope recorded(flight_.get(), flight_group_,
                             flight_op(FlightOperation::kReduceScatter, in, tag, op));
  do_reduce_scatter(in, out, op);
}

void Communicator::broadcast(const MutableTensorView& io, int root, const CollectiveTag& tag) {
  require_usable(*this, io, "broadcast", tag);
  AMAXSCOPE_CHECK(root >= 0 && root < size(), ErrorCode::kUsage, "broadcast of {}: root {} of {} ranks",
                  tag.what, root, size());
  counters_->count(tag.traffic, io.bytes());
  const FlightScope recorded(
      flight_.get(), flight_group_,
      flight_op(FlightOperation::kBroadcast, io, tag, {}, world_ranks_[static_cast<std::size_t>(root)]));
  do_broadcast(io, root);
}

void Communicator::barrier(const CollectiveTag& tag) {
  counters_->count(tag.traffic, 0);
  const FlightScope recorded(flight_.get(), flight_group_,
                             {.operation = FlightOperation::kBarrier, .tag = tag});
  do_barrier();
}

void Communicator::send(const TensorView& in, int to, const CollectiveTag& tag) {
  require_usable(*this, in, "send", tag);
  require_other(*this, to, "send", "to", tag);
  counters_->count(tag.traffic, in.bytes());
  const FlightScope recorded(
      flight_.get(), flight_group_,
      flight_op(FlightOperation::kSend, in, tag, {}, world_ranks_[static_cast<std::size_t>(to)]));
  do_send(in, to);
}

void Communicator::receive(const MutableTensorView& out, int from, const CollectiveTag& tag) {
  require_usable(*this, out, "receive", tag);
  require_other(*this, from, "receive", "from", tag);
  counters_->count(tag.traffic, 0);
  const FlightScope recorded(
      flight_.get(), flight_group_,
      flight_op(FlightOperation::kReceive, out, tag, {}, world_ranks_[static_cast<std::size_t>(from)]));
  do_receive(out, from);
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, const CollectiveTag& tag) {
  // Sets up: the counters are of what moves afterwards.
  std::unique_ptr<Communicator> child;
  {
    const FlightScope recorded(flight_.get(), flight_group_,
                               {.operation = FlightOperation::kSplit, .tag = tag});
    child = do_split(color, key);
  }
  if (child != nullptr && flight_ != nullptr) child->record_into(flight_, tag.what);
  return child;
}

void Communicator::record_into(std::shared_ptr<FlightRecorder> recorder, std::string_view group_name) {
  flight_ = std::move(recorder);
  if (flight_ != nullptr) flight_group_ = flight_->add_group(group_name, world_ranks_);
}

}  // namespace amaxscope
