#include "report/coverage.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace amaxscope::report {

namespace {

struct Check {
  std::string_view id;
  std::string_view what;
};

constexpr std::array kChecks = {
    Check{"I1", "replicas"},  Check{"I2", "shared scales"}, Check{"I3", "copies"},
    Check{"I4", "recompute"}, Check{"I5", "scales fit"},    Check{"I6", "histories"},
    Check{"I7", "weights"},   Check{"I8", "scalars"},       Check{"I9", "restart"},
};

bool contains(const std::vector<std::string>& list, std::string_view what) {
  return std::ranges::find(list, what) != list.end();
}

void invariants(const Evidence& evidence, const std::vector<std::string>& found, Coverage& coverage) {
  std::vector<std::string> held;
  std::vector<std::string> idle;
  for (const Check& check : kChecks) {
    const double comparisons = evidence.comparisons(std::string(check.id));
    if (comparisons > 0) {
      coverage.invariants = true;
      if (!contains(found, check.id)) held.push_back(fmt::format("{} {}", check.id, check.what));
    } else {
      idle.push_back(fmt::format("{} {}", check.id, check.what));
    }
  }
  if (!coverage.invariants) {
    coverage.not_measured.emplace_back(
        "equalities that must hold (InvariantGuard): `--preset diagnose`, or watch");
    return;
  }
  if (!held.empty()) coverage.clean.push_back(fmt::format("equalities {}", fmt::join(held, ", ")));
  if (!idle.empty()) {
    coverage.not_measured.push_back(
        fmt::format("{}: had nothing to compare in this run, or were not selected", fmt::join(idle, ", ")));
  }
}

}  // namespace

Coverage coverage_of(const Evidence& evidence, const std::vector<std::string>& found) {
  Coverage coverage;
  invariants(evidence, found, coverage);
  const auto part = [&](bool measured, std::initializer_list<std::string_view> kinds, const char* clean,
                        const char* missing) {
    if (!measured) {
      coverage.not_measured.emplace_back(missing);
    } else if (std::ranges::none_of(kinds, [&](std::string_view kind) { return contains(found, kind); })) {
      coverage.clean.emplace_back(clean);
    }
    return measured;
  };
  const bool counted = evidence.measured("nan") || evidence.measured("inf") || evidence.measured("cur_amax");
  coverage.nonfinite =
      part(counted, {"nonfinite"}, "no NaN or Inf",
           "NaN and Inf (NonFiniteGuard, or LogTensorStats: cur_amax, nan, inf): `--preset nan`");
  const bool energy = evidence.measured("saturated_energy%") || evidence.measured("flushed_energy%");
  const bool error = evidence.measured("sqnr") || evidence.measured("nvfp4_sqnr");
  const bool quantized = std::ranges::any_of(evidence.tensors(), [](const auto& entry) {
    return !entry.second.recipe.empty() && entry.second.recipe != "none";
  });
  if (quantized || evidence.tensors().empty()) {
    part(energy, {"saturation", "flush"}, "no lasting loss of energy in the casts",
         "energy lost to saturation and flush (LogFp8TensorStats: saturated_energy%, flushed_energy%)");
    part(error, {"format", "scale_worse_than_recipe"}, "codes against other scales and formats",
         "error of the codes against what-ifs (LogFp8TensorStats: sqnr, fp8_block_scaling_sqnr)");
  }
  coverage.quantization = energy || error || !quantized;
  part(evidence.measured("error_from_accumulation%"), {"accumulation", "gradient_noise"},
       "GEMM results against high precision", "error of GEMM results and whose it is (CompareGemm)");
  part(evidence.measured("lost_updates%"), {"lost_updates"}, "updates reach the stored weights",
       "lost updates (observe: . with LogTensorStats: lost_updates%)");
  part(evidence.measured("outlier_channel_1_energy%"), {"outlier_channel"}, "no channel takes over a tensor",
       "outlier channels (LogTensorStats: outlier_channels)");
  if (std::ranges::any_of(evidence.tensors(),
                          [](const auto& entry) { return entry.second.recipe == "nvfp4"; })) {
    part(evidence.measured("nvfp4_rounding_correlation"), {"rounding_repeats"},
         "stochastic rounding draws anew", "stochastic rounding (LogNvfp4TensorStats: rounding_correlation)");
  }
  coverage.loss = part(evidence.scalar("loss") != nullptr, {"divergence", "optimizer_spike"},
                       "loss and gradient norm", "the loss (DebugSession::scalar)");
  return coverage;
}

}  // namespace amaxscope::report
