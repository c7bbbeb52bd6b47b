// The interface of everything that turns a tensor into GEMM operands.
// A quantizer belongs to one tensor of one layer on one rank and is used by one thread at a time. It may
// block where its recipe reduces an amax over ranks. It never takes ownership of the tensors it is given.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/quantizers/quantized_tensor.hpp"
#include "runtime/quantizers/recipe.hpp"

namespace amaxscope {

/// What a trainer says with every tensor it hands in.
struct TensorMoment {
  Phase phase = Phase::kForward;
  int microbatch = 0;
};

class Quantizer {
 public:
  virtual ~Quantizer() = default;
  /// x [.., K]: f32, f16 or bf16. Throws Error(kTensor).
  [[nodiscard]] virtual std::shared_ptr<QuantizedTensor> quantize(const TensorView& x, Usage usage,
                                                                  const TensorMoment& moment) = 0;
  /// Quantizes x into an existing result of quantize(), in the directions that it has (weight cache).
  virtual void update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) = 0;
  /// What a quantizer that stands before another one wraps; itself otherwise. For reports and checks.
  [[nodiscard]] virtual const Quantizer& unwrapped() const noexcept { return *this; }
  [[nodiscard]] virtual RecipeKind recipe() const noexcept = 0;
  [[nodiscard]] virtual DType format() const noexcept = 0;
};

}  // namespace amaxscope
