// What the handles of the C API stand for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capi/resources.hpp"
#include "collectives/process_groups.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"
#include "runtime/session.hpp"

struct amaxscope_layer {
  amaxscope::LayerDescription description;
  amaxscope::OperandQuantizers quantizers;  ///< the recipe's; null in high precision
  amaxscope::LayerHandle handle;
  /// Of amaxscope_forward, from micro-batch 0 on.
  std::shared_ptr<amaxscope::QuantizedTensor> weight;
};

struct amaxscope_quantized {
  std::shared_ptr<amaxscope::QuantizedTensor> tensor;
  amaxscope_device* device = nullptr;  ///< where the tensor is; null: in host memory
};

/// What a backward needs of its forward. Views point to the program's memory.
struct amaxscope_saved {
  std::shared_ptr<amaxscope::QuantizedTensor> activation;
  std::shared_ptr<amaxscope::QuantizedTensor> weight;
  amaxscope::TensorView x;
  amaxscope::TensorView weight_values;
};

struct amaxscope_session {
  amaxscope::FeatureRegistry registry;
  std::optional<amaxscope::ProcessGroups> groups;         ///< none: one rank
  std::optional<amaxscope::DelayedScalingState> delayed;  ///< with the first layer of that recipe
  std::vector<std::unique_ptr<amaxscope_layer>> layers;
  std::optional<amaxscope::DebugSession> session;
};

namespace amaxscope::capi {

/// Throws Error(kUsage) for a dtype that does not exist.
DType dtype_of(amaxscope_dtype dtype);
/// Throws Error(kUsage) naming the argument for NULL, a negative extent or stride, data NULL with elements.
TensorView view_of(const amaxscope_view* view, std::string_view name);
/// The same, for memory that is written to, which must be contiguous.
MutableTensorView mutable_view_of(amaxscope_view* view, std::string_view name);
/// The same, or none for NULL.
std::optional<TensorView> optional_view_of(const amaxscope_view* view, std::string_view name);
/// NULL: the forward of the first micro-batch.
TensorMoment moment_of(const amaxscope_moment* moment);

/// "decoder.layers.1.mlp.linear_fc1.weight": of messages, random numbers and files.
std::string operand_name(const LayerDescription& layer, TensorKind tensor);
/// Null when nothing is to be done with this tensor in this iteration.
DebugQuantizer* debug_quantizer(const amaxscope_layer& layer, TensorKind tensor);
/// As the config wants it, else the recipe's, else in high precision, borrowed.
std::shared_ptr<QuantizedTensor> quantize(const amaxscope_layer& layer, TensorKind operand,
                                          const TensorView& values, Usage usage, const TensorMoment& moment);
void reuse(const amaxscope_layer& layer, TensorKind operand, const TensorView& values,
           const std::shared_ptr<QuantizedTensor>& quantized, const TensorMoment& moment);

}  // namespace amaxscope::capi
