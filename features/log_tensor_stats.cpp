#include "features/log_tensor_stats.hpp"

#include "core/error.hpp"
#include "features/inspecting.hpp"
#include "runtime/stats/moments_accumulator.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kBlockRange = "max_blockwise_dynamic_range";

struct BlockShape {
  int size = 32;
  int dims = 1;
};

/// The schema allows no other; a feature that was made without one is checked here.
BlockShape block_shape(const Feature& feature, const StatRequest& request) {
  const auto parameter = [&](std::string_view name, std::int64_t fallback) {
    const auto found = request.parameters.find(name);
    return found == request.parameters.end() ? fallback : found->second;
  };
  constexpr std::int64_t kLargest = 1 << 30;
  const std::int64_t size = parameter("block_size", 32);
  const std::int64_t dims = parameter("dims", 1);
  AMAXSCOPE_CHECK(size >= 1 && size <= kLargest && (dims == 1 || dims == 2), ErrorCode::kConfig,
                  "{}: {} with block_size {}, dims {}; allowed are block_size 1 to {}, dims 1 or 2",
                  feature.label(), kBlockRange, size, dims, kLargest);
  return {static_cast<int>(size), static_cast<int>(dims)};
}

/// These two are operands in both orientations along the block dimension.
bool has_both_orientations(const InspectedTensor& tensor) {
  return tensor.kind == TensorKind::kActivation || tensor.kind == TensorKind::kWeight;
}

}  // namespace

void LogTensorStats::register_tensor(const InspectedTensor& tensor, Registration& registration) {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  if (params == nullptr) return;
  Cells cells;
  std::vector<std::string> names;
  for (const StatRequest& request : stat_requests(*params)) {
    if (request.name != kBlockRange) {
      names.push_back(request.name);
      continue;
    }
    const BlockShape block = block_shape(*this, request);
    cells.ranges.push_back(&registration.declare(tensor, params->schedule, [&] {
      return std::make_unique<BlockRangeAccumulator>(block.size, block.dims, has_both_orientations(tensor));
    }));
  }
  if (!names.empty()) {
    cells.moments = &registration.declare(tensor, params->schedule,
                                          [&] { return std::make_unique<MomentsAccumulator>(names); });
  }
  if (cells.moments != nullptr || !cells.ranges.empty()) cells_.insert_or_assign(&tensor, std::move(cells));
}

Decision LogTensorStats::inspect_tensor_enabled(const InspectedTensor& tensor, std::int64_t iteration) const {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  if (params == nullptr) return Decision::never();
  if (!cells_.contains(&tensor) && stat_requests(*params).empty()) return Decision::never();
  return Decision::of(params->schedule, iteration);
}

void LogTensorStats::inspect_tensor(const InspectContext& context) {
  const auto found = cells_.find(&context.tensor);
  if (found == cells_.end()) return;
  const Phase phase = context.moment.phase;
  if (const StatCell* cell = found->second.moments) {
    auto& moments = static_cast<MomentsAccumulator&>(cell->of(phase));
    if (counts(context, moments)) moments.feed(context.moments(moments.order()));
  }
  for (const StatCell* cell : found->second.ranges) {
    auto& range = static_cast<BlockRangeAccumulator&>(cell->of(phase));
    if (!counts(context, range)) continue;
    if (context.x.numel() == 0) {
      range.feed(std::nullopt);
    } else {
      range.feed(max_blockwise_dynamic_range(context.x, range.block_size(), range.dims(),
                                             range.both_orientations()));
    }
  }
}

}  // namespace amaxscope
