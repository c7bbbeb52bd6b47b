#include "collectives/process_groups.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <utility>

#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr std::array<std::string_view, 3> kExpertAxes = {"expert-tp", "ep", "expert-dp"};
/// Made on every rank in this order.
constexpr std::array<std::string_view, 10> kGroups = {"tp",    "cp",       "dp", "pp",        "tp-cp",
                                                      "dp-cp", "tp-dp-cp", "ep", "expert-tp", "expert-dp"};

bool is_expert_axis(std::string_view axis) {
  return std::ranges::find(kExpertAxes, axis) != kExpertAxes.end();
}

/// "tp-dp-cp" -> tp, dp, cp; "expert-dp" stays one axis.
std::vector<std::string_view> split_axes(std::string_view axes) {
  std::vector<std::string_view> result;
  if (axes.empty()) return result;
  for (std::size_t dash = 0; dash != std::string_view::npos;) {
    const std::size_t from = axes.starts_with("expert-") ? std::string_view("expert-").size() : 0;
    dash = axes.find('-', from);
    result.push_back(axes.substr(0, dash));
    if (dash != std::string_view::npos) axes.remove_prefix(dash + 1);
  }
  return result;
}

/// world / (the product of the sizes).
int what_is_left(int world_size, std::initializer_list<std::pair<std::string_view, int>> sizes) {
  int rest = world_size;
  bool divides = true;
  std::vector<std::string> factors;
  for (const auto& [name, size] : sizes) {
    AMAXSCOPE_CHECK(size >= 1, ErrorCode::kUsage, "{} is {}; a parallel size is at least 1", name, size);
    // One after the other: the product itself may not fit an int.
    divides = divides && rest % size == 0;
    rest /= size;
    factors.push_back(fmt::format("{} {}", name, size));
  }
  AMAXSCOPE_CHECK(divides, ErrorCode::kUsage, "{} ranks cannot be divided into {}", world_size,
                  fmt::join(factors, " x "));
  return rest;
}

}  // namespace

RankGrid::RankGrid(int world_size, const ParallelSizes& sizes) : world_size_(world_size), sizes_(sizes) {
  AMAXSCOPE_CHECK(world_size >= 1, ErrorCode::kUsage, "a world of {} ranks; at least 1 is needed",
                  world_size);
  dp_ = what_is_left(world_size, {{"tp", sizes.tp}, {"cp", sizes.cp}, {"pp", sizes.pp}});
  expert_dp_ = what_is_left(world_size, {{"expert_tp", sizes.expert_tp}, {"ep", sizes.ep}, {"pp", sizes.pp}});
}

std::vector<RankGrid::Axis> RankGrid::layout_of(std::string_view axes) const {
  const std::vector<std::string_view> wanted = split_axes(axes);
  AMAXSCOPE_CHECK(!wanted.empty(), ErrorCode::kUsage, "no axis given");
  const bool expert = std::ranges::any_of(wanted, is_expert_axis);
  std::vector<Axis> layout;
  if (expert) {
    layout = {
        {"expert-tp", sizes_.expert_tp}, {"ep", sizes_.ep}, {"expert-dp", expert_dp_}, {"pp", sizes_.pp}};
  } else {
    layout = {{"tp", sizes_.tp}, {"cp", sizes_.cp}, {"dp", dp_}, {"pp", sizes_.pp}};
  }
  for (const std::string_view axis : wanted) {
    AMAXSCOPE_CHECK(
        std::ranges::any_of(layout, [&](const Axis& known) { return known.name == axis; }), ErrorCode::kUsage,
        "unknown axis \"{}\" in \"{}\"; allowed: tp cp dp pp, or expert-tp ep expert-dp pp", axis, axes);
  }
  return layout;
}

int RankGrid::coordinate(int rank, std::string_view axis) const {
  AMAXSCOPE_CHECK(rank >= 0 && rank < world_size_, ErrorCode::kUsage, "rank {} of a world of {}", rank,
                  world_size_);
  int rest = rank;
  for (const Axis& known : layout_of(axis)) {
    if (known.name == axis) return rest % known.size;
    rest /= known.size;
  }
  throw Error(ErrorCode::kUsage, fmt::format("\"{}\" is several axes; a coordinate is on one", axis));
}

std::vector<std::vector<int>> RankGrid::groups(std::string_view axes) const {
  const std::vector<std::string_view> inside = split_axes(axes);
  const std::vector<Axis> layout = layout_of(axes);
  // Ranks belong together when their coordinates outside of the axes agree.
  std::map<int, std::vector<int>> by_outside;
  for (int rank = 0; rank < world_size_; ++rank) {
    int outside = 0;
    int rest = rank;
    int stride = 1;
    for (const Axis& axis : layout) {
      if (std::ranges::find(inside, axis.name) == inside.end()) outside += rest % axis.size * stride;
      rest /= axis.size;
      stride *= axis.size;
    }
    by_outside[outside].push_back(rank);
  }
  std::vector<std::vector<int>> result;
  for (auto& [outside, ranks] : by_outside) result.push_back(std::move(ranks));
  return result;
}

ProcessGroups::ProcessGroups(Communicator& world, const ParallelSizes& sizes)
    : world_(world), grid_(world.size(), sizes) {
  for (const std::string_view axes : kGroups) {
    const std::vector<std::vector<int>> all = grid_.groups(axes);
    int color = 0;
    while (std::ranges::find(all[static_cast<std::size_t>(color)], world.rank()) ==
           all[static_cast<std::size_t>(color)].end()) {
      ++color;
    }
    groups_.emplace(axes, world.split(color, world.rank(), {.traffic = Traffic::kTrainer, .what = axes}));
  }
}

Communicator& ProcessGroups::group(std::string_view axes) const {
  const auto found = groups_.find(axes);
  AMAXSCOPE_CHECK(found != groups_.end(), ErrorCode::kUsage, "no process group \"{}\"; there are {}", axes,
                  fmt::join(kGroups, ", "));
  return *found->second;
}

}  // namespace amaxscope
