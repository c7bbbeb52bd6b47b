#include "launch/analyze_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "launch/terminal.hpp"
#include "launch/text.hpp"
#include "report/json_values.hpp"

namespace amaxscope::launch {

namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kNoRecipe = "none";
constexpr std::size_t kWidth = 110;
constexpr char kStaysTogether = '\x01';  ///< a space at which no line is broken

std::string text_of(const Json& json) { return json.dump(-1, ' ', true, Json::error_handler_t::replace); }

}  // namespace

std::string as_table(const std::vector<AnalyzeRow>& rows) {
  std::string own;
  std::vector<std::string> recipes;
  std::vector<std::string> columns;
  for (const AnalyzeRow& row : rows) {
    if (row.recipe == kNoRecipe) {
      own += fmt::format("{}{}{}{:.6g}", own.empty() ? "" : " ", row.stat, kStaysTogether, row.value);
      continue;
    }
    if (std::ranges::find(recipes, row.recipe) == recipes.end()) recipes.push_back(row.recipe);
    if (std::ranges::find(columns, row.stat) == columns.end()) columns.push_back(row.stat);
  }
  std::string text = own.empty() ? "" : wrapped(own, 2, kWidth);
  std::ranges::replace(text, kStaysTogether, ' ');
  if (recipes.empty()) return text;
  std::vector<std::vector<std::string>> lines = {{"  recipe"}};
  lines.front().insert(lines.front().end(), columns.begin(), columns.end());
  for (const std::string& recipe : recipes) {
    std::vector<std::string>& line = lines.emplace_back(std::vector<std::string>{"  " + recipe});
    for (const std::string& column : columns) {
      const auto found = std::ranges::find_if(
          rows, [&](const AnalyzeRow& row) { return row.recipe == recipe && row.stat == column; });
      line.push_back(found == rows.end() ? "-" : fmt::format("{:.6g}", found->value));
    }
  }
  return text + table(lines);
}

AnalyzeOutput::AnalyzeOutput(bool json) : json_(json) {
  if (json_) fmt::print("{{\"rows\": [");
}

void AnalyzeOutput::tensor(const std::string& file, const std::string& name, const std::string& about,
                           const std::vector<AnalyzeRow>& rows) {
  if (!json_) {
    say(stdout, fmt::format("{}: {}  {}\n{}\n", file, name, about, as_table(rows)));
    return;
  }
  for (const AnalyzeRow& row : rows) {
    Json json = {{"file", row.file},
                 {"tensor", row.tensor},
                 {"recipe", row.recipe},
                 {"stat", row.stat},
                 {"value", report::json_of(row.value)}};
    if (!row.flags.empty()) json["flags"] = row.flags;
    fmt::print("{}\n{}", first_row_ ? "" : ",", text_of(json));
    first_row_ = false;
  }
}

void AnalyzeOutput::skip(const SkippedTensor& tensor) {
  say(stderr, fmt::format("{}: tensor {} is skipped: {}\n", tensor.file, tensor.tensor, tensor.why));
  if (json_) skipped_.push_back(tensor);
}

void AnalyzeOutput::finish() {
  if (!json_) return;
  Json skipped = Json::array();
  for (const SkippedTensor& one : skipped_) {
    skipped.push_back({{"file", one.file}, {"tensor", one.tensor}, {"why", one.why}});
  }
  fmt::print("{}],\n\"skipped\": {}}}\n", first_row_ ? "" : "\n", text_of(skipped));
}

}  // namespace amaxscope::launch
