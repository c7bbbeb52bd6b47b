// The training loop: micro-batches, gradient reductions, optimizer, recipe state and debug session, in this
// order. Used by one thread. Everything that trains is collective over tp, dp and pp. Losses and gradient
// norms are the same on all ranks; with several pipeline stages (pipeline.hpp) they and the weights have the
// bits that one stage gives them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "megatron/adam.hpp"
#include "megatron/context.hpp"
#include "megatron/faults.hpp"
#include "megatron/gpt.hpp"
#include "megatron/learning_rate.hpp"
#include "megatron/state.hpp"
#include "megatron/training_faults.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"
#include "runtime/session.hpp"

namespace amaxscope::megatron {

/// Borrowed; null stands for "only this rank".
struct TrainerGroups {
  Communicator* world = nullptr;
  Communicator* tp = nullptr;
  Communicator* dp = nullptr;
  Communicator* amax = nullptr;  ///< of delayed scaling's histories: tp-dp-cp, of this stage
  Communicator* pp = nullptr;    ///< the stages of this rank's model, in their order
};

struct TrainerOptions {
  GptOptions model;
  RecipeKind recipe = RecipeKind::kNone;
  DType dtype = DType::kF32;
  bool sequence_parallel = false;
  bool fp8_weights = false;  ///< weights exist as the recipe's codes and as masters; needs a recipe
  GemmArithmetic arithmetic = GemmArithmetic::kBlas;
  int micro_batches = 1;
  std::uint64_t seed = 1;
  LearningRate learning_rate;
  AdamOptions adam;      ///< its learning_rate is not used
  double clip_norm = 0;  ///< 0: gradients are not clipped
  DelayedScalingOptions delayed;
  std::int64_t eval_every = 0;  ///< iterations; 0: never. Needs Trainer::set_evaluation
  std::vector<Fault> faults;    ///< none on a device
  /// With a backend: what the linear layers compute on (LayerContext::device). Outlives the trainer; tp must
  /// take its tensors then.
  Stream device = {};
  std::int64_t first_iteration = 0;
};

struct StepReport {
  std::int64_t iteration = 0;
  double loss = 0;           ///< nats per token, mean over micro-batches and dp
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;
  std::optional<double> evaluation_loss = {};  ///< of the weights that the iteration began with
};

/// The batch of a micro-batch of an iteration on this data-parallel rank; the same on all ranks of tp and pp.
/// May be asked for the same batch again.
using BatchSource = std::function<Batch(std::int64_t iteration, int microbatch)>;
/// `batch` sequences of model.sequence tokens for each micro-batch. data must outlive the source.
BatchSource text_batches(const TextData& data, const TrainerOptions& options, std::int64_t batch,
                         int dp_rank);

/// The same on batches of their own, which training never draws.
BatchSource evaluation_batches(const TextData& data, const TrainerOptions& options, std::int64_t batch,
                               int dp_rank);

class Trainer {
 public:
  /// session may be null. groups and session must outlive the trainer. Throws Error(kUsage) as Gpt does.
  Trainer(const TrainerOptions& options, const TrainerGroups& groups, DebugSession* session);

  /// One iteration. The session, if any, is told of loss, grad_norm, learning_rate, of the parameters the
  /// iteration computed with, and that the iteration is over.
  StepReport step(const BatchSource& batches);
  /// What iterations that are multiples of eval_every begin with: the mean loss over micro-batches 0 ..
  /// count-1 of these, told to the session as the scalar eval_loss.
  void set_evaluation(BatchSource batches, int count);
  /// `steps` iterations, on_step after each.
  void run(std::int64_t steps, const BatchSource& batches,
           const std::function<void(const StepReport&)>& on_step);
  /// Mean loss over micro-batches 0 .. count-1 of the coming iteration, in Phase::kEval: no gradient, no
  /// history.
  double evaluate(const BatchSource& batches, int count);

  /// Writes this rank's part of the training's state into `directory`, which is made when it is not there
  /// (megatron/state.hpp). Between iterations. Returns when all ranks have written theirs. Throws Error(kIo).
  void save_state(const std::filesystem::path& directory);
  /// Puts it back: what follows is bit-equal to not having stopped, under the same options and groups. Before
  /// the first step. An observing session takes up its own state from there too, when it was saved under the
  /// same config; otherwise it says so in its log and observes anew, and must have been told of the iteration
  /// (first_iteration; Error(kUsage)).
  /// Throws Error(kInput) for a state of another model, recipe or number of ranks, having changed nothing.
  /// with_session false: the session is left as it is.
  void load_state(const std::filesystem::path& directory, bool with_session = true);

  [[nodiscard]] Gpt& model() noexcept { return *model_; }
  /// Null unless the recipe is delayed scaling.
  [[nodiscard]] const DelayedScalingState* delayed() const noexcept { return delayed_.get(); }
  [[nodiscard]] std::int64_t iteration() const noexcept { return iteration_; }
  /// Null without planted faults.
  [[nodiscard]] const FaultTable* faults() const noexcept { return faults_.get(); }
  /// weights_digest of this rank's master weights.
  [[nodiscard]] std::uint64_t digest() const;

 private:
  void make_fault_table();
  void make_delayed_state();
  void require_faults_can_strike() const;
  /// The group that delayed scaling reduces over, with the planted faults that belong to it.
  Communicator* amax_group();
  [[nodiscard]] LayerContext layer_context();
  double run_micro_batches(const BatchSource& batches);
  /// The last stage's loss, as the mean over dp, on all stages.
  double shared_loss(double own);
  void make_training_faults();
  [[nodiscard]] std::vector<std::string> parameters_of_other_stages() const;
  void evaluate_if_due(StepReport& report);
  void load_session_state(const std::filesystem::path& directory);
  [[nodiscard]] TrainingParts parts();
  [[nodiscard]] StateIdentity identity() const;
  [[nodiscard]] int world_rank() const noexcept;
  void tell_session(const StepReport& report);
  [[nodiscard]] UpdateObserver update_observer();

  TrainerOptions options_;
  TrainerGroups groups_;
  DebugSession* session_;
  std::unique_ptr<FaultTable> faults_;
  std::vector<std::unique_ptr<Communicator>> faulty_amax_groups_;
  std::unique_ptr<DelayedScalingState> delayed_;
  RandomStreams streams_;
  std::unique_ptr<Gpt> model_;
  std::unique_ptr<Adam> adam_;
  std::unique_ptr<TrainingFaults> training_faults_;
  Pipeline pipeline_;
  std::vector<PipelineWork> schedule_;
  std::vector<Gpt::Saved> saved_;  ///< of the micro-batches that are in flight
  BatchSource evaluation_batches_;
  int evaluation_count_ = 0;
  std::int64_t iteration_;
};

}  // namespace amaxscope::megatron
