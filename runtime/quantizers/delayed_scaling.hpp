// Delayed scaling: the scale of a step comes from the amaxes of the steps before it.
// Source of every rule: TransformerEngine quantization.py and recipe/delayed_scaling.cu, the fused bulk
// update.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "kernels/codec/scale.hpp"
#include "runtime/quantizers/quantizer.hpp"

namespace amaxscope {

enum class AmaxAlgorithm { kMax, kMostRecent };

struct DelayedScalingOptions {
  int history_length = 1024;  ///< rows kept, at least 1
  int margin = 0;             ///< the scale maps amax to fp8_max * 2^-margin
  AmaxAlgorithm algorithm = AmaxAlgorithm::kMax;
};

/// Histories and scales of all tensors of a process. Owned by the trainer, which calls update() once a step,
/// after backward (the reference updates forward states per forward: a documented difference).
class DelayedScalingState {
 public:
  /// Slots in registration order, which must be the same on all ranks of the group.
  /// amax_group null: not reduced; else it must outlive the state.
  DelayedScalingState(DelayedScalingOptions options, Communicator* amax_group);

  /// A new slot with scale 1 and an empty history. The name is for reports.
  std::size_t add(std::string name, DType format);

  struct Slot {
    std::string name;
    DType format = DType::kE4M3;
    float scale = 1.0F;
    ScaleClamp clamp = ScaleClamp::kNone;
    bool has_history = false;  ///< false: the scale is still the initial 1 ("no_history")
    std::vector<std::uint32_t>
        history;  ///< amax bits; row 0 collects the running step, row L-1 is the newest
  };
  [[nodiscard]] const Slot& slot(std::size_t index) const { return slots_.at(index); }
  [[nodiscard]] std::size_t size() const noexcept { return slots_.size(); }
  /// Puts back what slot() gave, after a restart. Throws Error(kUsage) when name, format or length of the
  /// history are not those of the slot.
  void restore(std::size_t index, Slot slot);
  [[nodiscard]] const DelayedScalingOptions& options() const noexcept { return options_; }

  /// Row 0 takes the maximum of itself and this amax.
  void observe(std::size_t index, std::uint32_t amax_bits);
  /// The same with the amax of a tensor. Of one on a device it stays there until update(), and the host waits
  /// for nothing. All tensors of a state that are on a device are on one stream (Error(kTensor)).
  void observe(std::size_t index, const TensorView& x);
  /// The slot's scale, where `like` is. While its stream is captured into a CUDA graph: a copy that replays
  /// make of the scale that update() has left last. Throws Error(kUsage) when that is not in device memory
  /// yet.
  [[nodiscard]] Float8Scale scale_beside(std::size_t index, const TensorView& like);

  /// Ends a step: one MAX over the group for all slots together (recipe traffic), then for each slot roll,
  /// amax by the algorithm, new scale. A slot whose step amax is 0 (did not run, or all zero) keeps history
  /// and scale. A scale is kept, too, when the amax is not finite. Collective over the group; blocks, once
  /// for a device.
  void update();

 private:
  /// What slots have on a device: [i] is of slot i.
  struct OnDevice {
    TensorView stream;                   ///< of no element, to be beside
    Tensor amaxes;                       ///< u32, of the running step
    std::shared_ptr<const Tensor> both;  ///< f32 [2 n], scale and 1 / scale; made anew when they change
    Tensor current;                      ///< the same at an address that stays, for captured steps
    bool captured = false;
  };
  OnDevice& on_device_of(std::size_t index, const TensorView& like);
  void make_scales(OnDevice& there) const;
  void fetch_amaxes();

  DelayedScalingOptions options_;
  Communicator* amax_group_;
  std::vector<Slot> slots_;
  std::optional<OnDevice> on_device_;
};

/// Casts with the slot's scale and records the tensor's amax in the slot (not in eval, not in a recompute).
class Float8Quantizer final : public Quantizer {
 public:
  /// The state must outlive the quantizer.
  Float8Quantizer(DelayedScalingState& state, std::size_t slot);
  [[nodiscard]] std::shared_ptr<QuantizedTensor> quantize(const TensorView& x, Usage usage,
                                                          const TensorMoment& moment) override;
  void update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) override;
  [[nodiscard]] RecipeKind recipe() const noexcept override { return RecipeKind::kDelayed; }
  [[nodiscard]] DType format() const noexcept override { return state_.slot(slot_).format; }
  [[nodiscard]] const DelayedScalingState::Slot& slot() const { return state_.slot(slot_); }
  [[nodiscard]] const DelayedScalingOptions& options() const noexcept { return state_.options(); }

 private:
  void observe(const TensorView& x, const TensorMoment& moment);

  DelayedScalingState& state_;
  std::size_t slot_;
};

}  // namespace amaxscope
