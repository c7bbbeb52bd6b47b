// The statistics of CompareGemm for the result of one GEMM.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "kernels/gemm_error.hpp"
#include "runtime/names.hpp"
#include "runtime/stats/accumulator.hpp"

namespace amaxscope {

/// All are quotients of sums, so that shards and micro-batches merge exactly. With E the error of the result
/// and R the high-precision reference (kernels/gemm_error.hpp):
///   relative_error           |E| / |R|; 0 without error
///   cosine                   R.Y / (|R| |Y|); 1 for zeros that should be zeros, 0 when only one of them is
///   sqnr                     10 log10(|R|^2 / |E|^2) in dB; +Inf with the flag "exact" without error
///   error_from_<operand>%    100 E.E_operand / |E|^2, for each of the two operands by its name
///   error_from_accumulation% error_from_rest%   the same; the four add up to 100; none without error
///   result_norm              |R|
/// and for wgrad
///   gradient_noise           |E| / |R|, with the flag "noise_line" above 1 / sqrt(3)
///   gradient_bias            E.R / |R|^2: the part of the error that scales the gradient
/// nonfinite, a count of elements that were left out, is reported when there are any. No element: nothing is
/// reported. A quotient by 0 is left out.
class GemmErrorAccumulator final : public StatAccumulator {
 public:
  explicit GemmErrorAccumulator(Gemm gemm);

  void feed(const GemmError& error);
  [[nodiscard]] std::string id() const override;
  void reset() override;
  [[nodiscard]] std::size_t sum_words() const override;
  void pack_sums(std::span<double> out) const override;
  [[nodiscard]] std::vector<StatValue> values(const ReducedStat& reduced) const override;

 private:
  Gemm gemm_;
  GemmError error_;
};

}  // namespace amaxscope
