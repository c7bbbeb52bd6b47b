#include "megatron/layers/linear.hpp"

#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "megatron/faults.hpp"
#include "megatron/layers/gather_operand.hpp"
#include "megatron/ops/elementwise.hpp"

namespace amaxscope::megatron {

namespace {

LayerDescription describe(const LayerContext& context, ParallelMode mode, const LinearOptions& options) {
  LayerDescription layer;
  layer.name = options.name;
  layer.number = options.number;
  layer.expert = options.expert;
  layer.parallel = mode;
  layer.sequence_parallel = context.splits_sequence();
  layer.recipe = context.recipe;
  layer.compute_dtype = context.dtype;
  layer.tp_group = context.tp;
  layer.gathers_before_quantizing =
      layer.sequence_parallel &&
      !slices_are_whole_blocks(context.recipe, context.sequence / context.tp_size());
  return layer;
}

/// Whether the rows of this operand are split over tp and gathered before the quantizer.
bool is_gathered_first(const LayerDescription& layer, TensorKind tensor) {
  return layer.gathers_before_quantizing &&
         (layer.parallel == ParallelMode::kColumn ? tensor == TensorKind::kActivation
                                                  : tensor == TensorKind::kGradient);
}

/// Whether a recipe's columnwise codes are the transpose of its rowwise ones.
bool has_one_set_of_codes(RecipeKind recipe) {
  return recipe == RecipeKind::kDelayed || recipe == RecipeKind::kCurrent;
}

Reduction reduction_of(const LayerDescription& layer, TensorKind result) {
  if (layout_of(layer, result) != Layout::kPartial) return Reduction::kNone;
  return layer.sequence_parallel ? Reduction::kReduceScatter : Reduction::kAllReduce;
}

}  // namespace

Linear::Linear(const LayerContext& context, ParallelMode mode, LinearOptions options, Parameter* tied_weight)
    : context_(context),
      description_(describe(context, mode, options)),
      faults_(context.faults != nullptr && context.faults->planted(options.name) ? context.faults : nullptr),
      weight_(tied_weight) {
  const std::int64_t split = mode == ParallelMode::kColumn ? options.outputs : options.inputs;
  AMAXSCOPE_CHECK(split % context.tp_size() == 0, ErrorCode::kUsage,
                  "layer {}: {} {} cannot be split over tp {}", options.name, split,
                  mode == ParallelMode::kColumn ? "outputs" : "inputs", context.tp_size());
  AMAXSCOPE_CHECK(context.dtype != DType::kF64 ||
                      (context.recipe == RecipeKind::kNone && context.arithmetic == GemmArithmetic::kBlas),
                  ErrorCode::kUsage, "layer {}: f64 compute goes without a recipe and without exact GEMMs",
                  options.name);
  AMAXSCOPE_CHECK(
      !context.on_device() || (context.dtype != DType::kF64 && context.arithmetic == GemmArithmetic::kBlas &&
                               context.faults == nullptr),
      ErrorCode::kUsage,
      "layer {}: on a device it computes in f32 or bf16, without exact GEMMs and planted faults",
      options.name);
  initialize_parameters(options,
                        mode == ParallelMode::kColumn ? options.outputs / context.tp_size() : options.outputs,
                        mode == ParallelMode::kRow ? options.inputs / context.tp_size() : options.inputs);
  quantizers_ = make_operand_quantizers(context_, description_);
  const bool fp8_only = context.fp8_weights && context.recipe != RecipeKind::kNone;
  if (fp8_only) weight_->compute.release();
  weight_operand_ = std::make_unique<WeightOperand>(quantizers_.operands.weight, fp8_only, weight_faults());
  if (context_.session != nullptr) handle_ = context_.session->layer(description_, quantizers_.operands);
  // Features see no original of a weight that exists in FP8 only, and a planted NaN strikes later.
  const bool is_struck = faults_ != nullptr && faults_->planted(FaultKind::kNan, name(), TensorKind::kWeight);
  if (!fp8_only && !is_struck) handle_.set_weight([this] { return weight_values(); });
}

void Linear::initialize_parameters(const LinearOptions& options, std::int64_t outputs, std::int64_t inputs) {
  const bool column = description_.parallel == ParallelMode::kColumn;
  const std::int64_t rank = context_.tp_rank();
  if (weight_ == nullptr) {
    own_weight_ = std::make_unique<Parameter>(options.name + ".weight", Shape{outputs, inputs},
                                              context_.dtype, layout_of(description_, TensorKind::kWeight));
    initialize_normal(*own_weight_, context_.seed, {options.outputs, options.inputs},
                      column ? rank * outputs : 0, column ? 0 : rank * inputs, options.initial_std);
    weight_ = own_weight_.get();
  }
  AMAXSCOPE_CHECK(weight_->compute.shape() == Shape({outputs, inputs}), ErrorCode::kUsage,
                  "layer {}: the tied weight {} is {}, expected {}", options.name, weight_->name,
                  to_string(weight_->compute.shape()), to_string(Shape{outputs, inputs}));
  if (!options.bias) return;
  // A row-parallel bias is added after the sum over ranks: every rank holds the whole of it.
  const bool split = column && context_.tp_size() > 1;
  bias_ = std::make_unique<Parameter>(options.name + ".bias", Shape{outputs}, context_.dtype,
                                      split ? Layout::kShard0 : Layout::kReplicated);
  bias_->reduce_gradient_over_tp = !column && context_.splits_sequence();
  initialize_constant(*bias_, 0.0);
}

std::unique_ptr<WeightFaults> Linear::weight_faults() const {
  if (faults_ == nullptr || !WeightFaults::planted(*faults_, name())) return nullptr;
  return std::make_unique<WeightFaults>(*faults_, name());
}

bool Linear::recomputes_in_bf16(const TensorMoment& moment) const {
  return faults_ != nullptr && moment.phase == Phase::kRecompute && context_.recipe != RecipeKind::kNone &&
         faults_->due(FaultKind::kRecomputeInBf16, name(), TensorKind::kActivation) != nullptr;
}

DebugQuantizer* Linear::debug_quantizer(TensorKind tensor) const {
  return handle_.active() ? handle_.quantizer(tensor) : nullptr;
}

std::shared_ptr<QuantizedTensor> Linear::quantize_operand(TensorKind tensor, const TensorView& values,
                                                          Usage usage, const TensorMoment& moment) {
  const bool gathered = codes_are_gathered(description_, tensor);
  DebugQuantizer* const debug = debug_quantizer(tensor);
  Quantizer* const parent = tensor == TensorKind::kActivation ? quantizers_.operands.activation.get()
                                                              : quantizers_.operands.gradient.get();
  std::shared_ptr<QuantizedTensor> operand;
  if (debug != nullptr) {
    operand = debug->quantize(values, usage, moment);
  } else if (parent != nullptr) {
    // Where rowwise codes are enough they alone travel; the columnwise copy is made of the gathered ones.
    const bool rowwise_only = gathered && has_one_set_of_codes(parent->recipe());
    operand =
        parent->quantize(values, rowwise_only ? Usage{.rowwise = true, .columnwise = false} : usage, moment);
  } else {
    operand = std::make_shared<HighPrecisionTensor>(values);
  }
  return gathered ? gather_operand(operand, usage, *context_.tp, name(), to_string(tensor)) : operand;
}

TensorView Linear::with_planted_nan(const TensorView& dy, Tensor& copy) const {
  if (faults_ == nullptr || !faults_->planted(FaultKind::kNan, name(), TensorKind::kGradient)) return dy;
  copy = Tensor(dy.dtype(), dy.shape());
  convert(dy, copy);
  plant_nan(*faults_, name(), TensorKind::kGradient, copy);
  return copy.view();
}

TensorView Linear::weight_values() {
  const TensorView here = weight_->compute.defined() ? weight_->compute.view() : weight_->master.view();
  return context_.on_device() ? weight_there_.of(here, weight_->version, context_.device) : here;
}

void Linear::prepare_weight(const TensorMoment& moment) {
  DebugQuantizer* const debug = debug_quantizer(TensorKind::kWeight);
  if (faults_ != nullptr && faults_->planted(FaultKind::kNan, name(), TensorKind::kWeight)) {
    if (weight_->compute.defined()) {
      plant_nan(*faults_, name(), TensorKind::kWeight, weight_->compute);
    } else {
      Tensor struck = weight_->master.clone();
      plant_nan(*faults_, name(), TensorKind::kWeight, struck);
      return weight_operand_->prepare(struck.view(), debug, moment);
    }
  }
  weight_operand_->prepare(weight_values(), debug, moment);
}

Tensor Linear::multiply_to(TensorKind result, const GemmInputs& inputs, const TensorMoment& moment) {
  const Product product{.context = context_,
                        .layer = name(),
                        .result = result,
                        .dtype = result == TensorKind::kWgrad ? context_.master_dtype() : context_.dtype,
                        .reduction = reduction_of(description_, result),
                        .debug = debug_quantizer(result),
                        .faults = faults_};
  return multiply(product, inputs, moment);
}

Tensor Linear::forward(Tensor x, const TensorMoment& moment, Saved* saved) {
  const bool backward_follows = saved != nullptr;
  // A forward that backward will run again shows its operands as if it were the only one.
  const Usage usage{.rowwise = true, .columnwise = moment.phase != Phase::kEval};
  if (faults_ != nullptr) plant_nan(*faults_, name(), TensorKind::kActivation, x);
  if (context_.on_device()) x = copied_to(context_.device, x.view());
  if (is_gathered_first(description_, TensorKind::kActivation)) {
    x = gather_rows(x.view(), *context_.tp, name(), to_string(TensorKind::kActivation));
  }
  std::shared_ptr<QuantizedTensor> activation =
      quantize_operand(TensorKind::kActivation, x.view(), usage, moment);
  prepare_weight(moment);
  const bool in_bf16 = recomputes_in_bf16(moment);
  Tensor y = multiply_to(TensorKind::kOutput,
                         {.a = activation->operand(Direction::kRowwise),
                          .b = in_bf16 ? HighPrecisionTensor(weight_values()).operand(Direction::kRowwise)
                                       : weight_operand_->operand(Direction::kRowwise),
                          .original_a = x.view(),
                          .original_b = weight_values()},
                         moment);
  if (bias_ != nullptr) add_bias(bias_->compute.view(), y);
  if (backward_follows) {
    activation->update_usage({.rowwise = false, .columnwise = true});
    // A gathered operand owns its memory; any other in high precision may borrow x.
    const bool borrows = !codes_are_gathered(description_, TensorKind::kActivation) &&
                         is_high_precision(activation->format(Direction::kColumnwise));
    const DebugQuantizer* const wgrad = debug_quantizer(TensorKind::kWgrad);
    const bool compares = wgrad != nullptr && wgrad->needs_gemm_inputs();
    saved->activation = std::move(activation);
    saved->input = borrows || compares ? std::move(x) : Tensor{};
  }
  return y;
}

Tensor Linear::backward(const TensorView& incoming, const TensorMoment& moment, Saved& saved) {
  AMAXSCOPE_CHECK(saved.activation != nullptr, ErrorCode::kUsage,
                  "layer {}: backward without a forward to go with", name());
  Tensor struck;  // with a NaN that a fault asks for, or where the layer computes
  TensorView dy = with_planted_nan(incoming, struck);
  if (bias_ != nullptr) bias_gradient(dy, bias_->gradient);
  if (context_.on_device()) {
    struck = copied_to(context_.device, dy);
    dy = struck.view();
  }
  Tensor gathered;  // with the rows of all ranks, which the operand may borrow
  if (is_gathered_first(description_, TensorKind::kGradient)) {
    gathered = gather_rows(dy, *context_.tp, name(), to_string(TensorKind::kGradient));
  }
  const std::shared_ptr<QuantizedTensor> gradient =
      quantize_operand(TensorKind::kGradient, gathered.defined() ? gathered.view() : dy,
                       {.rowwise = true, .columnwise = true}, moment);
  weight_operand_->use_again(weight_values(), debug_quantizer(TensorKind::kWeight), moment);
  const TensorView original = gathered.defined() ? gathered.view() : dy;
  Tensor dx = multiply_to(TensorKind::kDgrad,
                          {.a = gradient->operand(Direction::kRowwise),
                           .b = weight_operand_->operand(Direction::kColumnwise),
                           .original_a = original,
                           .original_b = weight_values()},
                          moment);
  // Into a scratch, so that what is inspected or modified is this micro-batch's wgrad and not the running
  // sum.
  GemmInputs factors{.a = gradient->operand(Direction::kColumnwise),
                     .b = saved.activation->operand(Direction::kColumnwise),
                     .original_a = original};
  if (saved.input.defined()) factors.original_b = saved.input.view();
  const Tensor dweight = multiply_to(TensorKind::kWgrad, factors, moment);
  add(dweight, weight_->gradient);
  saved = {};
  return dx;
}

void Linear::collect(std::vector<Parameter*>& parameters) {
  if (own_weight_ != nullptr) parameters.push_back(own_weight_.get());
  if (bias_ != nullptr) parameters.push_back(bias_.get());
}

}  // namespace amaxscope::megatron
