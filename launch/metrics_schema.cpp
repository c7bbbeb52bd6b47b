#include "launch/metrics_schema.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "runtime/feature/event.hpp"
#include "runtime/names.hpp"

namespace amaxscope::launch {

namespace {

using nlohmann::json;

constexpr std::size_t kShownBytes = 60;

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

/// Notes the first thing that is wrong; the checks after it say nothing.
class Shape {
 public:
  explicit Shape(std::string_view kind) : kind_(kind) {}
  [[nodiscard]] const std::string& problem() const { return problem_; }

  /// The member, or null when it is missing, which is then the problem.
  const json* wanted(const json& object, const char* name, std::string_view what) {
    const auto found = object.find(name);
    if (found != object.end()) return &*found;
    refuse(fmt::format("has no \"{}\"; {} is wanted", name, what));
    return nullptr;
  }
  void text(const json& object, const char* name, bool may_be_empty = false) {
    const json* value = wanted(object, name, "a text");
    if (value == nullptr) return;
    if (!value->is_string()) return wrong(name, *value, "a text");
    if (!may_be_empty && value->get_ref<const std::string&>().empty())
      refuse(fmt::format("\"{}\" is empty", name));
  }
  void optional_text(const json& object, const char* name) {
    if (object.contains(name)) text(object, name);
  }
  void word(const json& object, const char* name, std::initializer_list<std::string_view> allowed) {
    const std::string what = fmt::format("one of {}", fmt::join(allowed, ", "));
    const json* value = wanted(object, name, what);
    if (value == nullptr) return;
    const bool known = value->is_string() &&
                       std::ranges::find(allowed, value->get_ref<const std::string&>()) != allowed.end();
    if (!known) wrong(name, *value, what);
  }
  void integer(const json& object, const char* name) {
    const json* value = wanted(object, name, "an integer");
    if (value != nullptr && !value->is_number_integer()) wrong(name, *value, "an integer");
  }
  /// An object whose members are numbers, or the texts that stand for what JSON has no number for.
  void numbers(const json& object, const char* name) {
    constexpr const char* kWhat = R"(a number, "NaN", "Infinity" or "-Infinity")";
    members(object, name, kWhat, [](const json& value) {
      return value.is_number() || value == "NaN" || value == "Infinity" || value == "-Infinity";
    });
  }
  void texts(const json& object, const char* name) {
    members(object, name, "a text", [](const json& value) { return value.is_string(); });
  }
  void lists_of_texts(const json& object, const char* name) {
    members(object, name, "a list of texts", [](const json& value) {
      return value.is_array() &&
             std::ranges::all_of(value, [](const json& each) { return each.is_string(); });
    });
  }
  void ranks(const json& object, const char* name, std::int64_t world_size) {
    const json* value = wanted(object, name, "a list of ranks");
    if (value == nullptr) return;
    if (!value->is_array()) return wrong(name, *value, "a list of ranks");
    for (const json& rank : *value) {
      const bool whole = rank.is_number_integer();
      if (!whole || rank < 0) return wrong(name, rank, "ranks from 0");
      if (world_size > 0 && rank >= world_size) {
        return refuse(fmt::format("\"{}\" names rank {}; the run had {}", name, shown(rank), world_size));
      }
    }
  }
  /// Names of members of `name` must be among those of `of`.
  void names_known(const json& object, const char* name, const char* of) {
    if (!problem_.empty() || !object.contains(name)) return;
    for (const auto& [key, value] : object[name].items()) {
      if (!object[of].contains(key))
        refuse(fmt::format("\"{}\" has \"{}\", which is not in \"{}\"", name, key, of));
    }
  }

 private:
  template <class Accepts>
  void members(const json& object, const char* name, const char* what, const Accepts& accepts) {
    const json* value = wanted(object, name, "an object");
    if (value == nullptr) return;
    if (!value->is_object()) return wrong(name, *value, "an object");
    for (const auto& [key, each] : value->items()) {
      if (!accepts(each)) return wrong(fmt::format("{}.{}", name, key), each, what);
    }
  }
  void wrong(std::string_view name, const json& value, std::string_view what) {
    refuse(fmt::format("\"{}\" is {}; {} is wanted", name, shown(value), what));
  }
  void refuse(const std::string& what) {
    if (problem_.empty()) problem_ = fmt::format("{}: {}", kind_, what);
  }

  std::string_view kind_;
  std::string problem_;
};

void phase(Shape& shape, const json& object) {
  shape.word(object, "phase",
             {to_string(Phase::kForward), to_string(Phase::kRecompute), to_string(Phase::kBackward),
              to_string(Phase::kEval)});
}

std::string record_problem(const json& object, std::int64_t world_size) {
  Shape shape("record");
  shape.text(object, "layer");
  shape.text(object, "tensor");
  phase(shape, object);
  shape.numbers(object, "stats");
  shape.lists_of_texts(object, "flags");
  shape.names_known(object, "flags", "stats");
  shape.text(object, "recipe");
  shape.optional_text(object, "format");
  if (object.contains("formats")) {
    shape.texts(object, "formats");
    shape.names_known(object, "formats", "stats");
  }
  shape.ranks(object, "group", world_size);
  shape.word(object, "layout",
             {to_string(Layout::kReplicated), to_string(Layout::kShard0), to_string(Layout::kShard1),
              to_string(Layout::kPartial)});
  return shape.problem();
}

std::string finding_problem(const json& finding, std::int64_t world_size) {
  Shape shape("finding");
  if (!finding.is_object()) return fmt::format("finding: is {}; an object is wanted", shown(finding));
  shape.text(finding, "check");
  shape.text(finding, "layer", /*may_be_empty=*/true);
  shape.text(finding, "tensor", /*may_be_empty=*/true);
  phase(shape, finding);
  shape.integer(finding, "microbatch");
  shape.ranks(finding, "ranks", world_size);
  shape.text(finding, "what");
  shape.texts(finding, "details");
  return shape.problem();
}

std::string event_problem(const json& event, std::int64_t world_size) {
  Shape shape("event");
  if (!event.is_object()) return fmt::format("event: is {}; an object is wanted", shown(event));
  shape.text(event, "kind");
  for (const char* name : {"feature", "check", "layer", "tensor", "what"}) {
    shape.text(event, name, /*may_be_empty=*/true);
  }
  shape.integer(event, "seen");
  shape.ranks(event, "ranks", world_size);
  shape.word(event, "action",
             {to_string(EventAction::kNone), to_string(EventAction::kRecord), to_string(EventAction::kDump),
              to_string(EventAction::kStop)});
  return shape.problem();
}

}  // namespace

std::string shape_problem(const json& object, std::int64_t world_size) {
  if (const auto finding = object.find("finding"); finding != object.end()) {
    return finding_problem(*finding, world_size);
  }
  if (const auto event = object.find("event"); event != object.end())
    return event_problem(*event, world_size);
  if (object.contains("scalars")) {
    Shape shape("scalars");
    shape.numbers(object, "scalars");
    return shape.problem();
  }
  if (object.contains("stats") || object.contains("layer")) return record_problem(object, world_size);
  return "is none of the lines that the schema knows: a record (layer, tensor, phase, stats), scalars, "
         "finding, "
         "event, end_of_step, end_of_run";
}

}  // namespace amaxscope::launch
