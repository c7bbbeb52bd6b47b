// Inside of DebugSession; not for users.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/guarded_groups.hpp"
#include "runtime/live/poll.hpp"
#include "runtime/session.hpp"
#include "runtime/sinks/run_file.hpp"
#include "runtime/stats/stat_store.hpp"

namespace amaxscope {

/// A registered GEMM layer with something configured on it.
struct LayerHandle::State {
  LayerDescription description;
  DebugServices services;
  std::vector<Feature*> features;
  std::array<std::unique_ptr<DebugQuantizer>, kAllTensors.size()> quantizers;  ///< by TensorKind
  Gate gate;
  std::int64_t planned_iteration = -1;
  bool any_enabled = false;

  /// Plans the current iteration once; closes the gate until the next one that may matter when there is
  /// nothing.
  void plan();
};

class DebugSession::Impl {
 public:
  Impl(const FeatureRegistry& feature_registry, const SessionGroups& session_groups,
       SessionOptions session_options);
  ~Impl();

  LayerHandle layer(const LayerDescription& description, OperandQuantizers parents);
  void freeze();
  void scalar(std::string_view name, double value);
  void observe(std::string_view name, std::string_view kind, const TensorView& view, Layout layout,
               const TensorMoment& moment);
  bool observes_update(std::string_view name, Layout layout);
  void observe_update(std::string_view name, const TensorView& weight_before, const TensorView& update,
                      Layout layout, const TensorView* normalized_gradient);
  void log_tensor_stats(std::string_view layer_name, std::string_view tensor, const TensorView& view,
                        Communicator* group);
  void set_reduction_group(Communicator* group);
  void save_state(const std::filesystem::path& dir) const;
  void load_state(const std::filesystem::path& dir);
  void step();
  void close();

  [[nodiscard]] std::map<std::string, std::vector<std::string>> section_layers() const;

  std::int64_t iteration = 0;
  bool enabled = false;
  bool detached = false;
  Log log;

 private:
  /// A section of the YAML at work.
  struct Section {
    const ConfigSection* config = nullptr;
    std::vector<std::unique_ptr<Feature>> features;
    std::vector<std::string> layers;  ///< matched on this rank
  };
  /// A tensor that belongs to no GEMM: observed, or of the base namespace.
  struct FreeTensor {
    InspectedTensor tensor;
    std::vector<Feature*> features;
    std::int64_t next = 0;
  };

  /// action(feature) for each that is at work, in the order of the file.
  template <class Action>
  void for_each_feature(Action&& action) const {
    for (const Section& section : sections_) {
      for (const auto& feature : section.features) action(*feature);
    }
  }

  void start();
  void open_sinks();
  void write_run();
  void make_features();
  void attach_features();
  [[nodiscard]] bool is_world_leader() const noexcept;
  [[nodiscard]] bool alters_numerics() const;
  [[nodiscard]] FailurePolicy failure_policy() const;

  std::vector<Feature*> match_layer(const LayerDescription& description);
  void register_gemm_tensors(LayerHandle::State& state, const OperandQuantizers& parents);
  void register_tensor(Feature& feature, const InspectedTensor& tensor);
  FreeTensor& free_tensor(std::string_view name, std::string_view tensor, Layout layout, Phase phase,
                          bool base, Communicator* group);
  void register_free(FreeTensor& target, const StatPlacement& placement, bool base);
  void inspect_free(FreeTensor& target, const TensorView& view, const TensorMoment& moment,
                    const TensorView* weight = nullptr, const TensorView* normalized_gradient = nullptr);

  void first_step();
  void report_sections();
  /// Patterns of the section that took layers of this rank by a part of a number.
  [[nodiscard]] std::vector<std::string> number_hints(const Section& section) const;
  void write_step(const std::vector<StatRecord>& records, const std::vector<Event>& events);
  /// Logs it now; the sinks get it with the step, the other ranks with the next poll. feature: whose finding
  /// it is, or null.
  void report(const Feature* feature, Finding finding);
  /// Polls the ranks from now on when something needs it. Collective over the world.
  void start_poll();
  /// What all ranks have to say, when a poll is due; the same on all of them.
  std::vector<Event> agree_on_events();
  /// After the step. Throws Error(kStopped), the same on all ranks.
  void act_on(const std::vector<Event>& events) const;
  [[nodiscard]] int own_rank() const;
  [[nodiscard]] std::filesystem::path state_file(const std::filesystem::path& dir) const;
  /// After an error of the runtime's own: detaches, or ends the job. Returns only when detached.
  void fail(const std::exception& error);
  /// The same, said in these words, for errors that end no run while everything only observes.
  void give_up(const std::exception& error, const std::string& what);
  void hook_failed(const Feature& feature, const InspectedTensor& tensor, bool altering,
                   const std::exception& error);
  void detach();

  const FeatureRegistry& registry_;
  SessionGroups groups_;
  PlacementGroups placement_;
  SessionOptions options_;
  Config config_;
  RunDescription run_;
  std::vector<Section> sections_;
  bool observing_ = false;  ///< some section observes

  GuardedGroups guarded_;
  StatStore stats_;
  std::unique_ptr<AmaxReducer> tp_amax_;
  std::unique_ptr<RegistrationAgreement> tp_agreement_;
  std::map<std::string, std::unique_ptr<LayerHandle::State>, std::less<>> layers_;
  std::set<std::string, std::less<>> layer_names_;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<FreeTensor>> free_tensors_;
  std::set<std::string, std::less<>> observed_names_;

  std::vector<std::shared_ptr<Sink>> sinks_;
  Scalars scalars_;
  std::vector<Finding> findings_;  ///< reported since the last step
  std::optional<Poll> poll_;
  std::optional<std::int64_t> poll_every_;  ///< none: nothing needs it
  std::vector<Event> raised_;               ///< on this rank since the last poll
  std::int64_t next_due_ = 0;               ///< first iteration at which step() has statistics to reduce
  bool registrations_changed_ = true;       ///< since next_due_ was looked up
  bool stepped_ = false;
  bool closed_ = false;
};

}  // namespace amaxscope
