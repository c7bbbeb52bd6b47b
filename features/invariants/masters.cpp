// I7: the codes of a weight are the cast of the values it has now, at every use, and stay what they were
// made.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "features/invariants/check.hpp"
#include "features/invariants/sampling.hpp"
#include "kernels/content_hash.hpp"

namespace amaxscope {

namespace {

struct Made {
  std::int64_t iteration = -1;
  int microbatch = 0;
  std::optional<std::uint64_t> source = {};                ///< of the values the codes were made from
  std::array<std::optional<std::uint64_t>, 2> codes = {};  ///< by direction
};

class MasterCheck final : public InvariantCheck {
 public:
  explicit MasterCheck(std::size_t sample) : InvariantCheck("I7"), sample_(sample) {}

  void inspect(const InspectContext& context) override {
    if (context.tensor.kind != TensorKind::kWeight || context.moment.phase == Phase::kRecompute) return;
    Made made{.iteration = context.iteration, .microbatch = context.moment.microbatch};
    if (context.has_original) {
      made.source = context.content().whole;
      check_cast(context);
    }
    const auto before = made_.find(&context.tensor);
    made.codes = fingerprints(context);
    if (before != made_.end()) check_both_refreshed(context, before->second, made);
    made_.insert_or_assign(&context.tensor, made);
  }

  void inspect_reuse(const InspectContext& context) override {
    const auto found = made_.find(&context.tensor);
    if (found == made_.end()) {  // observing began after the codes were made
      if (context.has_original) check_cast(context);
      return;
    }
    Made& made = found->second;
    count();
    if (context.has_original && made.source && context.content().whole != *made.source) {
      fail(context,
           fmt::format(
               "the codes are not the cast of the weight's values of now: they were made at iteration {}, "
               "micro-batch {}, and the values have changed since",
               made.iteration, made.microbatch),
           {{"made_at_iteration", fmt::format("{}", made.iteration)},
            {"made_at_microbatch", fmt::format("{}", made.microbatch)}});
      return;
    }
    const auto now = fingerprints(context);
    for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
      const auto& then = made.codes[static_cast<std::size_t>(direction)];
      const auto& own = now[static_cast<std::size_t>(direction)];
      if (!then || !own || *then == *own) continue;
      fail(context,
           fmt::format(
               "the {} codes have changed since they were made at iteration {}, micro-batch {}: something "
               "has written to them",
               to_string(direction), made.iteration, made.microbatch),
           {{"copy", std::string(to_string(direction))}});
      return;
    }
  }

 private:
  static std::array<std::optional<std::uint64_t>, 2> fingerprints(const InspectContext& context) {
    std::array<std::optional<std::uint64_t>, 2> result;
    for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
      const QuantizedTensor* member = context.operand(direction);
      if (member != nullptr)
        result[static_cast<std::size_t>(direction)] = operand_fingerprint(*member, direction);
    }
    return result;
  }

  /// New values and one new copy, the other byte by byte as it was.
  void check_both_refreshed(const InspectContext& context, const Made& before, const Made& now) {
    if (!before.source || !now.source || *before.source == *now.source) return;
    std::array<bool, 2> stale{};
    for (std::size_t i = 0; i < 2; ++i) {
      if (!before.codes[i] || !now.codes[i]) return;
      stale[i] = *before.codes[i] == *now.codes[i];
    }
    count();
    if (stale[0] == stale[1]) return;  // small updates may leave every code of both where it was
    const Direction direction = stale[0] ? Direction::kRowwise : Direction::kColumnwise;
    fail(context,
         fmt::format(
             "only one copy was refreshed: the values and the {} codes are new, the {} codes are those of "
             "iteration {}",
             to_string(stale[0] ? Direction::kColumnwise : Direction::kRowwise), to_string(direction),
             before.iteration),
         {{"copy", std::string(to_string(direction))}});
  }

  /// Sampled: each code is one of the two beside the value.
  void check_cast(const InspectContext& context) {
    for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
      const QuantizedTensor* member = context.operand(direction);
      if (member == nullptr || context.is_modified(direction)) continue;
      std::size_t apart = 0;
      std::size_t compared = 0;
      std::int64_t first = -1;
      DecodedElement then;
      for (const std::int64_t index : sample_positions(context.x.numel(), sample_)) {
        const auto code = decoded_element(*member, direction, index);
        if (!code) break;
        const float value = element(context.x, index);
        ++compared;
        if (fits(*code, value)) continue;
        if (apart++ == 0) {
          first = index;
          then = *code;
        }
      }
      if (compared == 0) continue;
      count();
      if (apart == 0) continue;
      fail(context,
           fmt::format(
               "the {} codes are not the cast of the weight: {} of {} sampled elements differ; element {} "
               "is {:.6g}, its code stands for {:.6g}",
               to_string(direction), apart, compared, first, element(context.x, first), then.value),
           {{"copy", std::string(to_string(direction))},
            {"apart", fmt::format("{}", apart)},
            {"sampled", fmt::format("{}", compared)}});
      return;
    }
  }

  static bool fits(const DecodedElement& code, float value) {
    if (std::isnan(value)) return true;  // FP4 has no NaN
    if (code.saturated) return std::signbit(code.value) == std::signbit(value);
    constexpr double kSlack = 1.0 + 0x1p-10;
    return std::abs(double{code.value} - double{value}) <= kSlack * double{code.tolerance};
  }

  std::unordered_map<const InspectedTensor*, Made> made_;
  std::size_t sample_;
};

}  // namespace

std::unique_ptr<InvariantCheck> make_master_check(std::size_t sample) {
  return std::make_unique<MasterCheck>(sample);
}

}  // namespace amaxscope
