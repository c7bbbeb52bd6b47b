// What every layer of a model is built with. A value type of borrowed parts, which must outlive the layers.
#pragma once

#include <cstdint>

#include "collectives/communicator.hpp"
#include "core/device.hpp"
#include "core/dtype.hpp"
#include "megatron/random_streams.hpp"
#include "runtime/quantizers/recipe.hpp"

namespace amaxscope {
class DebugSession;
class DelayedScalingState;
}  // namespace amaxscope

namespace amaxscope::megatron {

class FaultTable;

enum class GemmArithmetic {
  kBlas,   ///< fp32 accumulation, partial sums reduced in the compute dtype
  kExact,  ///< fp64 sums over codes, reduced in fp64, scaled and rounded once: independent of the tensor
           ///< split
};

struct LayerContext {
  Communicator* tp = nullptr;  ///< null: not tensor parallel
  RecipeKind recipe = RecipeKind::kNone;
  DelayedScalingState* delayed = nullptr;  ///< the trainer's; needed by RecipeKind::kDelayed
  DType dtype = DType::kF32;               ///< compute dtype: f64 (without recipe), f32 or bf16
  bool sequence_parallel = false;
  bool fp8_weights = false;  ///< weights of layers with a recipe exist as its codes and as masters only
  GemmArithmetic arithmetic = GemmArithmetic::kBlas;
  DebugSession* session = nullptr;     ///< null: nothing is observed
  const FaultTable* faults = nullptr;  ///< null: no fault is planted
  RandomStreams* streams = nullptr;    ///< where layers list what draws random numbers; null: nowhere
  std::uint64_t seed = 0;              ///< of the initial weights and of stochastic rounding
  std::uint64_t perturb = 0;           ///< not 0: other draws of stochastic rounding than the seed's
  std::int64_t sequence = 0;           ///< tokens of one sequence; 0: not known
  /// With a backend: what linear layers compute on. Everything else, and what goes in and out of them, is on
  /// the host in any case.
  Stream device = {};

  [[nodiscard]] bool on_device() const noexcept { return device.backend != nullptr; }
  [[nodiscard]] int tp_size() const noexcept { return tp == nullptr ? 1 : tp->size(); }
  [[nodiscard]] int tp_rank() const noexcept { return tp == nullptr ? 0 : tp->rank(); }
  /// Whether the rows (tokens) between the tensor-parallel regions are split over tp.
  [[nodiscard]] bool splits_sequence() const noexcept { return sequence_parallel && tp_size() > 1; }
  /// dtype of master weights and gradients.
  [[nodiscard]] DType master_dtype() const noexcept {
    return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  }
};

}  // namespace amaxscope::megatron
