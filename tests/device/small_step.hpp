// A training step of two tensor-parallel layers without anything between them, in FP8 with current scaling,
// on whatever device its tensors are: y = (x W1^T) W2^T, loss = |y|^2 / 2, plain gradient descent. W1 is
// split by its rows and W2 by its columns.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "core/device_backend.hpp"
#include "kernels/gemm.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "runtime/session.hpp"

namespace amaxscope::testing {

/// Of the layers of SmallModel, with nothing due for a thousand steps.
constexpr std::string_view kIdle = R"(
later:
  enabled: True
  layers: {layer_name_regex_pattern: "fc.*"}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, gradient, weight, output]
      stats: [min, max]
      start_step: 1000
)";

/// Brings a host tensor to where the step computes.
using Place = std::function<Tensor(const TensorView& host)>;

/// A layer with its weight, the recipe's quantizers and the session's say.
class SmallLayer {
 public:
  SmallLayer(std::string name, ParallelMode mode, RecipeKind recipe, Communicator& tp, Tensor weight,
             DebugSession* session)
      : tp_(tp), weight_(std::move(weight)) {
    description_.name = std::move(name);
    description_.parallel = mode;
    description_.recipe = recipe;
    description_.tp_group = &tp;
    const auto made = [&](TensorKind tensor) {
      return make_quantizer({.recipe = recipe,
                             .tensor = tensor,
                             .name = description_.name + "." + std::string(to_string(tensor)),
                             .reduce_amaxes = reduce_amaxes_over(&tp, description_.name)});
    };
    quantizers_ = {made(TensorKind::kActivation), made(TensorKind::kWeight), made(TensorKind::kGradient)};
    if (session != nullptr) handle_ = session->layer(description_, quantizers_);
  }

  [[nodiscard]] const Tensor& weight() const { return weight_; }
  void set_weight(Tensor weight) { weight_ = std::move(weight); }
  /// Where it is.
  void overwrite_weight(const Tensor& host) {
    const MutableTensorView there = weight_;
    if (there.device().kind == DeviceKind::kCpu) return copy_tensor(there, host.view());
    const auto copy = backend_of("weight", there).staging().room_for(there);
    copy_tensor(copy->host(), host.view());
    copy->store(there);
  }
  /// What forward has kept.
  void forget() {
    input_.reset();
    operand_.reset();
  }

  /// x W^T, of this rank.
  Tensor forward(const TensorView& x) {
    input_ = quantize(TensorKind::kActivation, x);
    operand_ = quantize(TensorKind::kWeight, weight_.view());
    Tensor y = Tensor::beside(x, DType::kF32, {x.rows(), weight_.rows()});
    gemm(input_->operand(Direction::kRowwise), operand_->operand(Direction::kRowwise), y);
    say(TensorKind::kOutput, y);
    return y;
  }
  /// dgrad and wgrad, of this rank.
  std::pair<Tensor, Tensor> backward(const TensorView& dy) {
    const auto gradient = quantize(TensorKind::kGradient, dy);
    Tensor dx = Tensor::beside(dy, DType::kF32, {dy.rows(), weight_.cols()});
    gemm(gradient->operand(Direction::kRowwise), operand_->operand(Direction::kColumnwise), dx);
    say(TensorKind::kDgrad, dx);
    Tensor dw = Tensor::beside(dy, DType::kF32, weight_.shape());
    gemm(gradient->operand(Direction::kColumnwise), input_->operand(Direction::kColumnwise), dw);
    say(TensorKind::kWgrad, dw);
    return {std::move(dx), std::move(dw)};
  }

 private:
  std::shared_ptr<QuantizedTensor> quantize(TensorKind tensor, const TensorView& x) {
    const TensorMoment moment{training_phase(tensor), 0};
    if (handle_.active()) {
      if (DebugQuantizer* debug = handle_.quantizer(tensor)) return debug->quantize(x, {true, true}, moment);
    }
    Quantizer& recipe = tensor == TensorKind::kActivation ? *quantizers_.activation
                        : tensor == TensorKind::kWeight   ? *quantizers_.weight
                                                          : *quantizers_.gradient;
    return recipe.quantize(x, {true, true}, moment);
  }
  void say(TensorKind result, Tensor& values) {
    if (!handle_.active()) return;
    if (DebugQuantizer* debug = handle_.quantizer(result))
      debug->process_gemm_output(values, {training_phase(result), 0});
  }

  Communicator& tp_;
  Tensor weight_;
  LayerDescription description_;
  OperandQuantizers quantizers_;
  LayerHandle handle_;
  std::shared_ptr<QuantizedTensor> input_;
  std::shared_ptr<QuantizedTensor> operand_;
};

class SmallModel {
 public:
  static constexpr std::int64_t kRows = 32;
  static constexpr std::int64_t kHidden = 32;
  static constexpr std::int64_t kInner = 64;

  SmallModel(RecipeKind recipe, Communicator& tp, const Place& place, DebugSession* session)
      : tp_(tp),
        place_(place),
        fc1_("fc1", ParallelMode::kColumn, recipe, tp,
             place(part(wide_weight(kInner, kHidden, 1), tp, 0).view()), session),
        fc2_("fc2", ParallelMode::kRow, recipe, tp,
             place(part(wide_weight(kHidden, kInner, 2), tp, 1).view()), session),
        x_(place(wide_weight(kRows, kHidden, 3).view())) {}

  struct Gradients {
    Tensor y;
    Tensor dx;
    Tensor dw1;
    Tensor dw2;
  };
  /// Forward and backward; nothing in it waits for a device.
  Gradients step() {
    Tensor inner = fc1_.forward(x_.view());
    Tensor y = fc2_.forward(inner.view());
    tp_.all_reduce(y, ReduceOp::kSum, {.what = "output"});
    auto [dinner, dw2] = fc2_.backward(y.view());
    auto [dx, dw1] = fc1_.backward(dinner.view());
    tp_.all_reduce(dx, ReduceOp::kSum, {.what = "dgrad"});
    return {std::move(y), std::move(dx), std::move(dw1), std::move(dw2)};
  }
  /// Gives back what step() has kept; nothing of it is needed afterwards.
  void forget() {
    fc1_.forget();
    fc2_.forget();
  }
  /// On the host. in_place: the weights stay where they are.
  void descend(const Gradients& gradients, bool in_place = false) {
    const auto moved = [&](SmallLayer& layer, const Tensor& gradient) {
      Tensor weight = to_host(layer.weight().view());
      const Tensor by = to_host(gradient.view());
      for (std::size_t i = 0; i < weight.values<float>().size(); ++i)
        weight.values<float>()[i] -= 0.001F * by.values<float>()[i];
      if (in_place) {
        layer.overwrite_weight(weight);
      } else {
        layer.set_weight(place_(weight.view()));
      }
    };
    moved(fc1_, gradients.dw1);
    moved(fc2_, gradients.dw2);
  }

 private:
  /// Some numbers of both signs, the same everywhere.
  static Tensor wide_weight(std::int64_t rows, std::int64_t cols, std::uint32_t seed) {
    Tensor result(DType::kF32, {rows, cols});
    std::uint32_t state = seed * 2654435761U + 1;
    for (float& value : result.values<float>()) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-33F;
    }
    return result;
  }
  /// This rank's rows (dimension 0) or columns.
  static Tensor part(const Tensor& whole, const Communicator& tp, int dimension) {
    const std::int64_t rows = dimension == 0 ? whole.rows() / tp.size() : whole.rows();
    const std::int64_t cols = dimension == 1 ? whole.cols() / tp.size() : whole.cols();
    const std::int64_t row = dimension == 0 ? rows * tp.rank() : 0;
    const std::int64_t col = dimension == 1 ? cols * tp.rank() : 0;
    Tensor result(whole.dtype(), {rows, cols});
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        result.values<float>()[static_cast<std::size_t>(r * cols + c)] =
            whole.values<float>()[static_cast<std::size_t>((row + r) * whole.cols() + col + c)];
      }
    }
    return result;
  }

  Communicator& tp_;
  Place place_;
  SmallLayer fc1_;
  SmallLayer fc2_;
  Tensor x_;
};

}  // namespace amaxscope::testing
