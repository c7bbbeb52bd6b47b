// How far rounding alone moves each statistic: what a difference between two runs must exceed to mean
// anything. From runs with errors of that size in their inputs (`amaxscope train --perturb`), or from a table
// made of such runs beforehand. docs/report.md has the derivation.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/distance.hpp"
#include "report/records.hpp"

namespace amaxscope::report {

/// Recipes under which rounding moves the statistics alike.
enum class Arithmetic : std::uint8_t {
  kHighPrecision,  ///< none
  kTensorScales,   ///< delayed, current
  kBlockScales,    ///< mxfp8, block
  kNvfp4,          ///< whose gradients are rounded at random: other draws where ranks are others
};
inline constexpr std::size_t kArithmetics = 4;

/// What decides how coarse the arithmetic of two runs is.
struct Precision {
  bool bf16 = false;  ///< compute dtype; else f32
  /// By Arithmetic: what either run computes in. None: high precision.
  std::array<bool, kArithmetics> used = {};
  friend bool operator==(const Precision&, const Precision&) = default;
};
/// Of both runs together; a run that does not say may compute in anything.
Precision precision_of(const std::vector<RunInfo>& a, const std::vector<RunInfo>& b);
/// "f32, scales for each tensor"
std::string to_string(const Precision& precision);

class RoundingNoise {
 public:
  /// How much larger than the noise seen a difference must be. The noise comes from one place in each layer
  /// of one run; two runs that split their sums in other ways round in every GEMM.
  static constexpr double kMargin = 8;

  /// Without measured noise: that of the table for this precision.
  explicit RoundingNoise(Precision precision) : precision_(precision) {}

  /// A step of a run and of the same run perturbed, whose distances follow. Iterations only grow; a second
  /// perturbed run begins anew.
  void begin_step(std::int64_t iteration);
  void measure(const std::string& tensor, const std::string& base, double distance);
  /// Whether what was measured counts, and the table does not.
  [[nodiscard]] bool measured() const noexcept { return !largest_.empty(); }
  /// The distance up to which a statistic of the tensor may differ at this iteration because of rounding.
  [[nodiscard]] double tolerance(const std::string& tensor, const std::string& base, Measure measure,
                                 std::int64_t iteration) const;
  /// The largest distance of each statistic, without the margin.
  [[nodiscard]] std::map<std::pair<std::string, std::string>, double> largest() const;

 private:
  /// Until so many steps were seen all of them count for the first: whether a rounding carries a code over an
  /// edge is a rare event, and one step of one run may have none.
  static constexpr std::uint64_t kSettledAfter = 4;

  Precision precision_;
  std::int64_t iteration_ = 0;
  std::uint64_t steps_ = 0;              ///< of the run at hand
  std::optional<std::int64_t> settled_;  ///< iteration of the last of the first steps
  /// By tensor and statistic: the largest distance up to an iteration.
  std::map<std::pair<std::string, std::string>, std::map<std::int64_t, double>> largest_;
};

/// The table's: the largest distance seen up to this iteration in any arithmetic that is used, over all
/// layers. A tensor that is not in it gets the largest of those of its kind, a statistic that is not in it
/// the largest of those of the kind that are measured alike.
double tabulated_noise(Precision precision, const std::string& tensor, const std::string& base,
                       Measure measure, std::int64_t iteration);
/// "forward", "backward", "optimizer", "run" (scalars): tensors that rounding moves alike.
std::string_view kind_of(std::string_view tensor) noexcept;

}  // namespace amaxscope::report
