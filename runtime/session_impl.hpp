// Inside of DebugSession; not for users.
#pragma once

#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/worker_pool.hpp"
#include "runtime/active_config.hpp"
#include "runtime/guarded_groups.hpp"
#include "runtime/live/config_watch.hpp"
#include "runtime/live/poll.hpp"
#include "runtime/live/recent_steps.hpp"
#include "runtime/live/signal_flag.hpp"
#include "runtime/session.hpp"
#include "runtime/sinks/run_file.hpp"
#include "runtime/stage_layers.hpp"

namespace amaxscope {

/// The iteration of what is due in none.
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// A registered GEMM layer with something configured on it, or on which something may be when the config
/// changes.
struct LayerHandle::State {
  LayerDescription description;
  OperandQuantizers parents;
  DebugServices services;
  LayerParts parts;  ///< quantizers: none without features
  std::function<TensorView()> weight = {};
  Gate gate;
  std::int64_t planned_iteration = -1;
  bool any_enabled = false;

  void begin_capture();
  void end_capture();

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
  void weights_are_final();
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
  void replace_config(const std::string& text);
  void begin_capture(Stream stream);
  void end_capture();
  [[nodiscard]] std::string changed_since_capture();
  void before_replay();
  void step();
  void close();

  [[nodiscard]] std::map<std::string, std::vector<std::string>> section_layers() const;

  std::int64_t iteration = 0;
  bool enabled = false;
  bool detached = false;
  std::optional<std::string> write_failure;
  Log log;

 private:
  /// A tensor that belongs to no GEMM: observed, or of the base namespace.
  struct FreeTensor {
    InspectedTensor tensor;
    std::vector<Feature*> features;
    std::int64_t next = 0;
    StatPlacement placement;
    bool base = false;
  };
  /// Another config, made ready to take the place of the one in force.
  struct Change {
    std::unique_ptr<ActiveConfig> active;
    std::vector<std::pair<LayerHandle::State*, LayerParts>> layers;
    std::vector<std::pair<FreeTensor*, std::vector<Feature*>>> free_tensors;
  };
  /// The text of a config and where it comes from.
  struct ConfigText {
    std::string source;
    std::string text;
  };

  void start();
  void open_flight();
  void open_sinks();
  void write_run();
  void attach_features(ActiveConfig& active);
  void make_tp_agreement(ActiveConfig& active);
  /// Whether a config may come that is not there yet.
  [[nodiscard]] bool accepts_changes() const noexcept {
    return options_.watch_config || options_.replaceable_config;
  }
  [[nodiscard]] Stream cpu_stream() const noexcept {
    return workers_ != nullptr ? workers_->stream() : Stream{};
  }
  [[nodiscard]] bool is_world_leader() const noexcept;
  [[nodiscard]] bool alters_numerics() const;
  [[nodiscard]] FailurePolicy failure_policy() const;

  /// The features for a layer, after they have agreed to serve it. Throws Error(kConfig).
  std::vector<Feature*> admit(const LayerDescription& description, ActiveConfig& active);
  /// Makes the debug quantizers and declares what the features want to know.
  LayerParts make_parts(const LayerHandle::State& state, std::vector<Feature*> features,
                        ActiveConfig& active);
  FreeTensor& free_tensor(std::string_view name, std::string_view tensor, Layout layout, Phase phase,
                          bool base, Communicator* group);
  /// Whether the amax of this layer's weight is taken over tp in this iteration.
  [[nodiscard]] bool takes_weight_amax(const LayerHandle::State& state) const;
  /// Declares what the features want to know of it.
  static void register_free(const FreeTensor& target, const std::vector<Feature*>& features,
                            ActiveConfig& active);
  /// Feeds what kernels have left in device memory.
  void fetch_device_results();
  void inspect_free(FreeTensor& target, const TensorView& view, const TensorMoment& moment,
                    const TensorView* weight = nullptr, const TensorView* normalized_gradient = nullptr);

  [[nodiscard]] bool has_other_stages() const noexcept;
  void join_stage_leaders();
  void first_step();
  /// What is to be said of sections and what they match; notes the layers of all stages in the config.
  /// Collective over the world; throws on all ranks Error(kConfig) in strict mode, Error(kMismatch) when
  /// stages share names.
  void report_sections(ActiveConfig& active);
  /// By section: whether any rank of the world has a layer of it. Also says which took layers by a part of a
  /// number.
  std::vector<bool> sections_in_use(const ActiveConfig& active);
  [[nodiscard]] StageLayers own_stage(const ActiveConfig& active) const;
  /// Of all stages on one rank of each, of the own one on the others.
  std::vector<StageLayers> gather_stages(const ActiveConfig& active);
  void report_idle_sections(const ActiveConfig& active, const std::vector<bool>& used,
                            const std::vector<StageLayers>& stages);
  void write_step(const std::vector<StatRecord>& records, const std::vector<Event>& events);
  /// For writes: a refusal of the system is said and remembered. Returns whether it went well.
  template <class Write>
  bool written(Write&& write);
  /// Logs it now; the sinks get it with the step, the other ranks with the next poll. feature: whose finding
  /// it is, or null.
  void report(const Feature* feature, Finding finding);
  /// Polls the ranks from now on when something needs it. Collective over the world.
  void start_poll();
  /// What all ranks have to say, when a poll is due; the same on all of them. change: a new config.
  std::vector<Event> poll(std::optional<ConfigText>& change);
  void raise_signal();
  void look_for_config();
  /// A new config that is valid waits for the next poll; another is reported and forgotten.
  void offer_config(ConfigText offered);
  [[nodiscard]] ConfigText share_config(std::size_t bytes);
  /// Whether the stage went well on all ranks; what went wrong is logged. Collective over the world.
  bool all_ready(const ConfigText& text, const std::function<void()>& stage);
  /// Collective. Null: it cannot be served, and the one in force stays.
  std::unique_ptr<Change> prepare_change(const ConfigText& text, std::vector<Event>& events);
  /// From the iteration that begins now.
  void commit(std::unique_ptr<Change> change);
  /// Writes what led to the events, on every rank.
  void record_events(const std::vector<Event>& events);
  /// Writes what the runtime is doing, and says where.
  void write_state_report();
  /// After the step: dumps in the iteration that begins now. Throws Error(kStopped), the same on all ranks.
  void act_on(const std::vector<Event>& events);
  [[nodiscard]] int own_rank() const;
  [[nodiscard]] std::filesystem::path state_file(const std::filesystem::path& dir) const;
  /// After an error of the runtime's own: detaches, or ends the job. Returns only when detached.
  void fail(const std::exception& error);
  /// The same, said in these words, for errors that end no run while everything only observes.
  void give_up(const std::exception& error, const std::string& what);
  void hook_failed(const Feature& feature, const InspectedTensor& tensor, bool altering,
                   const std::exception& error);
  void detach(std::string_view why);

  const FeatureRegistry registry_;  ///< a copy: configs that come later are read with it
  SessionGroups groups_;
  PlacementGroups placement_;
  SessionOptions options_;
  RunDescription run_;
  std::shared_ptr<WorkerPool> workers_;  ///< of the kernels, and of operands; null: this thread does all

  std::shared_ptr<FlightRecorder> flight_;  ///< in memory when there is no directory for it
  bool own_flight_ = false;
  GuardedGroups guarded_;
  std::unique_ptr<ActiveConfig> active_;         ///< never null
  std::unique_ptr<Change> retired_;              ///< the config before; a late backward may still use it
  std::unique_ptr<Communicator> stage_leaders_;  ///< in pipeline jobs, on one rank of each stage
  std::unique_ptr<AmaxReducer> tp_amax_;
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
  std::optional<SignalFlag> signal_;
  std::chrono::steady_clock::time_point signal_answered_{};
  std::optional<ConfigWatch> watch_;   ///< of the first rank of the world
  std::optional<ConfigText> offered_;  ///< valid, not yet told to the others
  RecentSteps recent_steps_;
  bool captured_ = false;         ///< a step, at some time
  bool config_changed_ = false;   ///< since then
  bool told_of_replays_ = false;  ///< that one was not announced
  std::vector<std::pair<const InspectedTensor*, std::string>> captured_formats_;
  std::vector<std::shared_ptr<void>> captured_memory_;  ///< of configs before: graphs may still name it
  std::int64_t event_records_ = 0;
  bool stepped_ = false;
  bool closed_ = false;
};

}  // namespace amaxscope
