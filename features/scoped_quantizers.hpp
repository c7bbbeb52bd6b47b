// Quantizers of another recipe than the running one, which a modifying feature keeps for each tensor; their
// amaxes are taken over the ranks of `amax_scope`. Used by one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "features/kept_state.hpp"
#include "runtime/feature/feature.hpp"
#include "runtime/quantizers/quantizer.hpp"

namespace amaxscope {

class ScopedQuantizers {
 public:
  ScopedQuantizers() = default;
  ScopedQuantizers(const ScopedQuantizers&) = delete;  // its quantizers refer to it
  ScopedQuantizers& operator=(const ScopedQuantizers&) = delete;

  /// Of the world: the seed of stochastic rounding of a tensor that no other tensor-parallel rank holds.
  void set_rank(int world_rank) noexcept { world_rank_ = world_rank; }
  /// x by the recipe's quantizer of this layer and tensor, made at the first call; a result of a GEMM is
  /// quantized like an activation. Collective over tp where the scope says so and the scale needs an amax.
  [[nodiscard]] std::shared_ptr<QuantizedTensor> quantize(const ModifyContext& context, RecipeKind recipe,
                                                          DType format, const TensorView& x, Usage usage);
  /// How far the random streams of stochastic rounding are drawn from, for a feature that saves it. Before
  /// the first call of quantize.
  void keep_in(KeptState& kept) noexcept { kept_ = &kept; }

 private:
  Quantizer& quantizer_for(const ModifyContext& context, RecipeKind recipe, DType format);

  int world_rank_ = 0;
  KeptState* kept_ = nullptr;
  std::map<std::tuple<std::string, TensorKind, RecipeKind, DType>, std::shared_ptr<Quantizer>> quantizers_;
  const ModifyContext* now_ = nullptr;  ///< while a quantizer may reduce an amax
};

}  // namespace amaxscope
