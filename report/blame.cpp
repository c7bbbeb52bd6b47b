#include "report/blame.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.hpp"
#include "report/precision_config.hpp"
#include "report/sensitivity.hpp"

namespace amaxscope::report {

namespace {

constexpr std::array kGemms = {"fprop", "dgrad", "wgrad"};

/// Enough of the way from the configured score to that in high precision.
constexpr double kHalfway = 0.5;

std::string described(const std::vector<Suspect>& suspects) {
  if (suspects.empty()) return "as configured";
  std::vector<std::string> parts;
  for (const Suspect& suspect : suspects) {
    parts.push_back(suspect.gemms.empty()
                        ? suspect.layer
                        : fmt::format("{} of {}", fmt::join(suspect.gemms, ", "), suspect.layer));
  }
  return fmt::format("{} in high precision", fmt::join(parts, "; "));
}

struct BudgetSpent {};

class Search {
 public:
  Search(const std::vector<std::string>& layers, const RunScore& run, const BlameOptions& options)
      : layers_(layers), run_(run), options_(options) {}

  Blame result() {
    measure_damage();
    if (!is_damaged()) return std::move(blame_);
    blame_.outcome = BlameOutcome::kNotMinimal;
    try {
      find_enough();
      leave_out();
      keep_one_gemm();
      blame_.outcome = BlameOutcome::kFound;
      confirm();
    } catch (const BudgetSpent&) {
    }
    blame_.yaml = in_high_precision(blame_.suspects);
    return std::move(blame_);
  }

 private:
  double score(const std::string& what, const std::string& yaml, int seed) {
    if (static_cast<int>(blame_.runs.size()) >= options_.budget) throw BudgetSpent{};
    const double value = run_(yaml, seed);
    const double known = std::isfinite(value) ? value : std::numeric_limits<double>::infinity();
    blame_.runs.push_back({what, seed, known});
    return known;
  }

  void measure_damage() {
    std::vector<double> differences;
    for (int seed = 0; seed < options_.seeds; ++seed) {
      configured_.push_back(score("as configured", "", seed));
      high_.push_back(score("everything in high precision", everything_in_high_precision(), seed));
      differences.push_back(configured_.back() - high_.back());
    }
    const auto mean = [](const std::vector<double>& values) {
      double sum = 0;
      for (const double value : values) sum += value;
      return sum / static_cast<double>(values.size());
    };
    blame_.as_configured = mean(configured_);
    blame_.high_precision = mean(high_);
    const double middle = mean(differences);
    if (!std::isfinite(middle)) return;
    double squares = 0;
    for (const double difference : differences) squares += (difference - middle) * (difference - middle);
    const auto count = static_cast<double>(differences.size());
    blame_.noise = std::sqrt(squares / (count - 1) / count);
  }

  [[nodiscard]] bool is_damaged() const {
    if (!std::isfinite(blame_.high_precision)) return false;  // nothing that precision could mend
    if (!std::isfinite(configured_.front())) return true;
    const double damage = blame_.as_configured - blame_.high_precision;
    return damage > 3.0 * blame_.noise && configured_.front() > high_.front();
  }

  bool is_enough(const std::vector<Suspect>& suspects) {
    const std::string yaml = in_high_precision(suspects);
    const auto known = tried_.find(yaml);
    if (known != tried_.end()) return known->second;
    const double reached = score(described(suspects), yaml, 0);
    const double worst = configured_.front();
    const bool enough =
        std::isfinite(worst) ? reached <= worst - kHalfway * (worst - high_.front()) : std::isfinite(reached);
    if (enough) blame_.suspects = suspects;
    tried_.emplace(yaml, enough);
    return enough;
  }

  void find_enough() {
    std::vector<Suspect> all;
    for (const std::string& layer : layers_) all.push_back({layer, {}});
    blame_.suspects = all;  // until fewer are known to be enough
    for (std::size_t count = 1; count < all.size(); count *= 2) {
      if (is_enough({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)})) return;
    }
  }

  /// Parts that are not needed, halves first.
  void leave_out() {
    std::size_t part = std::max<std::size_t>(blame_.suspects.size() / 2, 1);
    while (blame_.suspects.size() > 1) {
      bool less = false;
      for (std::size_t at = 0; at < blame_.suspects.size();) {
        std::vector<Suspect> rest = blame_.suspects;
        const std::size_t end = std::min(at + part, rest.size());
        rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(at),
                   rest.begin() + static_cast<std::ptrdiff_t>(end));
        if (!rest.empty() && is_enough(rest)) {
          less = true;
        } else {
          at = end;
        }
      }
      if (part == 1 && !less) return;
      part = std::max<std::size_t>(part / 2, 1);
    }
  }

  void keep_one_gemm() {
    for (const char* gemm : kGemms) {
      std::vector<Suspect> narrowed = blame_.suspects;
      for (Suspect& suspect : narrowed) suspect.gemms = {gemm};
      if (is_enough(narrowed)) return;
    }
  }

  /// What was found under one seed, under the others.
  void confirm() {
    const std::string yaml = in_high_precision(blame_.suspects);
    double sum = 0;
    for (int seed = 0; seed < options_.seeds; ++seed) {
      const auto same = [&](const BlameRun& run) {
        return run.seed == seed && run.what == described(blame_.suspects);
      };
      const auto known = std::ranges::find_if(blame_.runs, same);
      sum += known != blame_.runs.end() ? known->score : score(described(blame_.suspects), yaml, seed);
    }
    blame_.with_suspects = sum / options_.seeds;
  }

  const std::vector<std::string>& layers_;
  const RunScore& run_;
  const BlameOptions& options_;
  std::vector<double> configured_, high_;  ///< by seed
  std::map<std::string, bool> tried_;
  Blame blame_;
};

std::string_view to_string(BlameOutcome outcome) {
  if (outcome == BlameOutcome::kFound) return "found";
  return outcome == BlameOutcome::kNotMinimal ? "not minimal" : "no damage";
}

}  // namespace

std::string in_high_precision(const std::vector<Suspect>& suspects) {
  // Layers with the same GEMMs share a section.
  std::map<std::vector<std::string>, std::vector<std::string>> layers_by_gemms;
  for (const Suspect& suspect : suspects) layers_by_gemms[suspect.gemms].push_back(suspect.layer);
  std::string yaml;
  for (const auto& [gemms, layers] : layers_by_gemms) {
    const std::string what = gemms.empty() ? "layers" : fmt::format("{}", fmt::join(gemms, "_"));
    yaml += config_section(what + "_in_high_precision", these_layers(layers),
                           gemms.empty() ? std::string(kNoGemmQuantized) : gemms_not_quantized(gemms));
  }
  return yaml;
}

Blame blame(const std::vector<std::string>& layers, const RunScore& run, const BlameOptions& options) {
  AMAXSCOPE_CHECK(!layers.empty(), ErrorCode::kUsage, "there is no layer to blame");
  AMAXSCOPE_CHECK(options.seeds >= 2, ErrorCode::kUsage,
                  "{} seed: the noise of seeds takes at least 2 to be seen", options.seeds);
  AMAXSCOPE_CHECK(options.budget >= 2 * options.seeds, ErrorCode::kUsage,
                  "a budget of {} runs: {} seeds take {} before the search begins", options.budget,
                  options.seeds, 2 * options.seeds);
  return Search(layers, run, options).result();
}

std::string as_text(const Blame& blame) {
  std::string text;
  for (const BlameRun& run : blame.runs) {
    text += fmt::format("{:>12.6g}  seed {}  {}\n", run.score, run.seed, run.what);
  }
  text += fmt::format(
      "\n{} runs; as configured {:.6g}, in high precision {:.6g}, standard error of the difference {:.2g}\n",
      blame.runs.size(), blame.as_configured, blame.high_precision, blame.noise);
  if (blame.outcome == BlameOutcome::kNoDamage) {
    return text +
           (std::isfinite(blame.high_precision)
                ? "no damage: high precision is not better by more than seeds differ; longer runs or more "
                  "seeds can tell less\nfrom nothing\n"
                : "not precision: the run in high precision is not finite either\n");
  }
  text += fmt::format("{}: {}\n",
                      blame.outcome == BlameOutcome::kFound
                          ? "to blame (with less in high precision the damage stays)"
                          : "enough, perhaps more than enough (the budget ended the search)",
                      described(blame.suspects));
  if (blame.outcome == BlameOutcome::kFound && blame.with_suspects != 0) {
    text += fmt::format("with that in high precision: {:.6g}, the mean over seeds\n", blame.with_suspects);
  }
  return text + "\nto keep it so (--config):\n\n" + blame.yaml;
}

std::string as_json(const Blame& blame, int indent) {
  nlohmann::ordered_json json = {{"version", 1},
                                 {"outcome", to_string(blame.outcome)},
                                 {"as_configured", blame.as_configured},
                                 {"high_precision", blame.high_precision},
                                 {"noise", blame.noise},
                                 {"with_suspects", blame.with_suspects}};
  nlohmann::ordered_json& suspects = json["suspects"] = nlohmann::ordered_json::array();
  for (const Suspect& suspect : blame.suspects) {
    suspects.push_back({{"layer", suspect.layer}, {"gemms", suspect.gemms}});
  }
  nlohmann::ordered_json& runs = json["runs"] = nlohmann::ordered_json::array();
  for (const BlameRun& run : blame.runs) {
    runs.push_back({{"what", run.what}, {"seed", run.seed}, {"score", run.score}});
  }
  json["yaml"] = blame.yaml;
  return json.dump(indent, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace amaxscope::report
