// Pipeline parallelism: where a stage stands, the order of its work in a step, and what travels between
// stages.
//
// The order is 1F1B: a stage runs ahead by as many forwards as there are stages after it, then one forward
// and one backward in turn, then the backwards that are left. Neighbours have what crosses between them in
// the same order, and stages form a line: a stage that waits for its right neighbour waits for one that
// computes or waits for its own right neighbour, and so on to the last stage; the same to the left. No cycle
// can come about, whether a send waits for its receive or not.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/communicator.hpp"

namespace amaxscope::megatron {

struct PipelineStage {
  int index = 0;
  int count = 1;

  [[nodiscard]] bool is_first() const noexcept { return index == 0; }
  [[nodiscard]] bool is_last() const noexcept { return index == count - 1; }
  [[nodiscard]] bool is_alone() const noexcept { return count == 1; }
  /// That of this rank in its pipeline group; null: the only one.
  static PipelineStage in(const Communicator* pp) noexcept;

  friend bool operator==(const PipelineStage&, const PipelineStage&) = default;
};

struct PipelineWork {
  enum class Kind : std::uint8_t {
    kReceiveForward,   ///< activations of the previous stage
    kForward,          ///< of this stage's layers
    kSendForward,      ///< to the next stage
    kReceiveBackward,  ///< gradient of what was sent there
    kBackward,
    kSendBackward,  ///< to the previous stage
  };
  Kind kind = Kind::kForward;
  int microbatch = 0;

  friend bool operator==(const PipelineWork&, const PipelineWork&) = default;
};

/// What this stage does in a step, in order. Every micro-batch goes forward and backward once; the first
/// stage receives no activations, the last no gradients.
std::vector<PipelineWork> pipeline_schedule(const PipelineStage& stage, int micro_batches);
/// Micro-batches that have gone forward and not yet backward, at most.
int most_in_flight(const PipelineStage& stage, int micro_batches);

/// The neighbours of a stage. Used by one thread; sends and receives block (trainer traffic). The group must
/// outlive it.
class Pipeline {
 public:
  /// pp: the ranks that hold the stages of one model, in their order; null: one stage.
  explicit Pipeline(Communicator* pp) : pp_(pp), stage_(PipelineStage::in(pp)) {}

  [[nodiscard]] const PipelineStage& stage() const noexcept { return stage_; }
  [[nodiscard]] Tensor receive_forward(DType dtype, Shape shape);
  void send_forward(const TensorView& activation);
  [[nodiscard]] Tensor receive_backward(DType dtype, Shape shape);
  void send_backward(const TensorView& gradient);
  /// The last stage's value on every stage. Collective over the pipeline.
  [[nodiscard]] double from_last(double value, std::string_view what);

 private:
  Communicator* pp_;
  PipelineStage stage_;
};

}  // namespace amaxscope::megatron
