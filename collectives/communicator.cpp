#include "collectives/communicator.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace amaxscope {

namespace {

void require_cpu(const TensorView& view, std::string_view operation, const CollectiveTag& tag) {
  AMAXSCOPE_CHECK(view.device().kind == DeviceKind::kCpu && view.contiguous(), ErrorCode::kTensor,
                  "{} of {}: a contiguous CPU tensor is needed, got {} on {}", operation, tag.what,
                  to_string(view.shape()), to_string(view.device()));
}

}  // namespace

std::string_view to_string(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kMax: return "max";
  }
  return "unknown";
}

std::string_view to_string(Traffic traffic) noexcept {
  switch (traffic) {
    case Traffic::kTrainer: return "trainer";
    case Traffic::kRecipe: return "recipe";
    case Traffic::kDebug: return "debug";
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
  require_cpu(io, "all_reduce", tag);
  counters_->count(tag.traffic, io.bytes());
  do_all_reduce(io, op);
}

std::unique_ptr<PendingCollective> Communicator::start_all_reduce(std::shared_ptr<Tensor> io, ReduceOp op,
                                                                  const CollectiveTag& tag) {
  require_cpu(*io, "all_reduce", tag);
  counters_->count(tag.traffic, io->bytes());
  return do_start_all_reduce(std::move(io), op);
}

void Communicator::all_gather(const TensorView& in, const MutableTensorView& out, const CollectiveTag& tag) {
  require_cpu(in, "all_gather", tag);
  require_cpu(out, "all_gather", tag);
  AMAXSCOPE_CHECK(out.bytes() == in.bytes() * static_cast<std::size_t>(size()) && in.dtype() == out.dtype(),
                  ErrorCode::kTensor, "all_gather of {}: {} x {} {} into {} {}", tag.what, size(),
                  to_string(in.dtype()), to_string(in.shape()), to_string(out.dtype()), to_string(out.shape()));
  counters_->count(tag.traffic, in.bytes());
  do_all_gather(in, out);
}

void Communicator::reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op,
                                  const CollectiveTag& tag) {
  require_cpu(in, "reduce_scatter", tag);
  require_cpu(out, "reduce_scatter", tag);
  AMAXSCOPE_CHECK(in.numel() == out.numel() * size() && in.dtype() == out.dtype(), ErrorCode::kTensor,
                  "reduce_scatter of {}: {} {} over {} ranks into {} {}", tag.what, to_string(in.dtype()),
                  to_string(in.shape()), size(), to_string(out.dtype()), to_string(out.shape()));
  counters_->count(tag.traffic, in.bytes());
  do_reduce_scatter(in, out, op);
}

void Communicator::broadcast(const MutableTensorView& io, int root, const CollectiveTag& tag) {
  require_cpu(io, "broadcast", tag);
  AMAXSCOPE_CHECK(root >= 0 && root < size(), ErrorCode::kUsage, "broadcast of {}: root {} of {} ranks", tag.what,
                  root, size());
  counters_->count(tag.traffic, io.bytes());
  do_broadcast(io, root);
}

void Communicator::barrier(const CollectiveTag& tag) {
  counters_->count(tag.traffic, 0);
  do_barrier();
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, const CollectiveTag&) {
  return do_split(color, key);  // a set-up call, not traffic
}

}  // namespace amaxscope
