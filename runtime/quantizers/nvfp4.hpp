// NVFP4: FP4 codes with an E4M3 scale for every 16 elements under one fp32 amax of the tensor.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/quantizers/block_quantize.hpp"
#include "runtime/quantizers/reduce_amaxes.hpp"

namespace amaxscope {

/// How "four over six" chooses between mapping a block's amax to 6 and to 4.
enum class FourOverSixError { kAbsolute, kSquared };

struct Nvfp4Options {
  bool random_hadamard = true;          ///< rotate the columnwise codes of activations and gradients
  bool stochastic_rounding = true;      ///< of gradients
  bool two_dimensional_weights = true;  ///< one scale for 16 x 16 elements of a weight
  /// Weights and activations (not rotated ones): of the two, the scale with the smaller error of the block.
  bool four_over_six = false;
  FourOverSixError four_over_six_error = FourOverSixError::kSquared;
  int four_over_six_scale_max = 448;  ///< largest block scale, 448 or 256
  /// Of stochastic rounding. The random stream of a tensor has the key that Philox4x32-10 gives for this seed
  /// and the tensor's name, and advances with every quantization; kernels/block_scale.hpp says what each
  /// element draws. Ranks that hold the same tensor must have the same seed and name; ranks that hold parts
  /// of one draw alike at like positions of their parts unless they have other seeds.
  std::uint64_t seed = 0;
};

/// What the options are for one tensor.
struct Nvfp4Usage {
  bool rotate_columnwise = false;
  bool stochastic_rounding = false;
  bool two_dimensional = false;
  bool four_over_six = false;
};

/// Both directions have an amax of their own, reduced together where ranks share a scale. Columnwise codes
/// are transposed, and of the rotated tensor where it is rotated.
class Nvfp4Quantizer final : public BlockQuantizer {
 public:
  /// name: of the tensor, for messages and the random stream. Throws Error(kUsage) for combinations that do
  /// not exist: two-dimensional blocks that are rotated, four over six with rotation or stochastic rounding.
  Nvfp4Quantizer(Nvfp4Usage usage, Nvfp4Options options, ReduceAmaxes reduce_amaxes, std::string name = {});
  [[nodiscard]] RecipeKind recipe() const noexcept override { return RecipeKind::kNvfp4; }
  [[nodiscard]] DType format() const noexcept override { return DType::kE2M1; }
  /// The place in the random stream, to save and to restore: how many stochastic quantizations there were.
  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_; }
  void set_calls(std::uint64_t calls) noexcept { calls_ = calls; }

 private:
  [[nodiscard]] std::shared_ptr<BlockScaledTensor> make(const TensorView& x, Usage usage) override;

  Nvfp4Usage usage_;
  Nvfp4Options options_;
  ReduceAmaxes reduce_amaxes_;
  std::uint64_t stream_key_;
  std::uint64_t calls_ = 0;  ///< of stochastic rounding, so that every call draws anew
};

}  // namespace amaxscope
