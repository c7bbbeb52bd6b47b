#include "features/log_tensor_stats.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "features/deferred.hpp"
#include "features/inspecting.hpp"
#include "runtime/stats/channel_accumulator.hpp"
#include "runtime/stats/magnitude_accumulators.hpp"
#include "runtime/stats/moments_accumulator.hpp"
#include "runtime/stats/update_accumulator.hpp"

namespace amaxscope {

namespace {

/// A parameter of a statistic; the schema allows no other value, a feature that was made without one is
/// checked here.
int parameter(const Feature& feature, const StatRequest& request, std::string_view name, int fallback,
              std::int64_t most = 1 << 30) {
  const auto found = request.parameters.find(name);
  const std::int64_t value = found == request.parameters.end() ? fallback : found->second;
  AMAXSCOPE_CHECK(value >= 1 && value <= most, ErrorCode::kConfig, "{}: {} with {} {}; allowed is 1 to {}",
                  feature.label(), request.name, name, value, most);
  return static_cast<int>(value);
}

/// These two are operands in both orientations along the block dimension.
bool has_both_orientations(const InspectedTensor& tensor) {
  return tensor.kind == TensorKind::kActivation || tensor.kind == TensorKind::kWeight;
}

/// Columns of a tensor that is split along dimension 1 are other columns on each rank, rows of one that is
/// split along dimension 0 other rows; what is not split so adds up.
LineSplit line_split(const InspectedTensor& tensor, Lines lines) {
  const Layout split = lines == Lines::kColumns ? Layout::kShard1 : Layout::kShard0;
  if (tensor.layout != split || tensor.tp_group == nullptr) return {};
  return {.parts = tensor.tp_group->size(), .part = tensor.tp_group->rank()};
}

void feed_moments(StatAccumulator& into, const InspectContext& context, const Schedule& due) {
  auto& moments = static_cast<MomentsAccumulator&>(into);
  if (context.defers()) return defer_moments(context, moments, due);
  moments.feed(context.moments(moments.order()));
}

// What follows is computed on the host.

void feed_range(StatAccumulator& into, const InspectContext& context, const Schedule&) {
  auto& range = static_cast<BlockRangeAccumulator&>(into);
  if (context.x.numel() == 0) return range.feed(std::nullopt);
  range.feed(max_blockwise_dynamic_range(context.on_host().x, range.block_size(), range.dims(),
                                         range.both_orientations()));
}

void feed_histogram(StatAccumulator& into, const InspectContext& context, const Schedule&) {
  static_cast<HistogramAccumulator&>(into).feed(context.on_host().x);
}

void feed_outliers(StatAccumulator& into, const InspectContext& context, const Schedule&) {
  const InspectContext& here = context.on_host();
  static_cast<OutlierAccumulator&>(into).feed(here.moments(), here.x);
}

void feed_channels(StatAccumulator& into, const InspectContext& context, const Schedule&) {
  static_cast<ChannelAccumulator&>(into).feed(context.on_host().x);
}

void feed_update(StatAccumulator& into, const InspectContext& context, const Schedule&) {
  const InspectContext& here = context.on_host();
  static_cast<UpdateAccumulator&>(into).feed(here.x, here.weight, here.normalized_gradient);
}

bool is_observed(const InspectedTensor& tensor, std::string_view kind) {
  return !tensor.kind && tensor.name == kind;
}

}  // namespace

std::vector<LogTensorStats::Measure> LogTensorStats::measures_for(const FeatureParams& params,
                                                                  const InspectedTensor& tensor,
                                                                  Registration& registration) const {
  std::vector<Measure> measures;
  const auto declare = [&](auto feed, const std::function<std::unique_ptr<StatAccumulator>()>& make) {
    measures.push_back({&registration.declare(tensor, params.schedule, make), &params.schedule, feed});
  };
  std::vector<std::string> moments;
  std::vector<std::string> updates;
  for (const StatRequest& request : stat_requests(params)) {
    if (request.name == "max_blockwise_dynamic_range") {
      const int size = parameter(*this, request, "block_size", 32);
      const int dims = parameter(*this, request, "dims", 1, 2);
      declare(feed_range, [&] {
        return std::make_unique<BlockRangeAccumulator>(size, dims, has_both_orientations(tensor));
      });
    } else if (request.name == "histogram") {
      const int bins = parameter(*this, request, "bins", 32);
      declare(feed_histogram, [&] { return std::make_unique<HistogramAccumulator>(bins); });
    } else if (request.name == "outliers") {
      const int threshold = parameter(*this, request, "threshold", 10);
      declare(feed_outliers, [&] { return std::make_unique<OutlierAccumulator>(threshold); });
    } else if (request.name == "outlier_channels" || request.name == "outlier_rows") {
      const Lines lines = request.name == "outlier_rows" ? Lines::kRows : Lines::kColumns;
      const int top = parameter(*this, request, "top", 4);
      declare(feed_channels,
              [&] { return std::make_unique<ChannelAccumulator>(lines, top, line_split(tensor, lines)); });
    } else if (std::ranges::find(UpdateAccumulator::known_names(), request.name) ==
               UpdateAccumulator::known_names().end()) {
      moments.push_back(request.name);
    } else if (is_observed(tensor, "update")) {
      updates.push_back(request.name);
    } else if (!is_observed(tensor, "parameter")) {
      registration.skip(tensor, request.name,
                        "it is a statistic of updates, which observe_update hands in under the name of the "
                        "parameter; select them with observe:");
    }
  }
  if (!moments.empty()) {
    declare(feed_moments, [&] { return std::make_unique<MomentsAccumulator>(moments); });
  }
  if (!updates.empty()) declare(feed_update, [&] { return std::make_unique<UpdateAccumulator>(updates); });
  return measures;
}

void LogTensorStats::register_tensor(const InspectedTensor& tensor, Registration& registration) {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  if (params == nullptr) return;
  std::vector<Measure> measures = measures_for(*params, tensor, registration);
  for (const Measure& measure : measures) {
    if (measure.feed == feed_channels) keep_channels(tensor, *measure.cell);
  }
  if (!measures.empty()) measures_.insert_or_assign(&tensor, std::move(measures));
}

void LogTensorStats::keep_channels(const InspectedTensor& tensor, const StatCell& cell) {
  for (const Phase phase : {tensor.training_phase, Phase::kEval}) {
    auto& channels = static_cast<ChannelAccumulator&>(cell.of(phase));
    kept_.keep(
        // The second form of what is saved: one of the first is left alone.
        fmt::format("{} {} {} {} (2)", tensor.layer, tensor.name, phase == Phase::kEval ? "eval" : "training",
                    channels.id()),
        [&channels] { return channels.saved(); },
        [&channels](const KeptState::Words& words) { channels.restore(words); });
  }
}

Decision LogTensorStats::inspect_tensor_enabled(const InspectedTensor& tensor, std::int64_t iteration) const {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  if (params == nullptr) return Decision::never();
  if (!measures_.contains(&tensor) && stat_requests(*params).empty()) return Decision::never();
  return Decision::of(params->schedule, iteration);
}

void LogTensorStats::inspect_tensor(const InspectContext& context) {
  const auto found = measures_.find(&context.tensor);
  if (found == measures_.end()) return;
  for (const Measure& measure : found->second) {
    StatAccumulator& accumulator = measure.cell->of(context.moment.phase);
    if (!counts(context, accumulator)) continue;
    AMAXSCOPE_CHECK(!context.captured() || measure.feed == feed_moments, ErrorCode::kUsage,
                    "\"{}\" is computed on the host", accumulator.id());
    measure.feed(accumulator, context, *measure.due);
  }
}

}  // namespace amaxscope
