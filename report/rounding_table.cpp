#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string_view>

#include "report/rounding_noise.hpp"

namespace amaxscope::report {

namespace {

/// The last iteration that a number is for; the last number also holds for what comes after.
constexpr std::array<std::int64_t, 2> kUpTo = {3, 10};
using Knots = std::array<double, kUpTo.size()>;

struct Row {
  std::string_view tensor;  ///< empty: scalars of the run
  std::string_view stat;
  std::array<Knots, 2 * kArithmetics> noise;  ///< of f32, by Arithmetic; the same of bf16
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
  if (std::ranges::none_of(precision.used, std::identity())) precision.used[0] = true;
  std::size_t knot = 0;
  while (knot + 1 < kUpTo.size() && iteration > kUpTo[knot]) ++knot;
  const auto noise_of = [&](const Row& row) {
    double largest = 0;
    for (std::size_t i = 0; i < kArithmetics; ++i) {
      if (precision.used[i])
        largest = std::max(largest, row.noise[i + (precision.bf16 ? kArithmetics : 0)][knot]);
    }
    return largest;
  };
  const std::string_view kind = kind_of(tensor);
  std::optional<double> of_stat;
  double alike = 0;
  for (const Row& row : kRows) {
    if (row.tensor == tensor && row.stat == base) return noise_of(row);
    if (kind_of(row.tensor) != kind) continue;
    if (row.stat == base) of_stat = std::max(of_stat.value_or(0), noise_of(row));
    if (measure_of(row.stat) == measure) alike = std::max(alike, noise_of(row));
  }
  return of_stat.value_or(alike);
}

}  // namespace amaxscope::report
