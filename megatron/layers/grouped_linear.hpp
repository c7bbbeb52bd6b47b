// The linear layers of a group of experts, one GEMM layer each: `name`.gemm_<i>, i the global expert index.
// Every expert runs in every forward and backward, also with no row: it takes part in every collective with
// empty tensors, and its tensors are shown to the debug session as empty ones. Under a recipe whose blocks
// must be whole (mxfp8, nvfp4) each expert's rows are filled up with rows of zeros to required_multiple, as
// Megatron-LM pads tokens for quantization; the session sees the operands as the GEMM does, so with these
// rows, and the caller gets results without them. Zeros change no amax. Used by one thread;
// collective over tp.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "megatron/layers/linear.hpp"

namespace amaxscope::megatron {

class GroupedLinear {
 public:
  struct Saved {
    std::vector<Linear::Saved> experts;
  };
  /// options: of each expert; `name` is the group's. context without sequence parallelism, because the rows
  /// of an expert are not split over tp (Error(kUsage)).
  GroupedLinear(const LayerContext& context, ParallelMode mode, const LinearOptions& options, int experts);

  /// x: the rows of expert 0, then those of expert 1 and so on; rows[i] of expert i. Results in the same
  /// order. saved null: no backward follows this call.
  Tensor forward(const TensorView& x, std::span<const std::int64_t> rows, const TensorMoment& moment,
                 Saved* saved);
  Tensor backward(const TensorView& dy, std::span<const std::int64_t> rows, const TensorMoment& moment,
                  Saved& saved);
  void collect(std::vector<Parameter*>& parameters);

 private:
  std::int64_t row_multiple_;
  std::vector<std::unique_ptr<Linear>> experts_;
};

/// "`group`.gemm_3"
std::string expert_gemm_name(std::string_view group, int expert);

}  // namespace amaxscope::megatron
