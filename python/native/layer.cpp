#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "megatron/layers/gather_operand.hpp"
#include "python/native/quantized.hpp"
#include "python/native/session.hpp"
#include "python/native/view.hpp"
#include "python/native/words.hpp"

namespace amaxscope::python {

namespace {

struct Layer {
  std::shared_ptr<Session> session;
  amaxscope_layer* handle;  ///< freed with the session

  [[nodiscard]] amaxscope_layer& own() const {
    static_cast<void>(session->handle());  // it is open
    return *handle;
  }
};

/// A forward, until its backward.
struct Saved {
  amaxscope_saved* handle = nullptr;
  py::object owners;  ///< of x and the weight

  explicit Saved(py::object kept) : owners(std::move(kept)) {}
  ~Saved() { amaxscope_saved_free(handle); }
  Saved(const Saved&) = delete;
  Saved& operator=(const Saved&) = delete;
};

Layer register_layer(const std::shared_ptr<Session>& session, const std::string& name,
                     std::optional<int> number, std::optional<int> expert, const std::string& parallel,
                     bool sequence_parallel, const std::string& recipe, const std::string& dtype,
                     const py::object& tp_group) {
  const DType type = meant(kDTypes, dtype, "dtype");
  AMAXSCOPE_CHECK(type == DType::kF32 || type == DType::kF16 || type == DType::kBF16, ErrorCode::kUsage,
                  "layer {}: dtype is {}; the compute dtype is f32, f16 or bf16", name, dtype);
  AMAXSCOPE_CHECK(!number || *number >= 1, ErrorCode::kUsage, "layer {}: number is {}; layers count from 1",
                  name, number.value_or(0));
  amaxscope_layer_options options{};
  options.size = sizeof options;
  options.name = name.c_str();
  options.number = number.value_or(0);
  options.is_expert = expert ? 1 : 0;
  options.expert = expert.value_or(0);
  options.parallel = meant(kParallels, parallel, "parallel");
  options.sequence_parallel = sequence_parallel ? 1 : 0;
  options.recipe = meant(kRecipes, recipe, "recipe");
  options.dtype = static_cast<amaxscope_dtype>(type);
  options.tp_group = tp_group.is_none() ? nullptr : tp_group.cast<const Group&>().handle.get();
  Layer layer{.session = session, .handle = nullptr};
  session->use([&](amaxscope_session* own) { return amaxscope_register(own, &options, &layer.handle); });
  session->keep(tp_group);
  return layer;
}

Quantized quantize(const Layer& layer, const std::string& tensor, const View& x, bool rowwise,
                   bool columnwise, const std::string& phase, int microbatch) {
  const amaxscope_tensor which = meant(kTensors, tensor, "tensor");
  const amaxscope_moment when = moment(phase, microbatch);
  amaxscope_quantized* made = nullptr;
  layer.session->use([&](amaxscope_session*) {
    return amaxscope_quantize(layer.handle, which, &x.matrix, directions(rowwise, columnwise), &when, &made);
  });
  const std::unique_ptr<amaxscope_quantized> owned(made);
  return {std::move(owned->tensor), x.owner};
}

void reuse(const Layer& layer, const std::string& tensor, const View& x, const Quantized& quantized,
           const std::string& phase, int microbatch) {
  const amaxscope_tensor which = meant(kTensors, tensor, "tensor");
  const amaxscope_moment when = moment(phase, microbatch);
  layer.session->use([&](amaxscope_session*) {
    return amaxscope_reuse(layer.handle, which, &x.matrix, &quantized.handle, &when);
  });
}

/// Whether any of the six tensors is to be treated otherwise than on the plain path in this iteration. When
/// none is, the layer is inactive until it next may act.
bool is_due(const Layer& layer) {
  if (!layer.own().handle.active()) return false;
  bool due = false;
  layer.session->use([&](amaxscope_session*) {
    for (const TensorKind tensor : kAllTensors) {
      const DebugQuantizer* const debug = capi::debug_quantizer(*layer.handle, tensor);
      due = due || (debug != nullptr && debug->any_feature_enabled());
    }
  });
  return due;
}

bool gathers(const Layer& layer, const std::string& tensor) {
  return codes_are_gathered(layer.own().description,
                            static_cast<TensorKind>(meant(kTensors, tensor, "tensor")));
}

Quantized gather(const Layer& layer, const std::string& tensor, const Quantized& shard, bool rowwise,
                 bool columnwise) {
  const auto which = static_cast<TensorKind>(meant(kTensors, tensor, "tensor"));
  const LayerDescription& description = layer.own().description;
  AMAXSCOPE_CHECK(description.tp_group != nullptr, ErrorCode::kUsage, "layer {} has no tensor-parallel group",
                  description.name);
  std::shared_ptr<QuantizedTensor> whole;
  layer.session->use([&](amaxscope_session*) {
    whole = megatron::gather_operand(shard.handle.tensor, Usage{.rowwise = rowwise, .columnwise = columnwise},
                                     *description.tp_group, description.name, to_string(which));
  });
  return {std::move(whole), shard.owner};
}

void set_weight(const Layer& layer, const View& weight) {
  layer.session->use([&](amaxscope_session*) { return amaxscope_set_weight(layer.handle, &weight.matrix); });
  layer.session->keep_weight(layer.handle, weight.owner);
}

void result(const Layer& layer, const std::string& tensor, View& io, const Quantized* a, const Quantized* b,
            const View* original_a, const View* original_b, const std::string& phase, int microbatch) {
  const amaxscope_tensor which = meant(kTensors, tensor, "tensor");
  const amaxscope_moment when = moment(phase, microbatch);
  amaxscope_view* const matrix = io.to_write("io");
  layer.session->use([&](amaxscope_session*) {
    return amaxscope_result(layer.handle, which, matrix, &when, a == nullptr ? nullptr : &a->handle,
                            b == nullptr ? nullptr : &b->handle,
                            original_a == nullptr ? nullptr : &original_a->matrix,
                            original_b == nullptr ? nullptr : &original_b->matrix);
  });
}

std::unique_ptr<Saved> forward(const Layer& layer, const View& x, const View& weight, View& y,
                               const std::string& phase, int microbatch, bool save) {
  const amaxscope_moment when = moment(phase, microbatch);
  amaxscope_view* const out = y.to_write("out");
  auto saved = save ? std::make_unique<Saved>(py::make_tuple(x.owner, weight.owner)) : nullptr;
  layer.session->use([&](amaxscope_session*) {
    return amaxscope_forward(layer.handle, &x.matrix, &weight.matrix, out, &when,
                             saved ? &saved->handle : nullptr);
  });
  return saved;
}

void backward(const Layer& layer, const View& dy, Saved& saved, View* dx, View& dweight, float beta,
              const std::string& phase, int microbatch) {
  const amaxscope_moment when = moment(phase, microbatch);
  AMAXSCOPE_CHECK(saved.handle != nullptr, ErrorCode::kUsage, "this forward has had its backward");
  amaxscope_view* const sum = dweight.to_write("dweight");
  amaxscope_view* const out = dx == nullptr ? nullptr : dx->to_write("dx");
  layer.session->use([&](amaxscope_session*) {
    return amaxscope_backward(layer.handle, &dy.matrix, out, sum, beta, &when, &saved.handle);
  });
  saved.owners = py::none();
}

}  // namespace

void add_layer(py::module_& module) {
  py::class_<Saved>(module, "Saved", "What a backward needs of its forward.");
  py::class_<Layer>(module, "Layer")
      .def(py::init(&register_layer))
      .def_property_readonly("active", [](const Layer& layer) { return amaxscope_active(&layer.own()) != 0; })
      .def_property_readonly("due", &is_due)
      .def("wants_result",
           [](const Layer& layer, const std::string& tensor) {
             return amaxscope_wants_result(&layer.own(), meant(kTensors, tensor, "tensor")) != 0;
           })
      .def("set_weight", &set_weight)
      .def("quantize", &quantize)
      .def("reuse", &reuse)
      .def("gathers", &gathers)
      .def("gather", &gather)
      .def("result", &result)
      .def("forward", &forward)
      .def("backward", &backward);
}

}  // namespace amaxscope::python
