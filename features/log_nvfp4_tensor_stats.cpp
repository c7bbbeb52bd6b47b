#include "features/log_nvfp4_tensor_stats.hpp"

#include <fmt/format.h>
#include "features/inspecting.hpp"

#include <algorithm>

namespace amaxscope {

namespace {

constexpr std::string_view kPrefix = "nvfp4_";
constexpr std::string_view kColumnwise = "_columnwise";

bool is_statistic(std::string_view word) {
  return std::ranges::any_of(quantization_statistics(),
                             [&](const StatSchema& known) { return known.name == word; });
}

}  // namespace

std::optional<QuantizationStatName> parse_nvfp4_stat(std::string_view word, std::string& reason) {
  QuantizationStatName name{.recipe = RecipeKind::kNvfp4, .prefix = std::string(kPrefix), .stat = {}};
  std::string_view rest = word;
  if (rest.ends_with(kColumnwise)) {
    name.columnwise = true;
    rest.remove_suffix(kColumnwise.size());
  }
  if (!is_statistic(rest)) {
    if (rest.starts_with(kPrefix) && is_statistic(rest.substr(kPrefix.size()))) {
      reason = fmt::format("the names are logged with {} in front; ask for \"{}\"", kPrefix,
                           word.substr(kPrefix.size()));
    }
    return std::nullopt;
  }
  name.stat = rest;
  return name;
}

FeatureEntry log_nvfp4_tensor_stats_entry() {
  FeatureSchema schema;
  schema.name = "LogNvfp4TensorStats";
  schema.doc =
      "Logs what NVFP4 quantization does to operands, or would do under another recipe: "
      "statistic[_columnwise], logged as nvfp4_statistic. An element under a block scale of zero counts as "
      "quantized to zero.";
  schema.takes_tensors = true;
  schema.keys = {stats_key()};
  schema.statistics = quantization_statistics();
  std::erase_if(schema.statistics, [](const StatSchema& stat) { return stat.name == "scale_age"; });
  schema.accepts_statistic = [](std::string_view word, std::string& reason) {
    return parse_nvfp4_stat(word, reason).has_value();
  };
  return {.schema = std::move(schema), .base_namespace = false, .make = [](FeatureConfig config) {
            return std::make_unique<LogNvfp4TensorStats>(std::move(config));
          }};
}

}  // namespace amaxscope
