// Where two runs part: the first place, in the order in which a step computes, at which a statistic differs
// by more than rounding explains, what follows it, and what the runs were told differently.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/evidence.hpp"
#include "report/records.hpp"
#include "report/rounding_noise.hpp"

namespace amaxscope::report {

/// One statistic of one tensor, apart by more than its tolerance.
struct Departure {
  std::int64_t iteration = 0;
  Place place;
  std::string phase;
  std::string stat;
  double a = 0;
  double b = 0;
  double distance = 0;
  double tolerance = 0;
  /// How many times the tolerance; infinite for what is exact, or not finite on one side.
  [[nodiscard]] double excess() const noexcept { return distance / tolerance; }
};

/// Something of the run's description that is not the same.
struct HeaderDifference {
  std::string what;  ///< "option recipe", "parallel tp", "config"
  std::string a;
  std::string b;
};

/// b / a of several statistics is one number, and the number means something.
struct NamedRatio {
  double ratio = 0;
  std::string name;                ///< "2^4", "the tp size of B (2)", "sqrt(heads 4)"
  std::vector<std::string> stats;  ///< that have it
};

struct Diff {
  static constexpr int kVersion = 1;
  static constexpr double kClear = 4.0;
  Reading a;
  Reading b;
  Precision precision;
  bool measured_noise = false;   ///< from perturbed runs, not from the table
  std::uint64_t iterations = 0;  ///< in both
  std::uint64_t only_a = 0;      ///< iterations with records
  std::uint64_t only_b = 0;
  std::uint64_t values = 0;          ///< compared
  std::vector<std::string> skipped;  ///< what was not compared, and why
  std::vector<HeaderDifference> header;
  std::vector<Departure> first;  ///< of the first iteration, the first place at its beginning
  /// Earlier ones that are not where they part: one or two values of an iteration, each by less than kClear
  /// times its tolerance. What rounding does is known from a few runs only, and its tail is long.
  std::vector<Departure> barely;
  std::optional<NamedRatio> ratio;  ///< at the first place
  std::vector<Departure> follows;   ///< the first of each place, the worst statistic, in order
  std::uint64_t places_apart = 0;   ///< of `places`
  std::uint64_t places = 0;         ///< tensor and phase that both have
  std::vector<Departure> scalars;   ///< the first of each: loss, grad_norm
  std::map<std::pair<std::string, std::string>, double> noise;  ///< measured, by tensor and statistic

  [[nodiscard]] bool nothing_compared() const noexcept { return values == 0; }
  [[nodiscard]] bool differs() const noexcept { return !first.empty() || !scalars.empty(); }
};

struct DiffOptions {
  /// Runs as A, perturbed by errors of the size of rounding; with any, tolerances come from how far they are
  /// from A.
  std::vector<std::filesystem::path> perturbed;
  std::optional<std::int64_t> until;  ///< the last iteration that counts
};

/// Throws Error(kInput) when one is no directory.
Diff compare_runs(const std::filesystem::path& a, const std::filesystem::path& b,
                  const DiffOptions& options = {});

}  // namespace amaxscope::report
