// What the pipeline stages of a job tell each other once: what they call their layers, and which sections of
// the config these matched. Value types and pure functions.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

namespace amaxscope {

struct StageLayers {
  std::vector<int> ranks;                                    ///< of the world, of this stage
  std::vector<std::string> names;                            ///< of registered layers and observed tensors
  std::map<std::string, std::vector<std::string>> sections;  ///< name -> the layers it matched here

  friend bool operator==(const StageLayers&, const StageLayers&) = default;
};

std::string to_text(const StageLayers& stage);
StageLayers stage_layers_from(const std::string& text);

/// Sections with the layers of all stages, stage after stage.
std::map<std::string, std::vector<std::string>> joined_sections(std::span<const StageLayers> stages);

/// A name belongs to one stage: statistics are matched by name. Empty, or the names that several stages have,
/// with their ranks and what to do.
std::string names_of_several_stages(std::span<const StageLayers> stages);

}  // namespace amaxscope
