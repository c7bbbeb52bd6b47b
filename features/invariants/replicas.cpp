// I1: what several ranks hold copies of is the same on all of them.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <unordered_map>

#include "features/invariants/check.hpp"
#include "features/invariants/sampling.hpp"
#include "kernels/content_hash.hpp"
#include "runtime/stats/equality_accumulator.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kParts = ContentParts::kParts;  // where in the tensor a difference is
constexpr std::size_t kSamples = 32;                  // how large it is
constexpr std::size_t kWordsOfFeed = 1 + kParts + kSamples;
/// Micro-batches of a step of which the evidence is kept.
constexpr std::size_t kFeedsKept = 4;
/// What the same computation on equal inputs may differ by on several ranks.
constexpr double kComputedTolerance = 1e-3;

std::uint32_t folded(std::uint64_t hash) { return static_cast<std::uint32_t>(hash ^ (hash >> 32)); }

double relative_difference(float a, float b) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return a == b ? 0 : HUGE_VAL;
  const double larger = std::max(std::abs(double{a}), std::abs(double{b}));
  return larger == 0 ? 0 : std::abs(double{a} - double{b}) / larger;
}

struct Difference {
  std::size_t first_part = kParts;  ///< kParts: none in what was kept
  std::int64_t numel = 0;
  double relative = 0;  ///< of one element
  double norm = 0;      ///< |a - b| / |a| over the samples: large elements count, not those near 0
};

Difference difference_of(std::span<const RankEvidence> evidence) {
  Difference result;
  const std::span<const std::uint32_t> base = evidence.front().words;
  for (const RankEvidence& one : evidence) {
    double apart = 0;
    double size = 0;
    for (std::size_t feed = 0; feed + kWordsOfFeed <= base.size(); feed += kWordsOfFeed) {
      const auto own = one.words.subspan(feed, kWordsOfFeed);
      const auto first = base.subspan(feed, kWordsOfFeed);
      result.numel = std::max<std::int64_t>(result.numel, first[0]);
      for (std::size_t part = 0; part < kParts; ++part) {
        if (own[1 + part] != first[1 + part]) result.first_part = std::min(result.first_part, part);
      }
      for (std::size_t i = 1 + kParts; i < kWordsOfFeed; ++i) {
        const auto a = std::bit_cast<float>(own[i]);
        const auto b = std::bit_cast<float>(first[i]);
        result.relative = std::max(result.relative, relative_difference(a, b));
        if (!std::isfinite(a) || !std::isfinite(b)) continue;
        apart += std::pow(static_cast<double>(a) - static_cast<double>(b), 2);
        size += std::pow(static_cast<double>(b), 2);
      }
    }
    if (size > 0) result.norm = std::max(result.norm, std::sqrt(apart / size));
  }
  return result;
}

std::optional<Finding> explain(bool exact, std::span<const RankEvidence> evidence) {
  const Difference difference = difference_of(evidence);
  if (!exact && difference.relative <= kComputedTolerance) return std::nullopt;
  const std::vector<std::vector<int>> sets = rank_sets(evidence);
  Finding finding;
  finding.check = "I1";
  finding.ranks = odd_ones_out(sets);
  finding.details["sets"] = sets_text(sets);
  std::string where;
  if (difference.first_part < kParts) {
    const auto parts = static_cast<std::int64_t>(kParts);
    const std::int64_t begin = difference.numel * static_cast<std::int64_t>(difference.first_part) / parts;
    const std::int64_t end = difference.numel * static_cast<std::int64_t>(difference.first_part + 1) / parts;
    where = fmt::format("; first difference in elements {} to {} of {}", begin, std::max(begin, end - 1),
                        difference.numel);
    finding.details["first_elements"] = fmt::format("{}-{}", begin, std::max(begin, end - 1));
  }
  const std::string size = difference.relative > 0
                               ? fmt::format("; largest relative difference of {} sampled elements {:.3g}",
                                             kSamples, difference.relative)
                               : fmt::format("; {} sampled elements are equal", kSamples);
  finding.details["largest_relative_difference"] = fmt::format("{:.9g}", difference.relative);
  finding.details["relative_norm_of_difference"] = fmt::format("{:.9g}", difference.norm);
  finding.what = fmt::format("replicas differ: {}{}{}", sets_text(sets), where, size);
  return finding;
}

class ReplicaCheck final : public InvariantCheck {
 public:
  ReplicaCheck() : InvariantCheck("I1") {}

  void register_tensor(const InspectedTensor& tensor, const Schedule& schedule,
                       Registration& registration) override {
    const bool has_replicas = tensor.same_over_dp || tensor.layout == Layout::kReplicated;
    if (!has_replicas || (tensor.kind && is_result(*tensor.kind))) return;
    const bool exact = tensor.same_over_dp;
    const std::size_t words = exact ? kWordsOfFeed : kWordsOfFeed * kFeedsKept;
    cells_[&tensor] = &registration.declare_over(ReduceOver::kReplicas, tensor, schedule, [&] {
      return std::make_unique<EqualityAccumulator>(
          "I1", words, [exact](std::span<const RankEvidence> evidence) { return explain(exact, evidence); });
    });
  }

  void inspect(const InspectContext& context) override {
    const auto found = cells_.find(&context.tensor);
    const Phase phase = context.moment.phase;
    if (found == cells_.end() || !context.has_original || phase == Phase::kRecompute || phase == Phase::kEval)
      return;
    auto& accumulator = static_cast<EqualityAccumulator&>(*found->second->train);
    if (context.tensor.same_over_dp && accumulator.ran()) return;  // the same in every micro-batch
    const ContentParts& content = context.content();
    std::array<std::uint32_t, kWordsOfFeed> words{};
    words[0] = static_cast<std::uint32_t>(std::min<std::int64_t>(context.x.numel(), 0xFFFFFFFF));
    for (std::size_t i = 0; i < kParts; ++i) words[1 + i] = folded(content.parts[i]);
    std::size_t at = 1 + kParts;
    for (const std::int64_t position : sample_positions(context.x.numel(), kSamples)) {
      words[at++] = std::bit_cast<std::uint32_t>(element(context.x, position));
    }
    accumulator.feed(content.whole, words);
    count();
  }

 private:
  std::unordered_map<const InspectedTensor*, StatCell*> cells_;
};

}  // namespace

std::unique_ptr<InvariantCheck> make_replica_check() { return std::make_unique<ReplicaCheck>(); }

}  // namespace amaxscope
