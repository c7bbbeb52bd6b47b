// What a debug feature is: decisions that depend only on the agreed config and the iteration, and the work
// itself.
//
// One Feature object exists for each mention in the YAML; it sees all layers its section matched. Hooks are
// called by the thread that runs the layer. A decision must be a pure function of layer, names and iteration,
// so that all ranks decide alike without talking. An exception from a hook is reported with the feature's
// name.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/amax_reducer.hpp"
#include "kernels/content_hash.hpp"
#include "kernels/tensor_stats.hpp"
#include "runtime/config/feature_config.hpp"
#include "runtime/feature/event.hpp"
#include "runtime/feature/finding.hpp"
#include "runtime/feature/gemm_inputs.hpp"
#include "runtime/layer.hpp"
#include "runtime/quantizers/quantizer.hpp"
#include "runtime/stats/accumulator.hpp"

namespace amaxscope {

class DeviceResults;  // runtime/stats/device_results.hpp
class HostView;       // runtime/feature/host_view.hpp

/// enabled now, and the next iteration at which that may change (none: never). All iterations from now up to,
/// not including, `next` have the same answer: something due once in ten iterations answers {true, i + 1}
/// when it is due and {false, the next multiple of ten} when it is not.
struct Decision {
  bool enabled = false;
  std::optional<std::int64_t> next;

  static Decision never() { return {false, std::nullopt}; }
  static Decision always() { return {true, std::nullopt}; }
  /// From a schedule: enabled when due; next is the first later iteration whose answer differs.
  static Decision of(const Schedule& schedule, std::int64_t iteration);
};

/// The smaller of two iterations, where none stands for never.
std::optional<std::int64_t> earlier(std::optional<std::int64_t> a, std::optional<std::int64_t> b) noexcept;

/// A tensor that is inspected: a GEMM tensor (kind set), or an observed one or one of the base namespace.
struct InspectedTensor {
  std::string layer;  ///< layer or observed name
  std::string name;   ///< "activation"; of an observed tensor its kind ("residual")
  std::optional<TensorKind> kind;
  const LayerDescription* description = nullptr;  ///< null for tensors that belong to no GEMM layer
  Layout layout = Layout::kReplicated;
  const Communicator* tp_group = nullptr;  ///< over which it lies by its layout; null: one rank, or not known
  Phase training_phase = Phase::kForward;
  RecipeKind recipe = RecipeKind::kNone;
  bool same_over_dp = false;  ///< data-parallel ranks hold replicas (weights), not other tokens
};

/// Two accumulators for the same numbers, so that evaluation never mixes with training.
struct StatCell {
  std::unique_ptr<StatAccumulator> train;
  std::unique_ptr<StatAccumulator> eval;
  [[nodiscard]] StatAccumulator& of(Phase phase) const { return phase == Phase::kEval ? *eval : *train; }
};

/// Which ranks a check compares; numbers that people read use the table of placement.hpp instead.
enum class ReduceOver {
  kTensorParallel,  ///< tp: ranks that share a scale or hold one replicated tensor
  kReplicas,  ///< ranks that hold the same part: dp of a split weight, tp of a replicated activation, ...
  kStage,     ///< all ranks of the pipeline stage
};

/// What a feature may do when it is told of a tensor. Owned by the session; valid during the call only.
class Registration {
 public:
  virtual ~Registration() = default;
  /// Declares a statistic of this tensor, due by this schedule. An identical one (same accumulator id, same
  /// schedule) already declared is shared: the first to feed it in an iteration counts. make() is called
  /// twice. The cell lives as long as the session.
  virtual StatCell& declare(const InspectedTensor& tensor, const Schedule& schedule,
                            const std::function<std::unique_ptr<StatAccumulator>()>& make) = 0;
  /// The same for a check, which every rank of these takes part in, replicas included. The tensor must live
  /// as long as the session. Not shared: each call is an entry of its own, so the accumulator's id must be
  /// unique for the tensor.
  virtual StatCell& declare_over(ReduceOver over, const InspectedTensor& tensor, const Schedule& schedule,
                                 const std::function<std::unique_ptr<StatAccumulator>()>& make) = 0;
  /// One warning for each (layer, statistic) that cannot be given, and why.
  virtual void skip(const InspectedTensor& tensor, std::string_view statistic, std::string_view why) = 0;
};

struct ModifyContext {
  const LayerDescription& layer;
  TensorKind tensor;
  std::int64_t iteration;
  TensorMoment moment;
  const TensorView& x;           ///< high precision, never written
  Quantizer* default_quantizer;  ///< the recipe's; null without one
  Usage usage;                   ///< directions the result is used in
  const FeatureParams& params;
  AmaxScope amax_scope;  ///< the session's default, for features whose key does not say
  AmaxReducer* tp_amax;  ///< MAX over the layer's tp_group; null for one rank
};

struct InspectContext {
  const InspectedTensor& tensor;
  std::int64_t iteration;
  TensorMoment moment;
  const TensorView& x;  ///< the original; empty view (no data, numel 0, has_original false) otherwise
  bool has_original;    ///< false for weights that exist in FP8 only
  const QuantizedTensor* rowwise;     ///< operand of the rowwise GEMM, null for results and observed tensors
  const QuantizedTensor* columnwise;  ///< may be the same object
  const Quantizer* quantizer;         ///< the recipe's; null without one
  AmaxReducer* tp_amax;
  [[nodiscard]] const QuantizedTensor* operand(Direction direction) const noexcept {
    return direction == Direction::kRowwise ? rowwise : columnwise;
  }
  /// Whether a feature made the operand of a direction instead of the recipe, by Direction.
  std::array<bool, 2> modified = {false, false};
  [[nodiscard]] bool is_modified(Direction direction) const noexcept {
    return modified[static_cast<std::size_t>(direction)];
  }
  /// Of a result, for a feature that needs_gemm_inputs and where the layer hands them in; else null. The
  /// originals are whole here: gathered over tp where the operand's codes are.
  const GemmInputs* gemm = nullptr;
  /// Beside an update: the weight it is about to be added to, as stored, and g / sqrt(v). Null: not given.
  const TensorView* weight = nullptr;
  const TensorView* normalized_gradient = nullptr;

  /// Where results of kernels wait for step(), so that the host does not. Null: there is none.
  DeviceResults* device_results = nullptr;
  /// Whether what kernels can count is to go there.
  [[nodiscard]] bool defers() const noexcept {
    return device_results != nullptr && has_original && x.device().kind != DeviceKind::kCpu;
  }
  /// Whether this is recorded into a CUDA graph: nothing has a value, replays do what is enqueued now.
  [[nodiscard]] bool captured() const noexcept;

  mutable std::shared_ptr<const HostView> host_view = nullptr;
  /// The same with every tensor on the host, for what is computed there only: this one itself where they are
  /// there, else copies, made once for all features that inspect this tensor now. The host waits for the
  /// device. Valid as long as this. Throws Error(kUsage) while captured(), Error(kTensor) for operands of a
  /// kind that only their maker knows.
  [[nodiscard]] const InspectContext& on_host() const;

  /// What moments() has computed; start with none.
  mutable std::optional<TensorMoments> cached_moments = std::nullopt;
  mutable MomentOrder cached_order = MomentOrder::kSecond;

  /// tensor_stats(x), computed once for all features that inspect this tensor now (a second time when a later
  /// one asks for a higher order).
  const TensorMoments& moments(MomentOrder order = MomentOrder::kSecond) const;

  mutable std::optional<ContentParts> cached_content = std::nullopt;
  /// content_parts(x), computed once.
  [[nodiscard]] const ContentParts& content() const;

  mutable std::optional<std::uint32_t> cached_amax = std::nullopt;
  /// amax_bits(x), computed once.
  [[nodiscard]] std::uint32_t amax() const;
};

/// What a feature keeps over a restart: words by name. Floating-point numbers as their bits.
using FeatureState = std::map<std::string, std::vector<std::uint64_t>>;

/// What a session says and listens to when it tells a feature of a layer.
struct LayerTerms {
  AmaxScope amax_scope = AmaxScope::kTensor;          ///< the session's default
  std::function<void(const std::string&)> warn = {};  ///< a message to people; empty: nobody listens
};

/// What a session lends to its features, for as long as they live.
struct FeatureServices {
  /// Logs and records a finding of this rank; sets off what the feature's trigger() says.
  std::function<void(Finding)> report;
  std::function<void(const std::string&)> warn;  ///< a message to people
  /// A number of this rank, written with the step's scalars by the first rank of the world.
  std::function<void(std::string_view, double)> scalar;
  std::filesystem::path log_dir;  ///< empty: no files
  int world_rank = 0;
  /// World ranks of this rank's groups, itself included.
  std::vector<int> tp_ranks;
  std::vector<int> dp_ranks;     ///< that hold other tokens: dp x cp
  std::vector<int> stage_ranks;  ///< of the pipeline stage
};

class Feature {
 public:
  explicit Feature(FeatureConfig config) : config_(std::move(config)) {}
  virtual ~Feature() = default;
  Feature(const Feature&) = delete;
  Feature& operator=(const Feature&) = delete;

  [[nodiscard]] const FeatureConfig& config() const noexcept { return config_; }
  /// "FakeQuant of section fc1 (line 12)", for messages.
  [[nodiscard]] std::string label() const;

  /// True when the feature can change what is trained: listed in the run header, aborts instead of detaching.
  [[nodiscard]] virtual bool alters_numerics() const = 0;

  /// Called once, before anything else, when the feature is part of a session.
  virtual void attach(const FeatureServices&) {}
  /// Called once, after attach(), for what belongs to no tensor (scalars that must agree). Collective over
  /// the groups that it declares over.
  virtual void register_session(Registration&) {}

  /// Called once for each matching layer, before its first use. Throws Error(kConfig) for a layer the feature
  /// cannot serve, with the layer's name.
  virtual void check_layer(const LayerDescription&) const {}
  /// What a session calls: check_layer, unless a feature needs the session's terms or has something to say
  /// about a layer that it serves.
  virtual void admit_layer(const LayerDescription& layer, const LayerTerms&) const { check_layer(layer); }
  /// Called once for each tensor that may be inspected; declares its statistics.
  virtual void register_tensor(const InspectedTensor&, Registration&) {}

  /// High precision wins as soon as one feature answers "not enabled".
  [[nodiscard]] virtual Decision fp8_gemm_enabled(const LayerDescription&, Gemm, std::int64_t) const {
    return Decision::always();
  }
  [[nodiscard]] virtual Decision modify_tensor_enabled(const LayerDescription&, Gemm, TensorKind,
                                                       std::int64_t) const {
    return Decision::never();
  }
  [[nodiscard]] virtual Decision inspect_tensor_enabled(const InspectedTensor&, std::int64_t) const {
    return Decision::never();
  }
  /// Whether modify_tensor returns codes (true) or high precision: lets mixed GEMMs be refused at
  /// registration.
  [[nodiscard]] virtual bool modifies_to_quantized(const LayerDescription&, Gemm, TensorKind) const {
    return false;
  }
  /// Whether a hook will take the amax of this weight over the ranks of tp in this iteration, so that those
  /// of all weights can be reduced together before any layer runs. Like every decision the same on all ranks;
  /// yes when in doubt costs one word of that reduction.
  [[nodiscard]] virtual bool takes_amax_over_tp(const InspectedTensor& /*weight*/, std::int64_t /*iteration*/,
                                                AmaxScope /*session_default*/) const {
    return false;
  }
  /// Whether inspect_tensor wants InspectContext::gemm of results: layers then keep originals until they are
  /// used.
  [[nodiscard]] virtual bool needs_gemm_inputs() const { return false; }
  /// Whether a tensor modified with the same keys in both directions is the same in both, so that one call of
  /// modify_tensor serves them.
  [[nodiscard]] virtual bool directions_alike(const FeatureParams&) const { return true; }
  /// A new tensor with (at least) the directions of ctx.usage. For a result of a GEMM its values replace the
  /// result. Throws Error(kInternal) in a feature that does not override it.
  [[nodiscard]] virtual std::shared_ptr<QuantizedTensor> modify_tensor(const ModifyContext&);
  virtual void inspect_tensor(const InspectContext&) {}
  /// Whether inspect_tensor can be recorded into a CUDA graph (InspectContext::captured()). It is then called
  /// for every tensor that it may look at in some later iteration, and throws Error(kUsage) for what it
  /// cannot record. Others are refused when a step is captured.
  [[nodiscard]] virtual bool captures() const { return false; }
  /// An operand that was made before is used again (a cached weight in a later micro-batch or in backward); x
  /// is what it should stand for now. Called when inspect_tensor_enabled says so.
  virtual void inspect_reuse(const InspectContext&) {}
  /// A scalar of the trainer, on every rank that has it.
  virtual void inspect_scalar(std::string_view, double) {}
  /// Called in step(), before what is due is reduced. Local: no collective.
  virtual void end_iteration(std::int64_t) {}

  /// What all ranks do together when this feature has a finding, on whichever rank. Anything but kNone makes
  /// the session poll the ranks. A function of the config alone.
  [[nodiscard]] virtual EventAction trigger() const { return EventAction::kNone; }
  /// Hands over what the feature remembers of the last tensors on this rank, oldest first, for the record of
  /// an event.
  virtual void recent(const std::function<void(RecentTensor)>&) const {}

  /// What must survive a restart; between two steps. Keys are the feature's own.
  virtual void save_state(FeatureState&) const {}
  virtual void load_state(const FeatureState&) {}

 private:
  FeatureConfig config_;
};

}  // namespace amaxscope
