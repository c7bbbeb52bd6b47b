#include "capi/calls.hpp"
#include "capi/handles.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"

namespace amaxscope::capi {

namespace {

constexpr std::size_t kFirstLayerOptions = sizeof(amaxscope_layer_options);

static_assert(static_cast<int>(AMAXSCOPE_DGRAD) == static_cast<int>(TensorKind::kDgrad));
static_assert(static_cast<int>(AMAXSCOPE_ROW) == static_cast<int>(ParallelMode::kRow));
static_assert(static_cast<int>(AMAXSCOPE_NVFP4) == static_cast<int>(RecipeKind::kNvfp4));

TensorKind tensor_kind(amaxscope_tensor tensor) {
  return enumerator<TensorKind>(tensor, AMAXSCOPE_DGRAD, "tensor");
}

TensorKind operand_kind(amaxscope_tensor tensor) {
  const TensorKind kind = tensor_kind(tensor);
  AMAXSCOPE_CHECK(!is_result(kind), ErrorCode::kUsage,
                  "{} is the result of a GEMM: hand it in with amaxscope_result, after the GEMM",
                  to_string(kind));
  return kind;
}

LayerDescription describe(const amaxscope_layer_options& given, const amaxscope_session& session) {
  LayerDescription result;
  result.name = &required(given.name, "options.name");
  AMAXSCOPE_CHECK(!result.name.empty(), ErrorCode::kUsage, "options.name is empty");
  if (given.number != 0) result.number = given.number;
  if (given.is_expert != 0) result.expert = given.expert;
  result.parallel = enumerator<ParallelMode>(given.parallel, AMAXSCOPE_ROW, "options.parallel");
  result.sequence_parallel = given.sequence_parallel != 0;
  result.recipe = enumerator<RecipeKind>(given.recipe, AMAXSCOPE_NVFP4, "options.recipe");
  result.compute_dtype = given.dtype == AMAXSCOPE_F64 ? DType::kF32 : dtype_of(given.dtype);
  AMAXSCOPE_CHECK(is_high_precision(result.compute_dtype), ErrorCode::kUsage,
                  "layer {}: options.dtype is {}; the compute dtype is f32, f16 or bf16", result.name,
                  to_string(result.compute_dtype));
  if (given.tp_group != nullptr) {
    result.tp_group = given.tp_group->communicator.get();
  } else if (session.groups) {
    result.tp_group = &session.groups->tp();
  }
  return result;
}

DelayedScalingState* delayed_state(amaxscope_session& session) {
  if (!session.delayed) {
    session.delayed.emplace(DelayedScalingOptions{}, session.groups ? &session.groups->tp_dp_cp() : nullptr);
  }
  return &*session.delayed;
}

/// As Megatron's layers make theirs: an amax is shared over tp where codes are gathered under one scale.
std::shared_ptr<Quantizer> make_operand_quantizer(const LayerDescription& layer, TensorKind tensor,
                                                  amaxscope_session& session) {
  QuantizerRequest request{.recipe = layer.recipe, .tensor = tensor, .name = operand_name(layer, tensor)};
  if (layer.recipe == RecipeKind::kDelayed) request.delayed = delayed_state(session);
  if (has_tensor_amax(layer.recipe) && codes_are_gathered(layer, tensor)) {
    request.reduce_amaxes = reduce_amaxes_over(layer.tp_group, request.name);
  }
  // Ranks that hold parts of a tensor draw other random numbers, ranks that hold all of it the same.
  if (layer.tp_group != nullptr && layout_of(layer, tensor) != Layout::kReplicated) {
    request.options.nvfp4.seed = static_cast<std::uint64_t>(layer.tp_group->rank()) + 1;
  }
  return make_quantizer(request);
}

Quantizer* recipe_quantizer(const amaxscope_layer& layer, TensorKind tensor) {
  if (tensor == TensorKind::kActivation) return layer.quantizers.activation.get();
  return tensor == TensorKind::kWeight ? layer.quantizers.weight.get() : layer.quantizers.gradient.get();
}

Usage usage_of(unsigned directions) {
  AMAXSCOPE_CHECK(
      directions >= 1 && directions <= (AMAXSCOPE_ROWWISE | AMAXSCOPE_COLUMNWISE), ErrorCode::kUsage,
      "directions is {}; AMAXSCOPE_ROWWISE (1), AMAXSCOPE_COLUMNWISE (2) or both (3) are meant", directions);
  return {.rowwise = (directions & AMAXSCOPE_ROWWISE) != 0,
          .columnwise = (directions & AMAXSCOPE_COLUMNWISE) != 0};
}

Gemm gemm_of_result(TensorKind result) { return *gemm_of(result, Direction::kRowwise); }

/// Of the GEMM behind a result, when the program has given its operands.
std::optional<GemmInputs> inputs_of(TensorKind result, const amaxscope_quantized* a,
                                    const amaxscope_quantized* b, const amaxscope_view* original_a,
                                    const amaxscope_view* original_b) {
  if (a == nullptr || b == nullptr) return std::nullopt;
  const Gemm gemm = gemm_of_result(result);
  const auto [first, second] = operands_of(gemm);
  GemmInputs inputs{.a = a->tensor->operand(*direction_of(first, gemm)),
                    .b = b->tensor->operand(*direction_of(second, gemm))};
  if (original_a != nullptr) inputs.original_a = view_of(original_a, "original_a");
  if (original_b != nullptr) inputs.original_b = view_of(original_b, "original_b");
  return inputs;
}

}  // namespace

std::string operand_name(const LayerDescription& layer, TensorKind tensor) {
  return fmt::format("{}.{}", layer.name, to_string(tensor));
}

DebugQuantizer* debug_quantizer(const amaxscope_layer& layer, TensorKind tensor) {
  return layer.handle.active() ? layer.handle.quantizer(tensor) : nullptr;
}

std::shared_ptr<QuantizedTensor> quantize(const amaxscope_layer& layer, TensorKind operand,
                                          const TensorView& values, Usage usage, const TensorMoment& moment) {
  if (DebugQuantizer* const debug = debug_quantizer(layer, operand))
    return debug->quantize(values, usage, moment);
  if (Quantizer* const recipe = recipe_quantizer(layer, operand))
    return recipe->quantize(values, usage, moment);
  return std::make_shared<HighPrecisionTensor>(values);
}

void reuse(const amaxscope_layer& layer, TensorKind operand, const TensorView& values,
           const std::shared_ptr<QuantizedTensor>& quantized, const TensorMoment& moment) {
  if (DebugQuantizer* const debug = debug_quantizer(layer, operand)) {
    debug->inspect_reuse(values, *as_debug_operand(quantized), moment);
  }
}

}  // namespace amaxscope::capi

using namespace amaxscope;  // NOLINT(google-build-using-namespace): what follows is C

extern "C" {

amaxscope_status amaxscope_register(amaxscope_session* session, const amaxscope_layer_options* options,
                                    amaxscope_layer** layer) {
  return capi::call([&] {
    amaxscope_session& own = capi::required(session, "session");
    amaxscope_layer*& result = capi::required(layer, "layer");
    const amaxscope_layer_options given = capi::taken(options, capi::kFirstLayerOptions, "options");
    auto made = std::make_unique<amaxscope_layer>();
    made->description = capi::describe(given, own);
    if (made->description.recipe != RecipeKind::kNone) {
      made->quantizers.activation =
          capi::make_operand_quantizer(made->description, TensorKind::kActivation, own);
      made->quantizers.weight = capi::make_operand_quantizer(made->description, TensorKind::kWeight, own);
      made->quantizers.gradient = capi::make_operand_quantizer(made->description, TensorKind::kGradient, own);
    }
    made->handle = own.session->layer(made->description, made->quantizers);
    own.layers.push_back(std::move(made));
    result = own.layers.back().get();
  });
}

int amaxscope_active(const amaxscope_layer* layer) {
  return layer != nullptr && layer->handle.active() ? 1 : 0;
}

amaxscope_status amaxscope_set_weight(amaxscope_layer* layer, const amaxscope_view* weight) {
  return capi::call([&] {
    capi::required(layer, "layer").handle.set_weight([view = capi::view_of(weight, "weight")] {
      return view;
    });
  });
}

amaxscope_status amaxscope_quantize(amaxscope_layer* layer, amaxscope_tensor tensor, const amaxscope_view* x,
                                    unsigned directions, const amaxscope_moment* moment,
                                    amaxscope_quantized** quantized) {
  return capi::call([&] {
    const amaxscope_layer& own = capi::required(layer, "layer");
    amaxscope_quantized*& result = capi::required(quantized, "quantized");
    const TensorKind kind = capi::operand_kind(tensor);
    const TensorView values = capi::view_of(x, "x");
    const Usage usage = capi::usage_of(directions);
    const TensorMoment when = capi::moment_of(moment);
    auto made = std::make_unique<amaxscope_quantized>();
    made->tensor = capi::quantize(own, kind, values, usage, when);
    made->device = x->device;
    result = made.release();
  });
}

amaxscope_status amaxscope_reuse(amaxscope_layer* layer, amaxscope_tensor tensor, const amaxscope_view* x,
                                 const amaxscope_quantized* quantized, const amaxscope_moment* moment) {
  return capi::call([&] {
    const amaxscope_layer& own = capi::required(layer, "layer");
    const TensorKind kind = capi::operand_kind(tensor);
    const TensorView values = capi::view_of(x, "x");
    const TensorMoment when = capi::moment_of(moment);
    capi::reuse(own, kind, values, capi::required(quantized, "quantized").tensor, when);
  });
}

int amaxscope_wants_result(const amaxscope_layer* layer, amaxscope_tensor tensor) {
  if (layer == nullptr || tensor < AMAXSCOPE_OUTPUT || tensor > AMAXSCOPE_DGRAD) return 0;
  int wanted = 0;
  static_cast<void>(capi::call([&] {
    const DebugQuantizer* const debug = capi::debug_quantizer(*layer, static_cast<TensorKind>(tensor));
    wanted = debug != nullptr && debug->any_feature_enabled() ? 1 : 0;
  }));
  return wanted;
}

amaxscope_status amaxscope_result(amaxscope_layer* layer, amaxscope_tensor tensor, amaxscope_view* io,
                                  const amaxscope_moment* moment, const amaxscope_quantized* a,
                                  const amaxscope_quantized* b, const amaxscope_view* original_a,
                                  const amaxscope_view* original_b) {
  return capi::call([&] {
    const amaxscope_layer& own = capi::required(layer, "layer");
    const TensorKind kind = capi::tensor_kind(tensor);
    AMAXSCOPE_CHECK(is_result(kind), ErrorCode::kUsage,
                    "{} is an operand: hand it in with amaxscope_quantize, before the GEMM", to_string(kind));
    const MutableTensorView result = capi::mutable_view_of(io, "io");
    const TensorMoment when = capi::moment_of(moment);
    DebugQuantizer* const debug = capi::debug_quantizer(own, kind);
    if (debug == nullptr) return;
    const std::optional<GemmInputs> inputs =
        debug->needs_gemm_inputs() ? capi::inputs_of(kind, a, b, original_a, original_b) : std::nullopt;
    debug->process_gemm_output(result, when, inputs ? &*inputs : nullptr);
  });
}

}  // extern "C"
