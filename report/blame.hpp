// The smallest set of layers and GEMMs that must be in high precision for a training to come out as if
// everything were: found by running it again under other debug configs. For damage that one step does not
// show (`sense` is the cheap question, asked first). Used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace amaxscope::report {

struct BlameOptions {
  int seeds = 2;    ///< of the pairs that tell damage from the noise of seeds; at least 2
  int budget = 30;  ///< runs at most
};

/// A layer under suspicion, and which of its GEMMs; none: all of them.
struct Suspect {
  std::string layer;
  std::vector<std::string> gemms;  ///< fprop, dgrad, wgrad
  friend bool operator==(const Suspect&, const Suspect&) = default;
};

/// YAML that keeps these in high precision and everything else as it is. Empty for none.
std::string in_high_precision(const std::vector<Suspect>& suspects);

/// Trains under this config and seed and returns what is to be small (a loss). Anything not finite counts as
/// infinitely bad.
using RunScore = std::function<double(const std::string& yaml, int seed)>;

struct BlameRun {
  std::string what;  ///< "as configured", "decoder.layers.1.mlp.linear_fc1 in high precision"
  int seed = 0;
  double score = 0;
};

enum class BlameOutcome {
  kFound,       ///< `suspects`, of which none can be left out
  kNotMinimal,  ///< the budget ended the search; `suspects` are enough, perhaps more than enough
  kNoDamage,    ///< high precision is not better by more than seeds differ: not precision, or too short a run
};

struct Blame {
  BlameOutcome outcome = BlameOutcome::kNoDamage;
  double as_configured = 0;   ///< mean over seeds
  double high_precision = 0;  ///< the same
  double noise = 0;           ///< standard error of their difference over seeds
  std::vector<Suspect> suspects;
  double with_suspects = 0;  ///< mean over seeds, with them in high precision
  std::vector<BlameRun> runs;
  std::string yaml;  ///< that keeps the suspects in high precision
};

/// layers: of all, the most suspicious first. Pairs of seeds first; then the shortest list of first suspects
/// that is enough (1, 2, 4, ...), cut down by leaving parts of it out; then one GEMM of them instead of all
/// three. A set is enough when its run gets at least halfway from the configured score to that in high
/// precision, under the same seed. Throws Error(kUsage) for no layers, fewer than two seeds, or a budget
/// below two runs a seed.
Blame blame(const std::vector<std::string>& layers, const RunScore& run, const BlameOptions& options);

std::string as_text(const Blame& blame);
std::string as_json(const Blame& blame, int indent = 2);

}  // namespace amaxscope::report
