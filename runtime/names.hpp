// The words of the field: GEMMs, tensors, directions, phases, layouts, and which goes with which.
// Value types and pure functions.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

namespace amaxscope {

enum class Gemm { kFprop, kDgrad, kWgrad };
enum class TensorKind { kActivation, kWeight, kGradient, kOutput, kWgrad, kDgrad };
enum class Direction { kRowwise, kColumnwise };
enum class Phase { kForward, kRecompute, kBackward, kEval };

/// How a tensor lies over the ranks of its tp_group.
enum class Layout {
  kReplicated,  ///< every rank holds the whole tensor
  kShard0,      ///< split along the first dimension (rows)
  kShard1,      ///< split along the last dimension
  kPartial,     ///< every rank holds a summand
};

inline constexpr std::array kAllGemms = {Gemm::kFprop, Gemm::kDgrad, Gemm::kWgrad};
inline constexpr std::array kAllTensors = {TensorKind::kActivation, TensorKind::kWeight,
                                           TensorKind::kGradient,   TensorKind::kOutput,
                                           TensorKind::kWgrad,      TensorKind::kDgrad};

std::string_view to_string(Gemm gemm) noexcept;            ///< "fprop"
std::string_view to_string(TensorKind tensor) noexcept;    ///< "activation"
std::string_view to_string(Direction direction) noexcept;  ///< "rowwise"
std::string_view to_string(Phase phase) noexcept;          ///< "forward"
std::string_view to_string(Layout layout) noexcept;        ///< "shard0"
std::optional<Gemm> parse_gemm(std::string_view text) noexcept;
std::optional<TensorKind> parse_tensor(std::string_view text) noexcept;

/// output, wgrad and dgrad are results of a GEMM, the others operands.
constexpr bool is_result(TensorKind tensor) noexcept {
  return tensor == TensorKind::kOutput || tensor == TensorKind::kWgrad || tensor == TensorKind::kDgrad;
}

/// The GEMM that uses a tensor in a direction: activation fprop/wgrad, weight fprop/dgrad, gradient
/// dgrad/wgrad; a result belongs to one GEMM, "rowwise". No value: the tensor has no such direction.
std::optional<Gemm> gemm_of(TensorKind tensor, Direction direction) noexcept;
/// The inverse; no value when the GEMM does not touch the tensor.
std::optional<Direction> direction_of(TensorKind tensor, Gemm gemm) noexcept;
/// The two operands of a GEMM.
std::array<TensorKind, 2> operands_of(Gemm gemm) noexcept;

/// The phase a tensor belongs to in training: backward for gradient, wgrad and dgrad, else forward.
constexpr Phase training_phase(TensorKind tensor) noexcept {
  return tensor == TensorKind::kGradient || tensor == TensorKind::kWgrad || tensor == TensorKind::kDgrad
             ? Phase::kBackward
             : Phase::kForward;
}

}  // namespace amaxscope
