#include "launch/config_reference.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/config/structure_keys.hpp"

namespace amaxscope::launch {

namespace {

constexpr std::string_view kHead = R"(# The YAML, key by key

<!-- Made by `amaxscope explain --markdown`; the test docs.reference says when it is out of date. Do not edit. -->

Every key that a debug config may have, from the tables that the validator reads. [The debug YAML](../config.md) is the tour of it,
[features](../features.md) has the formulas. `amaxscope explain FEATURE` prints the same on a terminal.

Marked *new*: not in nvidia-dlfw-inspect and TransformerEngine.

)";

constexpr std::string_view kStructExample = R"(```yaml
example:
  enabled: True
  layers:
    layer_types: [linear_fc1, linear_fc2]
    layer_numbers: [1, "4-7"]
  transformer_engine:
    FakeQuant:
      enabled: True
      quant_format: FP8E4M3
      gemms_struct:
        - gemm: fprop
          tensors: [activation, weight]
        - gemm: dgrad
          tensors_struct:
            - tensor: gradient
              quant_format: FP8E5M2
            - tensor: weight
              start_step: 100
```

)";

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

std::string structure_table(std::span<const StructureKey> keys) {
  std::string text = "| key | type | | meaning |\n|---|---|---|---|\n";
  for (const StructureKey& key : keys) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", key.name, key.type, key.when, escaped(key.meaning));
  }
  return text + "\n";
}

std::string range_of(const KeySchema& key) {
  if (!key.allowed.empty()) return fmt::format("`{}`", fmt::join(key.allowed, "`, `"));
  if (key.minimum) return fmt::format("{} or more", *key.minimum);
  return "";
}

std::string default_of(const KeySchema& key) {
  if (key.required) return "required";
  if (key.default_text.empty()) return "none";
  if (key.default_text.starts_with("the ")) return key.default_text;
  return "`" + key.default_text + "`";
}

std::string key_row(const KeySchema& key) {
  return fmt::format("| `{}`{} | {} | {} | {} | {} |\n", key.name, key.addition ? " *new*" : "",
                     type_name(key.type), default_of(key), range_of(key), escaped(key.doc));
}

std::string key_table(const std::vector<KeySchema>& keys) {
  if (keys.empty()) return "";
  std::string text = "| key | type | default | range | meaning |\n|---|---|---|---|---|\n";
  for (const KeySchema& key : keys) text += key_row(key);
  return text + "\n";
}

std::string statistics_table(const std::vector<StatSchema>& statistics) {
  if (statistics.empty()) return "";
  std::string text = "| statistic | meaning |\n|---|---|\n";
  for (const StatSchema& statistic : statistics) {
    std::string name = fmt::format("`{}`", statistic.name);
    std::string doc = statistic.doc;
    for (const KeySchema& parameter : statistic.parameters) {
      name = fmt::format("`{}: {{{}: {}}}`", statistic.name, parameter.name, parameter.default_text);
      doc += fmt::format(" `{}` ({}{}): {}", parameter.name, type_name(parameter.type),
                         range_of(parameter).empty() ? "" : ", " + range_of(parameter), parameter.doc);
    }
    text += fmt::format("| {}{} | {} |\n", name, statistic.addition ? " *new*" : "", escaped(doc));
  }
  return text + "\n";
}

// The first statistics of the list, and the first one that has parameters.
std::string example_statistics(const FeatureSchema& schema) {
  std::vector<std::string> names;
  for (const StatSchema& statistic : schema.statistics) {
    if (statistic.parameters.empty() && names.size() < 2) names.push_back(statistic.name);
  }
  for (const StatSchema& statistic : schema.statistics) {
    if (statistic.parameters.empty()) continue;
    const KeySchema& parameter = statistic.parameters.front();
    names.push_back(
        fmt::format("{{{}: {{{}: {}}}}}", statistic.name, parameter.name, parameter.default_text));
    break;
  }
  return fmt::format("[{}]", fmt::join(names, ", "));
}

// A value that differs from the default where the key has one to choose; none for a number that has no
// default.
std::string example_value(const KeySchema& key, const FeatureSchema& schema) {
  switch (key.type) {
    case KeyType::kBool:
      return key.default_text == "True" ? "False" : "True";
    case KeyType::kStatList:
      return example_statistics(schema);
    case KeyType::kStringList:
      return key.allowed.empty()
                 ? key.default_text
                 : fmt::format("[{}]", fmt::join(key.allowed.begin(),
                                                 key.allowed.begin() +
                                                     std::min<std::ptrdiff_t>(2, std::ssize(key.allowed)),
                                                 ", "));
    case KeyType::kString:
      return key.allowed.empty() ? key.default_text : key.allowed.front();
    default:
      return key.default_text;
  }
}

std::string example_of(const FeatureEntry& entry) {
  const FeatureSchema& schema = entry.schema;
  const std::string indent(entry.base_namespace ? 2 : 4, ' ');
  std::string text = "```yaml\nexample:\n  enabled: True\n  layers:\n    layer_types: [linear_fc1]\n";
  if (!entry.base_namespace) text += "  transformer_engine:\n";
  text += fmt::format("{}{}:\n{}  enabled: True\n", indent, schema.name, indent);
  const auto line = [&](std::string_view key, std::string_view value) {
    text += fmt::format("{}  {}: {}\n", indent, key, value);
  };
  if (schema.takes_gemms) line("gemms", "[fprop]");
  if (schema.free_tensor_names) {
    line("tensors", "[router_logits]");
  } else if (schema.takes_tensors) {
    line("tensors", "[activation, weight]");
  }
  for (const KeySchema& key : schema.keys) {
    const std::string value = example_value(key, schema);
    if (!value.empty() && !value.starts_with("the ")) line(key.name, value);
  }
  line("freq", "10");
  return text + "```\n\n";
}

std::string lists_of(const FeatureSchema& schema) {
  if (schema.free_tensor_names) return "`tensors` or `tensors_struct`, with names of the program's own";
  if (schema.takes_gemms && schema.takes_tensors) return "GEMMs and tensors";
  if (schema.takes_gemms) return "GEMMs";
  if (schema.takes_tensors) return "tensors";
  return "nothing but `layers`";
}

std::string feature_section(const FeatureEntry& entry) {
  const FeatureSchema& schema = entry.schema;
  std::string text = fmt::format("## {}{}\n\n{}\n\n", schema.name,
                                 entry.base_namespace ? ", in the section itself" : "", schema.doc);
  if (schema.addition) text += "*New.* ";
  text += fmt::format("Selects by: {}.", lists_of(schema));
  if (!schema.deprecated_aliases.empty()) {
    text += fmt::format(" Older name, still read: `{}`.", fmt::join(schema.deprecated_aliases, "`, `"));
  }
  text += "\n\n";
  text += key_table(schema.keys);
  text += statistics_table(schema.statistics);
  text += example_of(entry);
  return text;
}

}  // namespace

std::string_view type_name(KeyType type) {
  switch (type) {
    case KeyType::kBool:
      return "bool";
    case KeyType::kInteger:
      return "int";
    case KeyType::kNumber:
      return "number";
    case KeyType::kString:
      return "string";
    case KeyType::kStringList:
      return "list of strings";
    case KeyType::kStatList:
      return "list of statistics";
    case KeyType::kIntervalList:
      return "list of [start, end]";
  }
  return "?";
}

std::string config_reference(const FeatureRegistry& registry) {
  std::string text(kHead);
  text += "## A section\n\nThe file is a mapping of sections; their names are yours.\n\n";
  text += structure_table(section_keys());
  text += "## layers\n\n";
  text += structure_table(layer_keys());
  text +=
      "## The GEMMs and tensors of a feature\n\n`enabled` (bool) is required in every feature. Which of "
      "these a feature "
      "takes stands with it. A single name may stand in place of a list of one. What an entry of a struct "
      "does not say "
      "is what the feature's own keys say.\n\n";
  std::vector<StructureKey> lists(gemm_list_keys().begin(), gemm_list_keys().end());
  lists.push_back(gemm_entry_key());
  lists.insert(lists.end(), tensor_list_keys().begin(), tensor_list_keys().end());
  lists.push_back(tensor_entry_key());
  text += structure_table(lists);
  text += kStructExample;
  text += "## When\n\nKeys of every feature, also in an entry of a struct.\n\n";
  text += key_table(schedule_keys());
  for (const bool base : {false, true}) {
    for (const FeatureEntry& entry : registry.entries()) {
      if (entry.base_namespace == base) text += feature_section(entry);
    }
  }
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

}  // namespace amaxscope::launch
