// The debug session: one for a training run on each rank. See docs/architecture.md for the picture.
//
// Ownership: owns features, statistics, sinks and its own communicators (splits of those it is given, so its
// traffic never meets the trainer's). Borrowed groups must outlive it, and so must streams of a device, with
// their backends, on which tensors were handed in. Operands that were made in it may outlive it: they hold
// the CPU threads that compute on them (a Tensor of dequantize() does not: it lives no longer than they).
// Layers' handles end with it. Thread safety: one thread at a time. Two sessions can live in one process.
// Blocking: construction with a config, freeze(), step() with something due and close() talk to the other
// ranks of a group, up to the deadline; everything else is local. A step with nothing due does no collective,
// takes no lock and allocates nothing.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/flight_recorder.hpp"
#include "collectives/process_groups.hpp"
#include "core/environment.hpp"
#include "core/log.hpp"
#include "runtime/feature/registry.hpp"
#include "runtime/layer.hpp"
#include "runtime/quantizers/debug_quantizer.hpp"
#include "runtime/sinks/sink.hpp"

namespace amaxscope {

/// What happens when ranks disagree or a deadline passes (diagnosis section 7). A log that cannot be written
/// ends nothing: see write_failure().
enum class FailurePolicy {
  kDetach,  ///< stop observing, say so once, let the training go on
  kAbort,   ///< end the job: going on would train on garbage
};

enum class ReplicaCounting {
  kOnce,  ///< a replicated tensor counts once in sums, norms and counts
  kTe,    ///< every replica counts, as in the reference
};

/// The groups of this rank. A null group stands for "only this rank".
struct SessionGroups {
  Communicator* world = nullptr;
  Communicator* tp = nullptr;
  Communicator* dp_cp = nullptr;
  /// All ranks of this pipeline stage: tp-dp-cp. When it is not the whole world the first step compares the
  /// names of layers and observed tensors over the stages: a name belongs to one of them.
  Communicator* stage = nullptr;
  static SessionGroups from(const ProcessGroups& groups);
};

struct SessionOptions {
  std::optional<std::filesystem::path> config_path;
  std::optional<std::string> config_text;  ///< instead of a path
  std::filesystem::path log_dir;           ///< empty: no files
  std::int64_t first_iteration = 0;
  /// None: detach when every configured feature only observes, else abort.
  std::optional<FailurePolicy> failure_policy;
  std::chrono::milliseconds deadline = std::chrono::minutes(10);
  AmaxScope amax_scope = AmaxScope::kTensor;
  ReplicaCounting replica_counting = ReplicaCounting::kOnce;
  /// Iterations between polls of the ranks, where something needs them. None: 1 when a feature's findings set
  /// off the job, else 10.
  std::optional<std::int64_t> poll_every;
  /// Rank 0 of the world looks at config_path at every poll; an edited file takes effect on all ranks.
  bool watch_config = false;
  bool replaceable_config = false;  ///< replace_config() may be called
  /// SIGUSR1 asks for the state of the runtime (events/ under log_dir), from now on until the session ends.
  bool dump_on_signal = false;
  std::size_t ring_steps = 16;  ///< steps with statistics that are kept for the record of an event
  std::int64_t event_dump_bytes = 256 << 20;       ///< of tensors, that a rank writes at most around events
  bool log_all_ranks = false;                      ///< records of every rank of a group instead of its leader
  bool strict = false;                             ///< a section that matches no layer is an error
  std::map<std::string, std::string> run_options;  ///< the trainer's, for run.json
  std::vector<std::shared_ptr<Sink>> extra_sinks;
  /// The flight record of this rank, which may be shared with the trainer's communicators. None, with a
  /// log_dir: the session keeps one in log_dir/flight. See docs/failures.md.
  std::shared_ptr<FlightRecorder> flight;
  Environment environment;
};

/// What a registered layer is used through; cheap to copy, valid as long as the session.
class LayerHandle {
 public:
  LayerHandle() = default;
  /// Whether anything may happen in this layer at the current iteration: one integer comparison.
  [[nodiscard]] bool active() const noexcept { return gate_ != nullptr && *gate_->now >= gate_->next; }
  /// The debug quantizer of a tensor, ready for this iteration; null when nothing is to be done after all
  /// (the layer is then inactive until it next may act). Call it when active().
  [[nodiscard]] DebugQuantizer* quantizer(TensorKind tensor) const;
  /// Where the weight's values are, for weights_are_final(), which asks; it must be possible to as long as
  /// that is called. Does nothing where nothing can happen in this layer.
  void set_weight(std::function<TensorView()> values) const;

 private:
  friend class DebugSession;
  struct Gate {
    const std::int64_t* now = nullptr;
    std::int64_t next = 0;
  };
  struct State;
  Gate* gate_ = nullptr;
  State* state_ = nullptr;
};

/// Quantizers of the recipe for the three operands; null in high precision.
struct OperandQuantizers {
  std::shared_ptr<Quantizer> activation;
  std::shared_ptr<Quantizer> weight;
  std::shared_ptr<Quantizer> gradient;
};

class DebugSession {
 public:
  /// Collective over groups.world when a config is given: rank 0's bytes are used everywhere, a rank that
  /// reads other bytes is an error that shows both digests. Throws Error(kConfig) on all ranks alike.
  DebugSession(const FeatureRegistry& registry, const SessionGroups& groups, SessionOptions options);
  ~DebugSession();  ///< closes without talking to other ranks; a run that was not closed stays marked so
  DebugSession(const DebugSession&) = delete;
  DebugSession& operator=(const DebugSession&) = delete;

  /// Registers a GEMM layer. Throws Error(kConfig) when a feature cannot serve it or features conflict on it,
  /// naming the layer and the sections; Error(kUsage) for a name that is taken.
  LayerHandle layer(const LayerDescription& description, OperandQuantizers parents = {});
  /// Compares the registrations of the ranks now instead of at the first collective or step.
  void freeze();

  [[nodiscard]] std::int64_t iteration() const noexcept;
  /// Something is configured, or may be while the run goes on, and the session has not detached.
  [[nodiscard]] bool enabled() const noexcept;
  [[nodiscard]] bool detached() const noexcept;
  /// What this rank could not write to a log, the first time; that log has what came before, whole, and
  /// nothing after. Observing goes on, and so does a feature that alters numerics: ranks agree as before.
  /// Under the policy kAbort a run whose logs are not complete has failed, which the trainer says at its end.
  [[nodiscard]] const std::optional<std::string>& write_failure() const noexcept;

  /// No weight changes from now on until the next step(). Amaxes over tp that features take of weights in
  /// this iteration are reduced now, in one call for all layers that were told where their weight is; without
  /// it there is one collective for each. Local when there are none, else collective over tp. Errors end what
  /// they end in step().
  void weights_are_final();

  /// The trainer's loss, gradient norm, learning rate, ...; written by rank 0 of the world with this
  /// iteration.
  void scalar(std::string_view name, double value);
  /// Any tensor that is not a GEMM operand. kind: residual, norm_weight, logits, parameter, ... Sections with
  /// `observe:` choose by name. Registers itself at its first appearance. Free when no section observes.
  void observe(std::string_view name, std::string_view kind, const TensorView& view, Layout layout,
               const TensorMoment& moment = {});
  /// Whether observe_update() of this name would do anything in this iteration: ask before computing what it
  /// takes.
  [[nodiscard]] bool observes_update(std::string_view name, Layout layout);
  /// What an optimizer step is about to do to a parameter: an observed tensor of the kind "update".
  /// weight_before: as it is stored, in its own dtype; update: f32 or f64, what will be added to it, not yet
  /// rounded to the weight's dtype; normalized_gradient: g / sqrt(v) of Adam, null where there is none.
  void observe_update(std::string_view name, const TensorView& weight_before, const TensorView& update,
                      Layout layout, const TensorView* normalized_gradient = nullptr);
  /// Feeds the base namespace's LogTensorStats: `tensor` is a free name. group null: not reduced.
  void log_tensor_stats(std::string_view layer, std::string_view tensor, const TensorView& view,
                        Communicator* group = nullptr);
  /// Non-weight statistics are reduced over this group (null: not at all) instead of the built-in table.
  /// Before any layer is registered.
  void set_reduction_group(Communicator* group);

  /// Writes what must survive a restart (iteration, what features have learned so far) to
  /// dir/amaxscope_session_rank_R.safetensors, between two steps; local, replaces a file of that name, and is
  /// on the disk when this returns. Throws Error(kIo).
  void save_state(const std::filesystem::path& dir) const;
  /// Takes it up again: before the first step, after the layers are registered, under the same config and
  /// number of ranks. The iteration becomes the saved one. Local. Throws Error(kInput) for a file that is
  /// damaged or of another config, saying what differs, Error(kIo), Error(kUsage) after a step.
  void load_state(const std::filesystem::path& dir);

  /// Offers another config to all ranks, instead of the one in force (and of what a watched file held).
  /// Counts on rank 0 of the world, where it waits for the next poll; does nothing on another rank. It takes
  /// effect at the iteration after that poll, everywhere or nowhere. Handles of layers stay valid. A feature
  /// goes on with what it has learned where it stands in a section of the same name again, else it starts
  /// anew. Local. Throws Error(kConfig) for a text that is not valid, Error(kUsage) without
  /// SessionOptions::replaceable_config.
  void replace_config(const std::string& text);

  /// A training step that is captured into a CUDA graph and replayed (docs/cuda.md). The order is
  ///   begin_capture(stream); cudaStreamBeginCapture; forward, backward; cudaStreamEndCapture; end_capture();
  ///   then in each iteration before_replay(); cudaGraphLaunch on that stream; step();
  /// and before_replay() again before each further launch in an iteration. Capturing is no iteration. Between
  /// begin_capture() and end_capture() hooks record what any later iteration may need, guarded in device
  /// memory by whether it is due. What alters numerics is recorded as this iteration has it. A feature that
  /// needs the host is refused with its name, layer and tensor, as an error of a hook. All do nothing where
  /// nothing is configured. begin_capture: after the first step(); stream: of the step's tensors, with its
  /// backend. Throws Error(kUsage).
  void begin_capture(Stream stream);
  void end_capture();
  /// Whether this iteration is not what was captured last: another config is in force, or a feature that
  /// alters numerics begins or ends. Then the step is to be captured again.
  [[nodiscard]] bool needs_capture();
  /// Tells the device what is due in this iteration. Does not wait. Throws Error(kUsage) when
  /// needs_capture().
  void before_replay();

  /// Ends an iteration: reduces what is due, writes it, advances. Collective over a group that has something
  /// due, and over the world at the first step and when a poll is. Throws Error(kStopped), the same on all
  /// ranks of the world, when a feature ends the run, as its config asked (action: stop).
  void step();
  /// Flushes and marks the run closed. Idempotent; does not talk to other ranks.
  void close();

  [[nodiscard]] Log& log() noexcept;
  /// Sections and the layers they matched on this rank, for a table.
  [[nodiscard]] std::map<std::string, std::vector<std::string>> section_layers() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace amaxscope
