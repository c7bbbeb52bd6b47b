// I2: ranks whose codes are gathered under one scale, or that hold one tensor, have one scale.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_map>

#include "features/invariants/check.hpp"
#include "kernels/content_hash.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"
#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/stats/equality_accumulator.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kWordsOfFeed = 3;  // scale, own amax, format
constexpr std::size_t kFeedsKept = 8;

/// The bits of the number that one tensor has and its blocks or codes share: the scale of per-tensor FP8, the
/// amax of NVFP4. None for formats whose blocks stand for themselves.
std::optional<std::uint32_t> tensor_scale(const QuantizedTensor& tensor, Direction direction) {
  if (const auto* codes = dynamic_cast<const Float8Tensor*>(&tensor)) {
    return std::bit_cast<std::uint32_t>(codes->scale());
  }
  const auto* blocks = dynamic_cast<const BlockScaledTensor*>(&tensor);
  if (blocks == nullptr || !blocks->usage().has(direction)) return std::nullopt;
  const BlockScaledView view = blocks->blocks(direction);
  if (!view.tensor_scale) return std::nullopt;
  return std::bit_cast<std::uint32_t>(view.tensor_scale->amax);
}

/// Under current scaling every rank's scale should be that of the largest amax: who has another one?
std::vector<int> with_a_foreign_scale(std::span<const RankEvidence> evidence, std::size_t feed) {
  std::uint32_t amax = 0;
  for (const RankEvidence& one : evidence) amax = std::max(amax, one.words[feed + 1]);
  std::vector<int> ranks;
  for (const RankEvidence& one : evidence) {
    const auto format = static_cast<DType>(one.words[feed + 2]);
    const float expected = scale_from_amax(amax, {.max_value = fp8_max(format)}).scale;
    if (std::bit_cast<std::uint32_t>(expected) != one.words[feed]) ranks.push_back(one.rank);
  }
  return ranks;
}

/// As many ranks have one number as have the other. A scale from the largest amax of the group is the smaller
/// one, an amax (NVFP4) the larger: the others have not seen it.
std::vector<int> without_the_largest_amax(RecipeKind recipe, const std::vector<std::vector<int>>& sets,
                                          std::span<const RankEvidence> evidence, std::size_t feed) {
  if (sets.size() != 2 || sets[0].size() != sets[1].size()) return {};
  const auto [least, most] = std::ranges::minmax_element(
      evidence, {}, [&](const RankEvidence& one) { return std::bit_cast<float>(one.words[feed]); });
  const std::uint32_t right = (recipe == RecipeKind::kNvfp4 ? most : least)->words[feed];
  std::vector<int> ranks;
  for (const RankEvidence& one : evidence) {
    if (one.words[feed] != right) ranks.push_back(one.rank);
  }
  return ranks;
}

std::optional<Finding> explain(std::string_view relation, RecipeKind recipe,
                               std::span<const RankEvidence> evidence) {
  const std::vector<std::vector<int>> sets = rank_sets(evidence);
  std::size_t feed = 0;
  const auto differs = [&](std::size_t at) {
    return std::ranges::any_of(
        evidence, [&](const RankEvidence& one) { return one.words[at] != evidence.front().words[at]; });
  };
  while (feed + 2 * kWordsOfFeed <= evidence.front().words.size() && !differs(feed)) feed += kWordsOfFeed;

  Finding finding;
  finding.check = "I2";
  finding.microbatch = static_cast<int>(feed / kWordsOfFeed);
  finding.ranks = odd_ones_out(sets);
  std::string cause;
  if (recipe == RecipeKind::kDelayed || recipe == RecipeKind::kNvfp4) {
    const std::vector<int> foreign = without_the_largest_amax(recipe, sets, evidence, feed);
    if (!foreign.empty()) finding.ranks = foreign;
  }
  if (recipe == RecipeKind::kCurrent) {
    const std::vector<int> foreign = with_a_foreign_scale(evidence, feed);
    if (!foreign.empty() && foreign.size() < evidence.size()) {
      finding.ranks = foreign;
      cause = fmt::format("; {} did not take the largest amax of the group", ranks_text(foreign));
    }
  }
  const std::vector<std::string> scales = values_of_sets(sets, evidence, [&](const RankEvidence& one) {
    return fmt::format("{:.9g}", std::bit_cast<float>(one.words[feed]));
  });
  finding.details["scales"] = fmt::format("{}", fmt::join(scales, "; "));
  finding.details["sets"] = sets_text(sets);
  finding.what =
      fmt::format("scales differ over the ranks {}: {}{}", relation, fmt::join(scales, ", "), cause);
  return finding;
}

class ScaleCheck final : public InvariantCheck {
 public:
  ScaleCheck() : InvariantCheck("I2") {}

  void register_tensor(const InspectedTensor& tensor, const Schedule& schedule,
                       Registration& registration) override {
    if (!tensor.kind || is_result(*tensor.kind) || tensor.description == nullptr) return;
    const bool gathered = codes_are_gathered(*tensor.description, *tensor.kind);
    const bool weight = tensor.kind == TensorKind::kWeight;
    if (!gathered && !weight && tensor.layout != Layout::kReplicated) return;
    const std::string_view relation =
        gathered ? "whose codes are gathered and decoded under one scale" : "that hold replicas of it";
    const RecipeKind recipe = gathered ? tensor.recipe : RecipeKind::kNone;
    cells_[&tensor] = &registration.declare_over(
        weight ? ReduceOver::kReplicas : ReduceOver::kTensorParallel, tensor, schedule, [&] {
          return std::make_unique<EqualityAccumulator>(
              "I2", kWordsOfFeed * kFeedsKept, [relation, recipe](std::span<const RankEvidence> evidence) {
                return explain(relation, recipe, evidence);
              });
        });
  }

  void inspect(const InspectContext& context) override {
    const auto found = cells_.find(&context.tensor);
    const Phase phase = context.moment.phase;
    if (found == cells_.end() || phase == Phase::kRecompute || phase == Phase::kEval) return;
    auto& accumulator = static_cast<EqualityAccumulator&>(*found->second->train);
    if (context.tensor.kind == TensorKind::kWeight && accumulator.ran()) return;
    for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
      const QuantizedTensor* const member = context.operand(direction);
      if (member == nullptr) continue;
      // Codes under one scale have it in both directions; NVFP4 has an amax for each.
      const bool has_been_seen = direction == Direction::kColumnwise && member == context.rowwise &&
                                 dynamic_cast<const Float8Tensor*>(member) != nullptr;
      if (has_been_seen) continue;
      const std::optional<std::uint32_t> scale = tensor_scale(*member, direction);
      if (!scale) continue;
      const std::uint32_t amax =
          context.tensor.recipe == RecipeKind::kCurrent && context.has_original ? context.amax() : 0U;
      const std::array<std::uint32_t, kWordsOfFeed> words = {
          *scale, amax, static_cast<std::uint32_t>(member->format(direction))};
      accumulator.feed(combine_hashes(*scale, words[2]), words);
      count();
    }
  }

 private:
  std::unordered_map<const InspectedTensor*, StatCell*> cells_;
};

}  // namespace

std::unique_ptr<InvariantCheck> make_scale_check() { return std::make_unique<ScaleCheck>(); }

}  // namespace amaxscope
