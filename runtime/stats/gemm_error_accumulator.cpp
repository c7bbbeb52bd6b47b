#include "runtime/stats/gemm_error_accumulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace amaxscope {

namespace {

enum SumWord : std::size_t {
  kNumel,
  kNonfinite,
  kErrorSquares,
  kReferenceSquares,
  kResultSquares,
  kProduct,
  kErrorReference,
  kFromA,
  kFromB,
  kFromRest,
  kFromAccumulation,
  kSumWords
};

/// Where gradient noise is as large as is tolerable (diagnosis: the line at 1 / sqrt(3)).
const double kNoiseLine = 1.0 / std::sqrt(3.0);

double cosine(const ReducedStat& r) {
  const double reference = std::sqrt(r.sums[kReferenceSquares]);
  const double result = std::sqrt(r.sums[kResultSquares]);
  if (reference == 0 && result == 0) return 1.0;
  if (reference == 0 || result == 0) return 0.0;
  return std::clamp(r.sums[kProduct] / reference / result, -1.0, 1.0);
}

}  // namespace

GemmErrorAccumulator::GemmErrorAccumulator(Gemm gemm) : gemm_(gemm) {}

void GemmErrorAccumulator::feed(const GemmError& error) {
  mark_ran(true);
  error_ += error;
}

std::string GemmErrorAccumulator::id() const { return fmt::format("gemm_error {}", to_string(gemm_)); }

void GemmErrorAccumulator::reset() {
  error_ = {};
  mark_ran(false);
}

std::size_t GemmErrorAccumulator::sum_words() const { return kSumWords; }

void GemmErrorAccumulator::pack_sums(std::span<double> out) const {
  out[kNumel] = static_cast<double>(error_.numel);
  out[kNonfinite] = static_cast<double>(error_.nonfinite);
  out[kErrorSquares] = error_.error_squares;
  out[kReferenceSquares] = error_.reference_squares;
  out[kResultSquares] = error_.result_squares;
  out[kProduct] = error_.product;
  out[kErrorReference] = error_.error_reference;
  out[kFromA] = error_.from_a;
  out[kFromB] = error_.from_b;
  out[kFromRest] = error_.from_rest;
  out[kFromAccumulation] = error_.from_accumulation;
}

std::vector<StatValue> GemmErrorAccumulator::values(const ReducedStat& r) const {
  if (r.sums[kNumel] == 0) return {};
  std::vector<StatValue> out;
  if (r.sums[kNonfinite] > 0) out.push_back({"nonfinite", r.sums[kNonfinite]});
  if (r.sums[kNonfinite] == r.sums[kNumel]) return out;
  const double error = r.sums[kErrorSquares];
  const double reference = r.sums[kReferenceSquares];
  const bool exact = error == 0;
  const bool has_ratio = exact || reference > 0;
  const double ratio = exact ? 0.0 : std::sqrt(error / reference);
  if (has_ratio) out.push_back({"relative_error", ratio});
  out.push_back({"cosine", cosine(r)});
  if (exact) {
    out.push_back({"sqnr", std::numeric_limits<double>::infinity(), {"exact"}});
  } else {
    out.push_back({"sqnr", 10.0 * std::log10(reference / error)});
    const auto operands = operands_of(gemm_);
    const auto share = [&](SumWord part) { return 100.0 * r.sums[part] / error; };
    out.push_back({fmt::format("error_from_{}%", to_string(operands[0])), share(kFromA)});
    out.push_back({fmt::format("error_from_{}%", to_string(operands[1])), share(kFromB)});
    out.push_back({"error_from_accumulation%", share(kFromAccumulation)});
    out.push_back({"error_from_rest%", share(kFromRest)});
  }
  out.push_back({"result_norm", std::sqrt(reference)});
  if (gemm_ == Gemm::kWgrad && reference > 0) {
    out.push_back({"gradient_noise", ratio});
    if (ratio > kNoiseLine) out.back().flags.emplace_back("noise_line");
    out.push_back({"gradient_bias", r.sums[kErrorReference] / reference});
  }
  return out;
}

}  // namespace amaxscope
