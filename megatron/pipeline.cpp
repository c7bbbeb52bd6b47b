#include "megatron/pipeline.hpp"

#include <algorithm>

namespace amaxscope::megatron {

namespace {

using Kind = PipelineWork::Kind;

constexpr CollectiveTag kActivation = {Traffic::kTrainer, "activation between stages"};
constexpr CollectiveTag kGradient = {Traffic::kTrainer, "gradient between stages"};

/// Forwards that a stage runs ahead.
int warm_up(const PipelineStage& stage, int micro_batches) {
  return std::min(stage.count - 1 - stage.index, micro_batches);
}

/// Leaves out what a stage at an end of the line has no neighbour for.
class ScheduleWriter {
 public:
  explicit ScheduleWriter(const PipelineStage& stage) : stage_(stage) {}
  void add(Kind kind, int microbatch) {
    const bool left = kind == Kind::kReceiveForward || kind == Kind::kSendBackward;
    const bool right = kind == Kind::kSendForward || kind == Kind::kReceiveBackward;
    if ((left && stage_.is_first()) || (right && stage_.is_last())) return;
    work.push_back({kind, microbatch});
  }
  std::vector<PipelineWork> work;

 private:
  PipelineStage stage_;
};

}  // namespace

PipelineStage PipelineStage::in(const Communicator* pp) noexcept {
  return pp == nullptr ? PipelineStage{} : PipelineStage{pp->rank(), pp->size()};
}

std::vector<PipelineWork> pipeline_schedule(const PipelineStage& stage, int micro_batches) {
  ScheduleWriter schedule(stage);
  const int ahead = warm_up(stage, micro_batches);
  for (int i = 0; i < ahead; ++i) {
    schedule.add(Kind::kReceiveForward, i);
    schedule.add(Kind::kForward, i);
    schedule.add(Kind::kSendForward, i);
  }
  const int pairs = micro_batches - ahead;
  for (int i = 0; i < pairs; ++i) {
    schedule.add(Kind::kReceiveForward, ahead + i);
    schedule.add(Kind::kForward, ahead + i);
    // The gradient crosses first, on both sides: the next stage sends it before it receives again.
    schedule.add(Kind::kReceiveBackward, i);
    schedule.add(Kind::kSendForward, ahead + i);
    schedule.add(Kind::kBackward, i);
    schedule.add(Kind::kSendBackward, i);
  }
  for (int i = pairs; i < micro_batches; ++i) {
    schedule.add(Kind::kReceiveBackward, i);
    schedule.add(Kind::kBackward, i);
    schedule.add(Kind::kSendBackward, i);
  }
  return std::move(schedule.work);
}

int most_in_flight(const PipelineStage& stage, int micro_batches) {
  return std::min(warm_up(stage, micro_batches) + 1, micro_batches);
}

Tensor Pipeline::receive_forward(DType dtype, Shape shape) {
  Tensor activation(dtype, shape);
  pp_->receive(activation, stage_.index - 1, kActivation);
  return activation;
}

void Pipeline::send_forward(const TensorView& activation) {
  pp_->send(activation, stage_.index + 1, kActivation);
}

Tensor Pipeline::receive_backward(DType dtype, Shape shape) {
  Tensor gradient(dtype, shape);
  pp_->receive(gradient, stage_.index + 1, kGradient);
  return gradient;
}

void Pipeline::send_backward(const TensorView& gradient) { pp_->send(gradient, stage_.index - 1, kGradient); }

double Pipeline::from_last(double value, std::string_view what) {
  if (stage_.is_alone()) return value;
  Tensor io = Tensor::of<double>({value}, {1});
  pp_->broadcast(io, stage_.count - 1, {Traffic::kTrainer, what});
  return io.values<double>()[0];
}

}  // namespace amaxscope::megatron
