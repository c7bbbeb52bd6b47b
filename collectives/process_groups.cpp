#include "collectives/process_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr std::array<std::string_view, 3> kExpertAxes = {"expert-tp", "ep", "expert-dp"};
/// Made on every rank in this order.
constexpr std::array<std::string_view, 10> kGroups = {"tp",       "cp", "dp",        "pp",       "tp-cp",
                                                      "dp-cp",    "tp-dp-cp", "ep", "expert-tp", "expert-dp"};

bool is_expert_axis(std::string_view axis) { return std::ranges::find(kExpertAxes, axis) != kExpertAxes.end(); }

/// "tp-dp-cp" -> tp, dp, cp; "expert-dp" stays one axis.
std::vector<std::string_view> split_axes(std::string_view axes) {
  std::vector<std::string_view> result;
  while (!axes.empty()) {
    const std::size_t from = axes.starts_with("expert-") ? std::string_view("expert-").size() : 0;
    const std::size_t dash = axes.find('-', from);
    result.push_back(axes.substr(0, dash));
    axes = dash == std::string_view::npos ? std::string_view() : axes.substr(dash + 1);
  }
  return result;
}

}  // namespace

RankGrid::RankGrid(int world_size, const ParallelSizes& sizes) : world_size_(world_size), sizes_(sizes) {
  const std::array<std::pair<std::string_view, int>, 5> given = {
      {{"tp", sizes.tp}, {"cp", sizes.cp}, {"pp", sizes.pp}, {"ep", sizes.ep}, {"expert_tp", sizes.expert_tp}}};
  for (const auto& [name, size] : given) {
    AMAXSCOPE_CHECK(size >= 1, ErrorCode::kUsage, "{} is {}; a parallel size is at least 1", name, size);
  }
  const int dense = sizes.tp * sizes.cp * sizes.pp;
  AMAXSCOPE_CHECK(world_size % dense == 0, ErrorCode::kUsage,
                  "{} ranks are not divisible by tp {} x cp {} x pp {} = {}", world_size, sizes.tp, sizes.cp,
                  sizes.pp, dense);
  const int expert = sizes.expert_tp * sizes.ep * sizes.pp;
  AMAXSCOPE_CHECK(world_size % expert == 0, ErrorCode::kUsage,
                  "{} ranks are not divisible by expert_tp {} x ep {} x pp {} = {}", world_size, sizes.expert_tp,
                  sizes.ep, sizes.pp, expert);
  dp_ = world_size / dense;
  expert_dp_ = world_size / expert;
}

std::vector<RankGrid::Axis> RankGrid::layout_of(std::string_view axes) const {
  const std::vector<std::string_view> wanted = split_axes(axes);
  const bool expert = std::ranges::any_of(wanted, is_expert_axis);
  std::vector<Axis> layout;
  if (expert) {
    layout = {{"expert-tp", sizes_.expert_tp}, {"ep", sizes_.ep}, {"expert-dp", expert_dp_}, {"pp", sizes_.pp}};
  } else {
    layout = {{"tp", sizes_.tp}, {"cp", sizes_.cp}, {"dp", dp_}, {"pp", sizes_.pp}};
  }
  for (const std::string_view axis : wanted) {
    AMAXSCOPE_CHECK(std::ranges::any_of(layout, [&](const Axis& known) { return known.name == axis; }),
                    ErrorCode::kUsage,
                    "unknown axis \"{}\" in \"{}\"; allowed: tp cp dp pp, or expert-tp ep expert-dp pp", axis, axes);
  }
  return layout;
}

int RankGrid::coordinate(int rank, std::string_view axis) const {
  int rest = rank;
  for (const Axis& known : layout_of(axis)) {
    if (known.name == axis) return rest % known.size;
    rest /= known.size;
  }
  return 0;  // layout_of has refused unknown axes
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
    groups_.emplace(axes, world.split(color, world.rank(), {.traffic = Traffic::kTrainer, .what = "process group"}));
  }
}

Communicator& ProcessGroups::group(std::string_view axes) const {
  const auto found = groups_.find(axes);
  AMAXSCOPE_CHECK(found != groups_.end(), ErrorCode::kUsage, "no process group \"{}\"; there are {}", axes,
                  fmt::join(kGroups, ", "));
  return *found->second;
}

}  // namespace amaxscope
