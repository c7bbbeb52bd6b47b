#include "megatron/trainer.hpp"

#include <algorithm>
#include <sstream>

#include "collectives/exchange.hpp"
#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "megatron/counter_hash.hpp"
#include "megatron/gradients.hpp"
#include "megatron/layers/operand_quantizers.hpp"
#include "megatron/planted_faults.hpp"

namespace amaxscope::megatron {

BatchSource text_batches(const TextData& data, const TrainerOptions& options, std::int64_t batch,
                         int dp_rank) {
  return [&data, seed = options.seed, sequence = options.model.sequence, batch, dp_rank](
             std::int64_t iteration, int microbatch) {
    return data.batch(seed, iteration, microbatch, dp_rank, sequence, batch);
  };
}

BatchSource evaluation_batches(const TextData& data, const TrainerOptions& options, std::int64_t batch,
                               int dp_rank) {
  TrainerOptions other = options;
  other.seed = hash_words(options.seed, hash_text("evaluation"));
  return text_batches(data, other, batch, dp_rank);
}

Trainer::Trainer(const TrainerOptions& options, const TrainerGroups& groups, DebugSession* session)
    : options_(options),
      groups_(groups),
      session_(session),
      pipeline_(groups.pp),
      iteration_(options.first_iteration) {
  AMAXSCOPE_CHECK(options.micro_batches > 0, ErrorCode::kUsage, "micro_batches is {}, at least 1 is needed",
                  options.micro_batches);
  AMAXSCOPE_CHECK(!options.fp8_weights || options.recipe != RecipeKind::kNone, ErrorCode::kUsage,
                  "fp8_weights needs a recipe; without one there are no codes that a weight could exist as");
  if (!options.faults.empty()) make_fault_table();
  if (options.recipe == RecipeKind::kDelayed) make_delayed_state();
  model_ = std::make_unique<Gpt>(layer_context(), options.model, pipeline_.stage());
  adam_ = std::make_unique<Adam>(model_->parameters(), options.adam);
  schedule_ = pipeline_schedule(pipeline_.stage(), options.micro_batches);
  saved_.resize(static_cast<std::size_t>(most_in_flight(pipeline_.stage(), options.micro_batches)));
  if (faults_ != nullptr) make_training_faults();
}

void Trainer::make_training_faults() {
  const GptOptions& model = model_->options();
  training_faults_ = std::make_unique<TrainingFaults>(
      *faults_, TrainingFaults::Place{.parameters = model_->parameters(),
                                      .parameters_of_other_stages = parameters_of_other_stages(),
                                      .tp_rank = groups_.tp == nullptr ? 0 : groups_.tp->rank(),
                                      .tp_size = groups_.tp == nullptr ? 1 : groups_.tp->size(),
                                      .channels = model.mlp == MlpKind::kSwiglu ? model.ffn_hidden : 0});
  const std::vector<std::string> own = Gpt::layer_names(model, pipeline_.stage());
  for (const Fault& fault : faults_->faults()) {
    if (!fault.rank || !faults_->is_here(fault) || fault.layer.empty()) continue;
    AMAXSCOPE_CHECK(std::ranges::find(own, fault.layer) != own.end(), ErrorCode::kUsage,
                    "fault {}: strikes nothing; rank {} is of pipeline stage {}, and {} is of another",
                    to_string(fault.kind), *fault.rank, pipeline_.stage().index, fault.layer);
  }
}

std::vector<std::string> Trainer::parameters_of_other_stages() const {
  if (pipeline_.stage().is_alone()) return {};
  std::string own;
  for (const Parameter* const parameter : model_->parameters()) own += parameter->name + "\n";
  std::vector<std::string> names;
  for (const std::string& stage :
       all_gather_text(*groups_.pp, own, {Traffic::kTrainer, "names of parameters"})) {
    std::istringstream lines(stage);
    for (std::string name; std::getline(lines, name);) names.push_back(name);
  }
  return names;
}

void Trainer::make_fault_table() {
  const int ranks = groups_.world == nullptr ? 1 : groups_.world->size();
  for (const Fault& fault : options_.faults) {
    AMAXSCOPE_CHECK(fault.rank.value_or(0) < ranks, ErrorCode::kUsage,
                    "fault {} at {}: rank {} is not one of the {} ranks of this job, which count from 0",
                    to_string(fault.kind), fault.layer, *fault.rank, ranks);
  }
  faults_ =
      std::make_unique<FaultTable>(options_.faults, groups_.world == nullptr ? 0 : groups_.world->rank());
  require_faults_can_strike();
}

void Trainer::require_faults_can_strike() const {
  const auto require = [&](FaultKind kind, bool can, std::string_view needed) {
    AMAXSCOPE_CHECK(can || !faults_->planted(kind), ErrorCode::kUsage, "fault {}: strikes nothing here; {}",
                    to_string(kind), needed);
  };
  const bool splits = groups_.tp != nullptr && groups_.tp->size() > 1;
  require(FaultKind::kAmaxOverDp, options_.recipe == RecipeKind::kDelayed && splits && groups_.dp != nullptr,
          "it needs delayed scaling, tp > 1 and a data-parallel group");
  require(FaultKind::kRecomputeInBf16, options_.model.recompute && options_.recipe != RecipeKind::kNone,
          "it needs recompute and a recipe");
  for (const Fault& fault : options_.faults) {
    AMAXSCOPE_CHECK(
        fault.kind != FaultKind::kRecomputeInBf16 || !fault.rank || !splits || !options_.sequence_parallel ||
            !has_tensor_amax(options_.recipe),
        ErrorCode::kUsage,
        "fault {}: under recipe {} with sequence parallelism a recompute reduces amaxes over tp, and "
        "without rank {} the others would wait for it; leave rank out",
        to_string(fault.kind), to_string(options_.recipe), *fault.rank);
  }
  require(FaultKind::kE5m2Gradients, options_.recipe == RecipeKind::kMxfp8, "it needs the recipe mxfp8");
  require(FaultKind::kScaleRoundedDown, options_.recipe == RecipeKind::kMxfp8, "it needs the recipe mxfp8");
  require(FaultKind::kFixedRoundingSeed, options_.recipe == RecipeKind::kNvfp4, "it needs the recipe nvfp4");
  require(FaultKind::kNoMasterWeights, options_.dtype == DType::kBF16, "it needs the compute dtype bf16");
}

Communicator* Trainer::amax_group() {
  Communicator* group = groups_.amax;
  if (faults_ == nullptr || group == nullptr) return group;
  if (faults_->planted(FaultKind::kAmaxOverDp) && groups_.dp != nullptr) {
    faulty_amax_groups_.push_back(
        std::make_unique<SwitchedGroup>(*group, *groups_.dp, *faults_, FaultKind::kAmaxOverDp));
    group = faulty_amax_groups_.back().get();
  }
  if (faults_->planted(FaultKind::kSkipAmaxReduction)) {
    // The state reduces the amaxes of all its slots together, in the order of the slots.
    faulty_amax_groups_.push_back(std::make_unique<AmaxGroupWithGaps>(
        *group, *faults_,
        [this](std::size_t slot) { return skipped_reduction(*faults_, delayed_->slot(slot).name); }));
    group = faulty_amax_groups_.back().get();
  }
  return group;
}

void Trainer::make_delayed_state() {
  delayed_ = std::make_unique<DelayedScalingState>(options_.delayed, amax_group());
}

LayerContext Trainer::layer_context() {
  return {.tp = groups_.tp,
          .recipe = options_.recipe,
          .delayed = delayed_.get(),
          .dtype = options_.dtype,
          .sequence_parallel = options_.sequence_parallel,
          .fp8_weights = options_.fp8_weights,
          .arithmetic = options_.arithmetic,
          .session = session_,
          .faults = faults_.get(),
          .streams = &streams_,
          .seed = options_.seed,
          .device = options_.device};
}

double Trainer::run_micro_batches(const BatchSource& batches) {
  using Kind = PipelineWork::Kind;
  double loss = 0;
  Tensor received;  // what this stage goes on with, and below what it hands on
  Tensor received_gradient;
  Tensor activation;
  Tensor gradient;
  for (const auto& [kind, microbatch] : schedule_) {
    Gpt::Saved& saved = saved_[static_cast<std::size_t>(microbatch) % saved_.size()];
    switch (kind) {
      case Kind::kReceiveForward:
        received =
            pipeline_.receive_forward(options_.dtype, model_->hidden_shape(batches(iteration_, microbatch)));
        break;
      case Kind::kForward: {
        const Batch batch = batches(iteration_, microbatch);
        const double tokens = static_cast<double>(batch.inputs.size()) * options_.micro_batches;
        activation =
            model_->forward_stage(batch, std::move(received), 1.0 / tokens,
                                  {.phase = Phase::kForward, .microbatch = microbatch}, &saved, loss);
        break;
      }
      case Kind::kSendForward:
        pipeline_.send_forward(activation.view());
        break;
      case Kind::kReceiveBackward:
        received_gradient =
            pipeline_.receive_backward(options_.dtype, model_->hidden_shape(batches(iteration_, microbatch)));
        break;
      case Kind::kBackward:
        gradient = model_->backward_stage(microbatch, std::move(received_gradient), saved);
        break;
      case Kind::kSendBackward:
        pipeline_.send_backward(gradient.view());
        break;
    }
  }
  return shared_loss(loss / options_.micro_batches);
}

double Trainer::shared_loss(double own) {
  // The last stage alone reduces: other stages' ranks might get the sum in another order.
  if (pipeline_.stage().is_last() && groups_.dp != nullptr && groups_.dp->size() > 1) {
    Tensor sum = Tensor::of<double>({own}, {1});
    groups_.dp->all_reduce(sum, ReduceOp::kSum, {Traffic::kTrainer, "loss"});
    own = sum.values<double>()[0] / groups_.dp->size();
  }
  return pipeline_.from_last(own, "loss");
}

StepReport Trainer::step(const BatchSource& batches) {
  if (faults_ != nullptr) {
    faults_->begin_iteration(iteration_);
    training_faults_->begin_step();
  }
  const std::vector<Parameter*>& parameters = model_->parameters();
  for (Parameter* const parameter : parameters) parameter->zero_gradient();
  StepReport report;
  report.iteration = iteration_;
  if (session_ != nullptr) session_->weights_are_final();
  evaluate_if_due(report);
  report.loss = run_micro_batches(batches);
  model_->complete_gradients();
  collect_tied_gradient(model_->tied_weight(), groups_.pp);
  reduce_gradients(parameters, groups_.tp, groups_.dp);
  return_tied_gradient(model_->tied_weight(), groups_.pp);
  const bool jumps = training_faults_ != nullptr && training_faults_->enlarge_gradients();
  report.gradient_norm = gradient_norm(parameters, groups_.tp, groups_.pp);
  report.learning_rate = options_.learning_rate.at(iteration_);
  if (options_.clip_norm > 0 && !jumps) clip_gradients(parameters, report.gradient_norm, options_.clip_norm);
  if (session_ != nullptr) tell_session(report);
  adam_->step(report.learning_rate, jumps, update_observer());
  if (training_faults_ != nullptr) training_faults_->end_step();
  if (delayed_ != nullptr) delayed_->update();
  if (session_ != nullptr) session_->step();
  ++iteration_;
  return report;
}

void Trainer::set_evaluation(BatchSource batches, int count) {
  AMAXSCOPE_CHECK(count > 0, ErrorCode::kUsage, "evaluation over {} batches, at least 1 is needed", count);
  evaluation_batches_ = std::move(batches);
  evaluation_count_ = count;
}

void Trainer::evaluate_if_due(StepReport& report) {
  if (options_.eval_every <= 0 || iteration_ % options_.eval_every != 0) return;
  AMAXSCOPE_CHECK(evaluation_batches_ != nullptr, ErrorCode::kUsage,
                  "eval_every is {}, but set_evaluation was not called", options_.eval_every);
  report.evaluation_loss = evaluate(evaluation_batches_, evaluation_count_);
  if (session_ != nullptr) session_->scalar("eval_loss", *report.evaluation_loss);
}

void Trainer::tell_session(const StepReport& report) {
  session_->scalar("loss", report.loss);
  session_->scalar("grad_norm", report.gradient_norm);
  session_->scalar("learning_rate", report.learning_rate);
  for (const Parameter* const parameter : model_->parameters()) {
    session_->observe(parameter->name, "parameter", parameter->master, parameter->layout);
  }
}

UpdateObserver Trainer::update_observer() {
  if (session_ == nullptr) return {};
  return {.wants =
              [this](const Parameter& parameter) {
                return session_->observes_update(parameter.name, parameter.layout);
              },
          .tell =
              [this](const Parameter& parameter, const TensorView& update,
                     const TensorView& normalized_gradient) {
                // A weight without a master copy (a planted fault) is told of as it is stored.
                Tensor stored;
                if (training_faults_ != nullptr && training_faults_->weights_are_bf16()) {
                  stored = Tensor(DType::kBF16, parameter.master.shape());
                  convert(parameter.master, stored);
                }
                session_->observe_update(parameter.name,
                                         stored.defined() ? stored.view() : parameter.master.view(), update,
                                         parameter.layout, &normalized_gradient);
              }};
}

void Trainer::run(std::int64_t steps, const BatchSource& batches,
                  const std::function<void(const StepReport&)>& on_step) {
  for (std::int64_t done = 0; done < steps; ++done) on_step(step(batches));
}

double Trainer::evaluate(const BatchSource& batches, int count) {
  AMAXSCOPE_CHECK(count > 0, ErrorCode::kUsage, "evaluation over {} batches, at least 1 is needed", count);
  double loss = 0;
  const PipelineStage& stage = pipeline_.stage();
  for (int microbatch = 0; microbatch < count; ++microbatch) {
    const Batch batch = batches(iteration_, microbatch);
    Tensor received;
    if (!stage.is_first()) received = pipeline_.receive_forward(options_.dtype, model_->hidden_shape(batch));
    const Tensor activation = model_->forward_stage(
        batch, std::move(received), 0.0, {.phase = Phase::kEval, .microbatch = microbatch}, nullptr, loss);
    if (!stage.is_last()) pipeline_.send_forward(activation.view());
  }
  return shared_loss(loss / count);
}

int Trainer::world_rank() const noexcept { return groups_.world == nullptr ? 0 : groups_.world->rank(); }

TrainingParts Trainer::parts() {
  return {
      .parameters = model_->parameters(), .adam = *adam_, .delayed = delayed_.get(), .streams = &streams_};
}

StateIdentity Trainer::identity() const {
  const auto size = [](const Communicator* group) { return group == nullptr ? 1 : group->size(); };
  return {{"ranks", fmt::format("{}", size(groups_.world))},
          {"tp", fmt::format("{}", size(groups_.tp))},
          {"pp", fmt::format("{}", size(groups_.pp))},
          {"rank", fmt::format("{}", world_rank())}};
}

void Trainer::save_state(const std::filesystem::path& directory) {
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  AMAXSCOPE_CHECK(!failure, ErrorCode::kIo, "{}: cannot be made: {}", directory.string(), failure.message());
  write_state(state_file(directory, world_rank()), parts(), iteration_, identity());
  if (session_ != nullptr && session_->enabled()) session_->save_state(directory);
  if (groups_.world != nullptr) groups_.world->barrier({Traffic::kTrainer, "state saved"});
}

void Trainer::load_state(const std::filesystem::path& directory, bool with_session) {
  const std::int64_t iteration = read_state(state_file(directory, world_rank()), parts(), identity());
  if (session_ != nullptr) {
    if (with_session) load_session_state(directory);
    AMAXSCOPE_CHECK(session_->iteration() == iteration, ErrorCode::kUsage,
                    "{}: goes on with iteration {}, but the session is at {}; give it this first_iteration",
                    directory.string(), iteration, session_->iteration());
  }
  iteration_ = iteration;
}

void Trainer::load_session_state(const std::filesystem::path& directory) {
  if (!session_->enabled()) return;
  try {
    session_->load_state(directory);
  } catch (const Error& error) {
    // A training may go on under another debug config than it was saved under.
    if (error.code() != ErrorCode::kInput) throw;
    session_->log().warn("observing starts anew: {}", error.what());
  }
}

std::uint64_t Trainer::digest() const { return weights_digest(model_->parameters()); }

}  // namespace amaxscope::megatron
