#include <algorithm>
#include <array>
#include <string_view>

#include "report/rounding_noise.hpp"

namespace amaxscope::report {

namespace {

/// The last iteration that a number is for; the last number also holds for what comes after.
constexpr std::array<std::int64_t, 2> kUpTo = {3, 10};
using Knots = std::array<double, kUpTo.size()>;

struct Row {
  std::string_view kind;
  std::string_view stat;
  /// f32: high precision, with a recipe, with stochastic rounding; the same of bf16.
  std::array<Knots, 6> noise;
};

// What bench/rounding/table prints.
// clang-format off
constexpr Row kRows[] = {
#include "report/rounding_table.inc"
};
// clang-format on

}  // namespace

std::string_view kind_of(std::string_view tensor) noexcept {
  if (tensor.empty()) return "run";
  if (tensor == "gradient" || tensor == "dgrad" || tensor == "wgrad") return "backward";
  if (tensor == "parameter" || tensor == "update") return "optimizer";
  return "forward";
}

double tabulated_noise(Precision precision, const std::string& tensor, const std::string& base,
                       Measure measure, std::int64_t iteration) {
  const std::size_t column = (precision.bf16 ? 3U : 0U) + (precision.stochastic  ? 2U
                                                           : precision.quantized ? 1U
                                                                                 : 0U);
  std::size_t knot = 0;
  while (knot + 1 < kUpTo.size() && iteration > kUpTo[knot]) ++knot;
  const std::string_view kind = kind_of(tensor);
  double largest = 0;
  for (const Row& row : kRows) {
    if (row.kind != kind) continue;
    if (row.stat == base) return row.noise[column][knot];
    if (measure_of(row.stat) == measure) largest = std::max(largest, row.noise[column][knot]);
  }
  return largest;
}

}  // namespace amaxscope::report
