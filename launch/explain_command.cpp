#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "core/error.hpp"
#include "features/builtin.hpp"
#include "launch/commands.hpp"
#include "launch/config_reference.hpp"
#include "launch/plugins.hpp"
#include "launch/text.hpp"
#include "runtime/config/diagnostics.hpp"

namespace amaxscope::launch {

namespace {

constexpr std::size_t kWidth = 100;

std::string lists_of(const FeatureSchema& schema) {
  if (schema.free_tensor_names) return "tensors (free names)";
  if (schema.takes_gemms && schema.takes_tensors) return "gemms and tensors";
  if (schema.takes_gemms) return "gemms";
  if (schema.takes_tensors) return "tensors";
  return "none";
}

void print_key(const KeySchema& key, std::size_t indent) {
  std::string line = fmt::format("{:{}}{} ({}", "", indent, key.name, type_name(key.type));
  if (key.required) {
    line += ", required";
  } else if (!key.default_text.empty()) {
    line += ", default " + key.default_text;
  }
  line += key.addition ? ", addition)" : ")";
  fmt::print("{}\n", line);
  std::string doc = key.doc;
  if (!key.allowed.empty()) doc += fmt::format(" Allowed: {}.", fmt::join(key.allowed, ", "));
  if (key.minimum) doc += fmt::format(" At least {}.", *key.minimum);
  fmt::print("{}", wrapped(doc, indent + 4, kWidth));
}

void print_feature(const FeatureEntry& entry) {
  const FeatureSchema& schema = entry.schema;
  fmt::print("{}{}{}\n", schema.name,
             entry.base_namespace ? "  (base namespace: a key of the section itself)" : "",
             schema.addition ? "  (addition to the reference)" : "");
  fmt::print("{}", wrapped(schema.doc, 2, kWidth));
  if (!schema.deprecated_aliases.empty()) {
    fmt::print("  deprecated names: {}\n", fmt::join(schema.deprecated_aliases, ", "));
  }
  fmt::print("  selects by: {}\n\n  keys\n    enabled (bool, required)\n", lists_of(schema));
  for (const KeySchema& key : schema.keys) print_key(key, 4);
  fmt::print("\n  schedule\n");
  for (const KeySchema& key : schedule_keys()) print_key(key, 4);
  if (schema.statistics.empty()) return;
  fmt::print("\n  statistics\n");
  for (const StatSchema& statistic : schema.statistics) {
    fmt::print("    {}{}\n{}", statistic.name, statistic.addition ? " (addition)" : "",
               wrapped(statistic.doc, 8, kWidth));
    for (const KeySchema& parameter : statistic.parameters) print_key(parameter, 8);
  }
}

void print_overview(const FeatureRegistry& registry) {
  for (const bool base : {false, true}) {
    fmt::print("{}", base ? "\nKeys of the section itself (base namespace):\n"
                          : "Features under transformer_engine:\n");
    for (const FeatureEntry& entry : registry.entries()) {
      if (entry.base_namespace != base) continue;
      fmt::print("  {}\n{}", entry.schema.name, wrapped(entry.schema.doc, 6, kWidth));
    }
  }
  fmt::print("\n`amaxscope explain FEATURE` shows the keys of one.\n");
}

ExitStatus explain(const std::string& name, bool markdown, const std::vector<std::string>& plugins) {
  FeatureRegistry registry = builtin_features();
  load_plugins(plugins, /*announces=*/true, registry);
  if (markdown) {
    fmt::print("{}", config_reference(registry));
    return kDone;
  }
  if (name.empty()) {
    print_overview(registry);
    return kDone;
  }
  bool found = false;
  for (const bool base : {false, true}) {
    const FeatureEntry* entry = registry.find(name, base);
    if (entry == nullptr) continue;
    if (found) fmt::print("\n");
    found = true;
    print_feature(*entry);
  }
  if (!found) {
    std::vector<std::string> names = registry.names(false);
    for (const std::string& other : registry.names(true)) {
      if (std::ranges::find(names, other) == names.end()) names.push_back(other);
    }
    throw Error(ErrorCode::kUsage, fmt::format("unknown feature `{}`{}", name, suggestion(name, names)));
  }
  return kDone;
}

}  // namespace

Command add_explain(CLI::App& app) {
  CLI::App* subcommand = app.add_subcommand("explain", "the features a debug config may use, and their keys");
  auto name = std::make_shared<std::string>();
  CLI::Option* feature = subcommand->add_option("FEATURE", *name, "one feature; none: an overview of all");
  auto markdown = std::make_shared<bool>(false);
  subcommand
      ->add_flag("--markdown", *markdown, "every key of the YAML as a page, as in docs/reference/config.md")
      ->excludes(feature);
  auto plugins = std::make_shared<std::vector<std::string>>();
  subcommand->add_option("--plugin", *plugins, kPluginHelp)->type_name("FILE")->expected(1)->take_all();
  return {.app = subcommand,
          .run_alone = [name, markdown, plugins] { return explain(*name, *markdown, *plugins); }};
}

}  // namespace amaxscope::launch
