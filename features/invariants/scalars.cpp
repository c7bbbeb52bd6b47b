// I8: scalars that the ranks must agree on are the same on all of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <list>

#include "features/invariants/check.hpp"
#include "runtime/stats/equality_accumulator.hpp"

namespace amaxscope {

namespace {

double value_of(const RankEvidence& evidence) {
  return std::bit_cast<double>(evidence.words[0] | (std::uint64_t{evidence.words[1]} << 32));
}

std::optional<Finding> explain(const std::string& name, std::span<const RankEvidence> evidence) {
  const std::vector<std::vector<int>> sets = rank_sets(evidence);
  const std::vector<std::string> values = values_of_sets(
      sets, evidence, [](const RankEvidence& one) { return fmt::format("{:.17g}", value_of(one)); });
  Finding finding;
  finding.check = "I8";
  finding.ranks = odd_ones_out(sets);
  finding.what = fmt::format("{} should be the same on all ranks and is {}", name, fmt::join(values, ", "));
  finding.details = {{"scalar", name}, {"sets", sets_text(sets)}};
  return finding;
}

class ScalarCheck final : public InvariantCheck {
 public:
  explicit ScalarCheck(std::vector<std::string> names) : InvariantCheck("I8"), names_(std::move(names)) {}

  void register_session(const Schedule& schedule, Registration& registration) override {
    for (const std::string& name : names_) {
      InspectedTensor& tensor = tensors_.emplace_back();
      tensor.layer = "scalars";
      tensor.name = name;
      cells_[name] = &registration.declare_over(ReduceOver::kStage, tensor, schedule, [&] {
        return std::make_unique<EqualityAccumulator>(
            "I8", 2, [name](std::span<const RankEvidence> evidence) { return explain(name, evidence); });
      });
    }
  }

  void inspect_scalar(std::string_view name, double value) override {
    const auto found = cells_.find(name);
    if (found == cells_.end()) return;
    if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();  // whichever its sign
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const std::array<std::uint32_t, 2> words = {static_cast<std::uint32_t>(bits),
                                                static_cast<std::uint32_t>(bits >> 32)};
    static_cast<EqualityAccumulator&>(*found->second->train).feed(bits, words);
    count();
  }

 private:
  std::vector<std::string> names_;
  std::list<InspectedTensor> tensors_;
  std::map<std::string, StatCell*, std::less<>> cells_;
};

}  // namespace

std::unique_ptr<InvariantCheck> make_scalar_check(std::vector<std::string> names) {
  return std::make_unique<ScalarCheck>(std::move(names));
}

}  // namespace amaxscope
