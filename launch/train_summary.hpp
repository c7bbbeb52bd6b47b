// What a training has to say at its end. A value type and its two forms.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace amaxscope::launch {

struct TrainSummary {
  struct Collectives {  ///< calls of rank 0, by kind of traffic
    std::uint64_t trainer = 0;
    std::uint64_t recipe = 0;
    std::uint64_t debug = 0;
  };
  std::vector<double> losses;  ///< nats per byte, one a step
  /// (the step before which it was, loss) of each evaluation.
  std::vector<std::pair<std::int64_t, double>> evaluations = {};
  double seconds = 0.0;
  int world = 1;
  int tp = 1;
  int pp = 1;
  std::string recipe;
  Collectives collectives;
  std::string weights_digest;     ///< over the final weights of all ranks
  std::string log_dir;            ///< empty: nothing was logged
  std::string verdict_text = {};  ///< the last lines; empty without a verdict
  std::string verdict_json = {};  ///< an object; empty without a verdict
};

/// A few lines for a person: first and last loss, traffic, where the logs are (log_dir is looked into for
/// what only some configs write), the verdict.
std::string as_text(const TrainSummary& summary);

/// One JSON object in one line. A loss that is not finite is "NaN", "Infinity" or "-Infinity";
/// log_dir and verdict are null without logs.
std::string as_json(const TrainSummary& summary);

}  // namespace amaxscope::launch
