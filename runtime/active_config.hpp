// A config at work: its features, what they have declared, and what the runtime adds for it. When the config
// changes one takes the place of another as a whole. Inside of DebugSession; not for users.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/guarded_groups.hpp"
#include "runtime/live/event_dump.hpp"
#include "runtime/quantizers/debug_quantizer.hpp"
#include "runtime/stats/device_results.hpp"
#include "runtime/stats/stat_store.hpp"

namespace amaxscope {

struct ActiveConfig {
  /// A section of the YAML at work.
  struct Section {
    const ConfigSection* config = nullptr;
    std::vector<std::unique_ptr<Feature>> features;
    std::vector<std::string> layers;  ///< matched on this rank
  };

  /// Makes the features. event_dump_bytes: for EventDump, where some feature dumps.
  ActiveConfig(Config checked, const FeatureRegistry& registry, GuardedGroups& groups, Log& log,
               std::int64_t event_dump_bytes);
  ActiveConfig(const ActiveConfig&) = delete;
  ActiveConfig& operator=(const ActiveConfig&) = delete;

  /// action(feature) for each that is at work, in the order of the file.
  template <class Action>
  void for_each_feature(Action&& action) const {
    for (const Section& section : sections) {
      for (const auto& feature : section.features) action(*feature);
    }
  }
  [[nodiscard]] bool any_feature() const;
  [[nodiscard]] bool triggers() const;
  /// "FakeQuant in section x"
  [[nodiscard]] std::vector<std::string> altering() const;
  /// Section -> layers it matched on this rank.
  [[nodiscard]] std::map<std::string, std::vector<std::string>> section_layers() const;
  /// Of the job, where they are known: after the first step, on one rank of each pipeline stage.
  [[nodiscard]] std::map<std::string, std::vector<std::string>> layers_of_all_stages() const {
    return joined_layers.empty() ? section_layers() : joined_layers;
  }

  /// The features for a GEMM layer; notes it in their sections.
  std::vector<Feature*> match(const LayerDescription& layer);
  /// The features for a tensor that belongs to no GEMM; notes it in their sections.
  std::vector<Feature*> match(const InspectedTensor& tensor, bool base);
  void register_tensor(Feature& feature, const InspectedTensor& tensor);

  /// What features have learned so far goes on where the same feature stands in a section of the same name.
  void take_over(const ActiveConfig& from, Log& log);

  Config config;
  std::vector<Section> sections;
  std::map<std::string, std::vector<std::string>> joined_layers;  ///< see layers_of_all_stages
  bool observing = false;                                         ///< some section observes
  StatStore stats;
  DeviceResults device_results;
  std::unique_ptr<EventDump> event_dump;  ///< null: no feature dumps
  std::unique_ptr<RegistrationAgreement> tp_agreement;
  std::int64_t next_due = 0;          ///< first iteration at which step() has statistics to reduce
  bool registrations_changed = true;  ///< since next_due was looked up

 private:
  void add_event_dump(std::vector<Feature*>& features) const;
};

/// What a config makes of one layer.
struct LayerParts {
  std::vector<Feature*> features;
  std::array<std::unique_ptr<DebugQuantizer>, kAllTensors.size()> quantizers;  ///< by TensorKind
};

}  // namespace amaxscope
