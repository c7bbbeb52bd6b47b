#include "tests/support/faulty_communicator.hpp"

#include <cstdlib>
#include <thread>
#include <utility>

namespace amaxscope::testing {

namespace {

constexpr CollectiveTag kTag = {.what = "under a planted fault"};

class NeverStarted final : public PendingCollective {
 public:
  bool test() override { return true; }
};

}  // namespace

FaultyCommunicator::FaultyCommunicator(Communicator& inner, CommunicatorFault fault)
    : Communicator(inner.world_ranks(), std::make_shared<TrafficCounters>()), inner_(inner), fault_(fault) {}

bool FaultyCommunicator::takes_part() {
  if (next_call_++ != fault_.call) return true;
  if (fault_.kind == CommunicatorFault::Kind::kSkip) return false;
  std::this_thread::sleep_for(fault_.delay);
  return true;
}

void FaultyCommunicator::abort(int status, std::string_view reason) {
  inner_.abort(status, reason);
  std::abort();  // not reached; a virtual call does not tell the compiler
}

void FaultyCommunicator::do_all_reduce(const MutableTensorView& io, ReduceOp op) {
  if (takes_part()) inner_.all_reduce(io, op, kTag);
}
std::unique_ptr<PendingCollective> FaultyCommunicator::do_start_all_reduce(std::shared_ptr<Tensor> io,
                                                                           ReduceOp op) {
  if (!takes_part()) return std::make_unique<NeverStarted>();
  return inner_.start_all_reduce(std::move(io), op, kTag);
}
void FaultyCommunicator::do_all_gather(const TensorView& in, const MutableTensorView& out) {
  if (takes_part()) inner_.all_gather(in, out, kTag);
}
void FaultyCommunicator::do_reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op) {
  if (takes_part()) inner_.reduce_scatter(in, out, op, kTag);
}
void FaultyCommunicator::do_broadcast(const MutableTensorView& io, int root) {
  if (takes_part()) inner_.broadcast(io, root, kTag);
}
void FaultyCommunicator::do_barrier() {
  if (takes_part()) inner_.barrier(kTag);
}
void FaultyCommunicator::do_send(const TensorView& in, int to) {
  if (takes_part()) inner_.send(in, to, kTag);
}
void FaultyCommunicator::do_receive(const MutableTensorView& out, int from) {
  if (takes_part()) inner_.receive(out, from, kTag);
}
std::unique_ptr<Communicator> FaultyCommunicator::do_split(int color, int key) {
  return takes_part() ? inner_.split(color, key, kTag) : nullptr;
}

}  // namespace amaxscope::testing
