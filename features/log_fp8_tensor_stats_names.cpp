// The grammar of LogFp8TensorStats' statistics: [recipe_]stat[_columnwise].
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "features/log_fp8_tensor_stats.hpp"
#include "runtime/stats/quantization_accumulator.hpp"

namespace amaxscope {

namespace {

struct Prefix {
  std::string_view text;
  RecipeKind recipe;
  bool per_tensor;
};
constexpr std::array<Prefix, 4> kPrefixes = {{{"fp8_delayed_scaling_", RecipeKind::kDelayed, true},
                                              {"fp8_current_scaling_", RecipeKind::kCurrent, true},
                                              {"mxfp8_", RecipeKind::kMxfp8, false},
                                              {"fp8_block_scaling_", RecipeKind::kBlock, false}}};
constexpr std::string_view kColumnwise = "_columnwise";
constexpr std::string_view kMissingStart = "fp8_";  // documentation elsewhere leaves it out

std::string why_not(std::string_view word) {
  if (word.starts_with("nvfp4_")) return "NVFP4 statistics belong to LogNvfp4TensorStats";
  for (const Prefix& prefix : kPrefixes) {
    if (prefix.text.starts_with(kMissingStart) &&
        word.starts_with(prefix.text.substr(kMissingStart.size()))) {
      return fmt::format("did you mean \"{}{}\"?", kMissingStart, word);
    }
  }
  return {};
}

}  // namespace

std::optional<QuantizationStatName> parse_fp8_stat(std::string_view word, std::string& reason) {
  QuantizationStatName name;
  std::string_view rest = word;
  const auto prefix =
      std::ranges::find_if(kPrefixes, [&](const Prefix& p) { return word.starts_with(p.text); });
  if (prefix != kPrefixes.end()) {
    name.recipe = prefix->recipe;
    name.prefix = prefix->text;
    rest.remove_prefix(prefix->text.size());
  }
  if (rest.ends_with(kColumnwise)) {
    name.columnwise = true;
    rest.remove_suffix(kColumnwise.size());
  }
  const std::vector<std::string>& known = QuantizationAccumulator::known_names();
  if (std::ranges::find(known, rest) == known.end()) {
    reason = prefix == kPrefixes.end()
                 ? why_not(word)
                 : fmt::format("after \"{}\" comes one of {}", prefix->text, fmt::join(known, ", "));
    return std::nullopt;
  }
  if (name.columnwise && prefix != kPrefixes.end() && prefix->per_tensor) {
    reason = fmt::format(
        "the recipe has one scale for a tensor, so both directions have the same codes; ask for \"{}{}\"",
        prefix->text, rest);
    return std::nullopt;
  }
  name.stat = rest;
  return name;
}

}  // namespace amaxscope
