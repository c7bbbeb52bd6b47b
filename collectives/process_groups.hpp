// Megatron's rank groups. Axes vary fastest first in the order tp, cp, dp, pp (dense layers) and
// expert-tp, ep, expert-dp, pp (expert layers): two ranks share the group of some axes when their coordinates
// agree on every other axis. Source of the rule: Megatron-LM core/parallel_state.py, RankGenerator.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.hpp"

namespace amaxscope {

struct ParallelSizes {
  int tp = 1;
  int cp = 1;
  int pp = 1;
  int ep = 1;
  int expert_tp = 1;
  // dp is what is left: world / (tp * cp * pp), and world / (expert_tp * ep * pp) for experts.
};

/// Pure arithmetic on rank numbers; no communication. A value type.
class RankGrid {
 public:
  /// Throws Error(kUsage) that names the sizes when they do not divide the world.
  RankGrid(int world_size, const ParallelSizes& sizes);

  [[nodiscard]] int world_size() const noexcept { return world_size_; }
  [[nodiscard]] const ParallelSizes& sizes() const noexcept { return sizes_; }
  [[nodiscard]] int dp() const noexcept { return dp_; }
  /// Coordinate of a rank on one axis: "tp", "cp", "dp", "pp", "ep", "expert-tp", "expert-dp".
  [[nodiscard]] int coordinate(int rank, std::string_view axis) const;
  /// All groups over the axes joined by '-' ("tp", "dp-cp", "tp-dp-cp", "ep"), each in ascending rank order.
  [[nodiscard]] std::vector<std::vector<int>> groups(std::string_view axes) const;

 private:
  friend class ProcessGroups;
  struct Axis {
    std::string_view name;
    int size;
  };
  [[nodiscard]] std::vector<Axis> layout_of(std::string_view axes) const;

  int world_size_;
  ParallelSizes sizes_;
  int dp_;
  int expert_dp_;
};

/// The communicators of one rank, made by splitting the world in one fixed order on every rank.
/// Owns them; references stay valid for its life. The world it is given must outlive it.
class ProcessGroups {
 public:
  /// Collective over world. Throws Error(kUsage) as RankGrid does, before any communication.
  ProcessGroups(Communicator& world, const ParallelSizes& sizes);

  [[nodiscard]] Communicator& world() const noexcept { return world_; }
  [[nodiscard]] const RankGrid& grid() const noexcept { return grid_; }
  [[nodiscard]] Communicator& tp() const { return group("tp"); }
  [[nodiscard]] Communicator& dp() const { return group("dp"); }
  [[nodiscard]] Communicator& cp() const { return group("cp"); }
  [[nodiscard]] Communicator& pp() const { return group("pp"); }
  [[nodiscard]] Communicator& dp_cp() const { return group("dp-cp"); }
  [[nodiscard]] Communicator& tp_dp_cp() const { return group("tp-dp-cp"); }
  /// By name: the above, "tp-cp", "ep", "expert-tp", "expert-dp". Throws Error(kUsage) for another.
  [[nodiscard]] Communicator& group(std::string_view axes) const;

 private:
  Communicator& world_;
  RankGrid grid_;
  std::map<std::string, std::unique_ptr<Communicator>, std::less<>> groups_;
};

}  // namespace amaxscope
