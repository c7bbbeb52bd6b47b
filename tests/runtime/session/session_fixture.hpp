// Sessions on threads as ranks, with everything they report kept in memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/loopback_communicator.hpp"
#include "features/builtin.hpp"
#include "runtime/session.hpp"
#include "runtime/sinks/file_sinks.hpp"

namespace amaxscope::testing {

/// Everything the sinks of all ranks got.
struct Collected {
  std::mutex mutex;
  std::map<int, std::vector<StatRecord>> records;  ///< by world rank
  std::map<int, std::map<std::int64_t, Scalars>> scalars;
  std::map<int, std::vector<Finding>> findings;

  [[nodiscard]] std::vector<StatRecord> of(int rank, std::string_view layer, std::string_view tensor) const {
    std::vector<StatRecord> found;
    const auto all = records.find(rank);
    if (all == records.end()) return found;
    for (const StatRecord& record : all->second) {
      if (record.layer == layer && record.tensor == tensor) found.push_back(record);
    }
    return found;
  }
};

inline const StatValue* find_stat(const StatRecord& record, std::string_view name) {
  for (const StatValue& value : record.stats) {
    if (value.name == name) return &value;
  }
  return nullptr;
}

inline double stat(const StatRecord& record, std::string_view name) {
  const StatValue* value = find_stat(record, name);
  return value == nullptr ? std::numeric_limits<double>::quiet_NaN() : value->value;
}

/// What a test body gets on each rank.
struct SessionRank {
  Communicator& world;
  ProcessGroups& groups;
  DebugSession& session;

  [[nodiscard]] std::uint64_t debug_calls() const { return world.counters().calls(Traffic::kDebug); }
  [[nodiscard]] LayerDescription layer(std::string name, ParallelMode mode = ParallelMode::kColumn) const {
    LayerDescription description;
    description.name = std::move(name);
    description.parallel = mode;
    description.tp_group = &groups.tp();
    return description;
  }
};

struct SessionRun {
  int ranks = 1;
  ParallelSizes sizes = {};
  std::string yaml = {};
  std::function<void(SessionOptions&, int rank)> adjust = {};
};

/// Runs body on each rank with a session of its own and returns what was reported.
inline std::shared_ptr<Collected> run_sessions(const SessionRun& run,
                                               const std::function<void(SessionRank&)>& body) {
  auto collected = std::make_shared<Collected>();
  const FeatureRegistry registry = builtin_features();
  run_loopback_ranks(run.ranks, [&](Communicator& world) {
    ProcessGroups groups(world, run.sizes);
    SessionOptions options;
    if (!run.yaml.empty()) options.config_text = run.yaml;
    options.deadline = std::chrono::seconds(20);
    const int rank = world.rank();
    options.extra_sinks.push_back(make_callback_sink(
        [collected, rank](const StatRecord& record) {
          const std::scoped_lock lock(collected->mutex);
          collected->records[rank].push_back(record);
        },
        [collected, rank](std::int64_t iteration, const Scalars& values) {
          const std::scoped_lock lock(collected->mutex);
          collected->scalars[rank][iteration] = values;
        },
        [collected, rank](const Finding& finding) {
          const std::scoped_lock lock(collected->mutex);
          collected->findings[rank].push_back(finding);
        }));
    if (run.adjust) run.adjust(options, rank);
    DebugSession session(registry, SessionGroups::from(groups), std::move(options));
    SessionRank self{world, groups, session};
    body(self);
    session.close();
  });
  return collected;
}

/// Feeds one tensor of a layer through its debug quantizer, when it has anything to do.
inline void feed(const LayerHandle& handle, TensorKind tensor, const TensorView& view,
                 const TensorMoment& moment = {}) {
  if (!handle.active()) return;
  if (DebugQuantizer* quantizer = handle.quantizer(tensor)) {
    static_cast<void>(quantizer->quantize(view, {true, true}, moment));
  }
}

}  // namespace amaxscope::testing
