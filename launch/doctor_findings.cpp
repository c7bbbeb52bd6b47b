#include "launch/doctor_findings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launch/text.hpp"

namespace amaxscope::launch {

namespace {

constexpr std::size_t kWidth = 110;

std::vector<std::string> names_that_matter(const std::vector<Difference>& differences) {
  std::vector<std::string> names;
  for (const Difference& difference : differences) {
    if (difference.matters) names.push_back(difference.what);
  }
  return names;
}

nlohmann::ordered_json as_object(const Difference& difference) {
  nlohmann::ordered_json values = nlohmann::ordered_json::array();
  for (const auto& [value, ranks] : difference.values) values.push_back({{"value", value}, {"ranks", ranks}});
  return {{"what", difference.what}, {"matters", difference.matters}, {"values", values}};
}

}  // namespace

bool all_well(const Findings& findings) {
  return findings.problems.empty() && names_that_matter(differences(findings.ranks)).empty();
}

std::string as_text(const Findings& findings) {
  const std::vector<Difference> differ = differences(findings.ranks);
  std::string text = table(findings.machine) + "\n" + table(rank_rows(findings.ranks));
  if (!differ.empty()) text += "\n" + table(difference_rows(differ));
  if (const auto settings = common_settings(findings.ranks); !settings.empty()) {
    text += fmt::format("\nsettings of all ranks:\n{}",
                        wrapped(fmt::format("{}", fmt::join(settings, " ")), 2, kWidth));
  }
  text += "\n";
  for (const std::string& line : findings.notes) text += fmt::format("note: {}\n", line);
  for (const std::string& line : findings.problems) text += fmt::format("problem: {}\n", line);
  if (const auto names = names_that_matter(differ); !names.empty()) {
    text += fmt::format("problem: the ranks differ in {}; the table says which\n", fmt::join(names, ", "));
  }
  if (all_well(findings)) text += "nothing in the way of `amaxscope train`\n";
  return text;
}

std::string as_json(const Findings& findings) {
  using Json = nlohmann::ordered_json;
  Json machine = Json::object();
  for (const auto& row : findings.machine) machine[row[0]] = row[1];
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < findings.ranks.size(); ++rank) {
    Json one = {{"rank", rank}};
    one.update(Json::parse(to_text(findings.ranks[rank])));
    ranks.push_back(std::move(one));
  }
  Json differ = Json::array();
  for (const Difference& difference : differences(findings.ranks)) differ.push_back(as_object(difference));
  const Json json = {{"machine", machine},
                     {"ranks", ranks},
                     {"differences", differ},
                     {"notes", findings.notes},
                     {"problems", findings.problems},
                     {"well", all_well(findings)}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace amaxscope::launch
