#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "core/error.hpp"
#include "features/builtin.hpp"
#include "launch/check_plan.hpp"
#include "launch/commands.hpp"
#include "launch/metrics_check.hpp"
#include "launch/plugins.hpp"
#include "launch/text.hpp"
#include "runtime/config/config.hpp"

namespace amaxscope::launch {

namespace {

struct CheckOptions {
  std::string config;
  std::string metrics;
  std::string layers_file;
  std::vector<std::string> layers;
  std::string iterations = "0:0";
  std::string recipe = "delayed";
  std::vector<std::string> plugins;
  bool json = false;
};

void add_layer_names(std::istream& lines, std::vector<std::string>& names) {
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) continue;
    names.push_back(line.substr(first, line.find_last_not_of(" \t\r") - first + 1));
  }
}

std::vector<std::string> layer_names(const CheckOptions& options) {
  std::vector<std::string> names;
  if (options.layers_file == "-") {
    add_layer_names(std::cin, names);
  } else if (!options.layers_file.empty()) {
    AMAXSCOPE_CHECK(!std::filesystem::is_directory(options.layers_file), ErrorCode::kInput,
                    "{}: a directory; --layers wants a file with one layer name a line", options.layers_file);
    std::ifstream file(options.layers_file);
    AMAXSCOPE_CHECK(file.is_open(), ErrorCode::kInput, "{}: cannot be read: {}", options.layers_file,
                    std::error_code(errno, std::generic_category()).message());
    add_layer_names(file, names);
  }
  AMAXSCOPE_CHECK(options.layers_file.empty() || !names.empty(), ErrorCode::kInput, "{}: names no layer",
                  options.layers_file == "-" ? "standard input" : options.layers_file);
  names.insert(names.end(), options.layers.begin(), options.layers.end());
  std::vector<std::string> unique;
  std::set<std::string> seen;
  for (std::string& name : names) {
    if (seen.insert(name).second) unique.push_back(std::move(name));
  }
  return unique;
}

std::pair<std::int64_t, std::int64_t> parse_iterations(const std::string& text) {
  std::int64_t first = -1;
  std::int64_t last = -1;
  const char* const end = text.data() + text.size();
  const auto [colon, error] = std::from_chars(text.data(), end, first);
  bool valid = error == std::errc();
  if (valid && colon == end) {
    last = first;
  } else {
    valid = valid && *colon == ':' && std::from_chars(colon + 1, end, last).ptr == end && colon + 1 != end;
  }
  AMAXSCOPE_CHECK(valid && first >= 0 && last >= first, ErrorCode::kUsage,
                  "--iterations {}: want A:B with 0 <= A <= B, both included", text);
  return {first, last};
}

std::string join_some(const std::vector<std::string>& names, std::size_t most) {
  if (names.size() <= most) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{}, ... {} more",
                     fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(most), ", "),
                     names.size() - most);
}

void print_sections(const Config& config, const EffectivePlan* plan) {
  for (const ConfigSection& section : config.sections) {
    std::vector<std::string> features;
    for (const FeatureConfig& feature : section.features) features.push_back(feature.name);
    std::string line =
        fmt::format("  section {}{}: {}", section.name, section.enabled ? "" : " (disabled)",
                    features.empty() ? "no enabled feature" : fmt::format("{}", fmt::join(features, ", ")));
    if (plan != nullptr) {
      const auto found = plan->section_layers.find(section.name);
      if (found != plan->section_layers.end() && !found->second.empty()) {
        line += fmt::format("; {} layer{}: {}", found->second.size(), found->second.size() == 1 ? "" : "s",
                            join_some(found->second, 3));
      }
    }
    if (section.observe) line += fmt::format("; observes /{}/", section.observe->text());
    fmt::print("{}\n", line);
  }
}

/// Rows that differ in nothing but consecutive iterations are one line.
void print_rows(const EffectivePlan& plan) {
  std::set<std::string> matched;
  for (const auto& [section, layers] : plan.section_layers) matched.insert(layers.begin(), layers.end());
  std::vector<std::vector<std::string>> lines = {
      {"layer", "tensor", "gemm", "iterations", "plan", "inspect", "features"}};
  std::set<std::string> untouched;
  for (std::size_t i = 0; i < plan.rows.size();) {
    const PlanRow& row = plan.rows[i];
    std::size_t last = i;
    while (last + 1 < plan.rows.size() && plan.rows[last + 1].same_plan(row)) ++last;
    if (matched.contains(row.layer)) {
      const std::int64_t end = plan.rows[last].iteration;
      lines.push_back(
          {row.layer, row.tensor, row.gemm,
           end == row.iteration ? fmt::format("{}", end) : fmt::format("{}-{}", row.iteration, end), row.plan,
           row.inspect ? "yes" : "no", fmt::format("{}", fmt::join(row.features, ", "))});
    } else {
      untouched.insert(row.layer);
    }
    i = last + 1;
  }
  if (lines.size() > 1) fmt::print("\n{}", table(lines));
  if (!untouched.empty()) {
    fmt::print("\nno section matches: {}\n", fmt::join(untouched, ", "));
  }
  if (plan.next_change)
    fmt::print("\nplans may change again at iteration {}; see --iterations\n", *plan.next_change);
}

nlohmann::ordered_json to_json(const PlanRow& row) {
  return {{"layer", row.layer},         {"tensor", row.tensor}, {"gemm", row.gemm},
          {"iteration", row.iteration}, {"plan", row.plan},     {"inspect", row.inspect},
          {"features", row.features}};
}

void print_json(const CheckOptions& options, const EffectivePlan& plan) {
  nlohmann::ordered_json json = {{"config", options.config},
                                 {"recipe", options.recipe},
                                 {"section_layers", plan.section_layers},
                                 {"warnings", plan.warnings},
                                 {"rows", nlohmann::ordered_json::array()}};
  for (const PlanRow& row : plan.rows) json["rows"].push_back(to_json(row));
  fmt::print("{}\n", json.dump(1, ' ', true, nlohmann::ordered_json::error_handler_t::replace));
}

ExitStatus check(const CheckOptions& options) {
  const std::optional<RecipeKind> recipe = parse_recipe(options.recipe);
  AMAXSCOPE_CHECK(recipe.has_value(), ErrorCode::kUsage,
                  "--recipe {}: unknown; allowed: none, delayed, current, mxfp8, block, nvfp4",
                  options.recipe);
  const auto [first, last] = parse_iterations(options.iterations);
  const std::vector<std::string> layers = layer_names(options);

  FeatureRegistry registry = builtin_features();
  load_plugins(options.plugins, /*announces=*/true, registry);
  const Config config = load_config(read_config_file(options.config), options.config, registry);
  for (const std::string& warning : config.warnings) fmt::print(stderr, "{}\n", warning);

  EffectivePlan plan;
  if (!layers.empty()) {
    plan = effective_plan(
        config, registry,
        {.layers = layers, .first_iteration = first, .last_iteration = last, .recipe = *recipe});
  }
  for (const std::string& warning : plan.warnings) fmt::print(stderr, "{}\n", warning);
  plan.warnings.insert(plan.warnings.begin(), config.warnings.begin(), config.warnings.end());
  if (options.json) {
    print_json(options, plan);
    return kDone;
  }
  fmt::print("{}: valid\n", options.config);
  print_sections(config, layers.empty() ? nullptr : &plan);
  if (!layers.empty()) print_rows(plan);
  return kDone;
}

}  // namespace

Command add_check(CLI::App& app) {
  CLI::App* subcommand = app.add_subcommand(
      "check", "validates a debug config and shows what it would do, or checks what a run wrote");
  auto options = std::make_shared<CheckOptions>();
  CLI::Option* config = subcommand->add_option("YAML", options->config, "the debug config");
  subcommand
      ->add_option("--metrics", options->metrics,
                   "instead of a config: the same as `amaxscope check-records DIR`")
      ->type_name("DIR")
      ->excludes(config);
  subcommand->add_option("--plugin", options->plugins, kPluginHelp)
      ->type_name("FILE")
      ->expected(1)
      ->take_all();
  subcommand
      ->add_option("--layers", options->layers_file,
                   "file with one layer name a line; - reads standard input")
      ->type_name("FILE");
  subcommand->add_option("--layer", options->layers, "one layer name; may be repeated")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  subcommand
      ->add_option("--iterations", options->iterations, "first and last iteration to show (default 0:0)")
      ->type_name("A:B");
  subcommand
      ->add_option("--recipe", options->recipe, "recipe of the layers: none, delayed (default), current")
      ->type_name("R");
  subcommand->add_flag("--json", options->json, "one JSON object on standard output");
  return {.app = subcommand, .run_alone = [options] {
            if (!options->metrics.empty()) return report_metrics(options->metrics, options->json);
            AMAXSCOPE_CHECK(
                !options->config.empty(), ErrorCode::kUsage,
                "YAML is required, or --metrics with a log directory; see `amaxscope check --help`");
            return check(*options);
          }};
}

}  // namespace amaxscope::launch
