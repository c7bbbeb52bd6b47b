// What there is in a dump directory, and how the ranks of a replay share it out.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/shape.hpp"
#include "runtime/storage/dump_file.hpp"

namespace amaxscope::launch {

/// One rank's part of a dumped tensor: its file, without the data.
struct DumpedPart {
  DumpMetadata metadata;
  std::string file;  ///< below the rank's folder; known to its own rank only
  DType dtype = DType::kF32;
  Shape shape;
};

/// What one rank's folder holds, and how many of its files have nothing to replay.
struct RankDump {
  std::vector<DumpedPart> parts;
  std::int64_t without_original = 0;  ///< codes only
};

/// The folder that holds rank_0, rank_1, ...: the directory itself or tensor_dumps in it.
/// Throws Error(kInput) when neither has such folders, or when one of the numbers is missing.
std::filesystem::path find_dump(const std::filesystem::path& directory);
/// How many folders rank_R it has.
int count_dump_ranks(const std::filesystem::path& dump);

/// Reads the headers of all files below rank_R. Throws Error(kInput) naming the file: not a dumped tensor, a
/// type that cannot be replayed, two files of one tensor at one moment.
RankDump read_rank_dump(const std::filesystem::path& dump, int rank);

std::string to_text(const RankDump& dump);
RankDump rank_dump_from(const std::string& text);

/// World ranks of the groups that a rank belongs to.
struct ReplayGroups {
  std::vector<int> tp;
  std::vector<int> dp;
  std::vector<int> stage;
};

/// Everything that is dumped, the same on all ranks.
class ReplayIndex {
 public:
  /// by_rank[r]: rank r's dump. Throws Error(kInput) where ranks contradict each other about a group, naming
  /// them.
  explicit ReplayIndex(std::vector<RankDump> by_rank);

  [[nodiscard]] const ReplayGroups& groups(int rank) const { return groups_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::vector<std::int64_t> iterations() const;

  using Parts = std::map<int, const DumpedPart*>;  ///< by rank
  /// Of an iteration: by micro-batch, forward < recompute < backward < eval, name.
  [[nodiscard]] const std::vector<std::pair<DumpIdentity, Parts>>& tensors(std::int64_t iteration) const {
    return tensors_.at(iteration);
  }
  /// The GEMM layers of the ranks of this rank's pipeline stage, with every part that is about them.
  [[nodiscard]] std::map<std::string, std::vector<const DumpedPart*>> layers(int rank) const;
  /// No dump says more of the groups than its own rank, and two ranks have layers of one name: what lies
  /// apart, not stages of one model.
  [[nodiscard]] bool ranks_stand_alone() const;
  [[nodiscard]] std::int64_t without_original() const noexcept { return without_original_; }

 private:
  void find_groups();

  std::vector<RankDump> by_rank_;
  std::vector<ReplayGroups> groups_;
  std::map<std::int64_t, std::vector<std::pair<DumpIdentity, Parts>>> tensors_;
  std::int64_t without_original_ = 0;
};

}  // namespace amaxscope::launch
