// The planted faults of the block-scaled recipes: built only where one is planted, around the sound
// quantizer.
#pragma once

#include "megatron/planted_faults.hpp"
#include "runtime/quantizers/nvfp4.hpp"

namespace amaxscope::megatron {

/// MXFP8 with scales rounded down to powers of two while the fault is due: half of what they should be
/// wherever amax / fp8_max is no power of two, and codes to match, so that the block's largest elements
/// saturate.
class RoundedDownQuantizer final : public FaultyQuantizer {
 public:
  RoundedDownQuantizer(std::shared_ptr<Quantizer> inner, const FaultTable& faults, std::string layer,
                       TensorKind tensor)
      : FaultyQuantizer(FaultKind::kScaleRoundedDown, std::move(inner), faults, std::move(layer), tensor) {}
  [[nodiscard]] std::shared_ptr<QuantizedTensor> quantize(const TensorView& x, Usage usage,
                                                          const TensorMoment& moment) override;
  void update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) override;
};

/// NVFP4 with the same random numbers in every call while the fault is due.
class FixedSeedQuantizer final : public FaultyQuantizer {
 public:
  FixedSeedQuantizer(std::shared_ptr<Nvfp4Quantizer> inner, const FaultTable& faults, std::string layer,
                     TensorKind tensor)
      : FaultyQuantizer(FaultKind::kFixedRoundingSeed, inner, faults, std::move(layer), tensor),
        nvfp4_(*inner) {}
  [[nodiscard]] std::shared_ptr<QuantizedTensor> quantize(const TensorView& x, Usage usage,
                                                          const TensorMoment& moment) override;
  void update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) override;

 private:
  void strike() const;

  Nvfp4Quantizer& nvfp4_;
};

}  // namespace amaxscope::megatron
