// Planted faults: what `--inject` asks for, and whether a point in the code is to misbehave now.
// A model without faults holds a null FaultTable*, so a fault point costs one pointer test.
// Used by one thread; nothing here communicates.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.hpp"
#include "megatron/fault_kinds.hpp"
#include "runtime/names.hpp"

namespace amaxscope::megatron {

struct Fault {
  FaultKind kind = FaultKind::kNan;
  std::string layer;                                           ///< empty: every one
  std::optional<TensorKind> tensor = TensorKind::kActivation;  ///< none: every operand
  std::optional<int> rank = {};                                ///< of the world; none: every rank
  std::optional<std::int64_t> iteration = {};                  ///< see FaultTime; none: every iteration
  int exponent = 0;                                            ///< k: a factor of 2^k
  std::int64_t index = 0;                                      ///< flat element of this rank's part
  int microbatch = 0;                                          ///< the first that is struck
  std::int64_t channel = 0;                                    ///< of the whole layer
  std::string parameter = {};
};

/// "KIND@key=value,..", with the keys of its kind (fault_kinds.hpp). Throws Error(kUsage) that names what is
/// allowed.
Fault parse_fault(std::string_view text);

class FaultTable {
 public:
  FaultTable(std::vector<Fault> faults, int world_rank);

  void begin_iteration(std::int64_t iteration) noexcept { iteration_ = iteration; }
  [[nodiscard]] std::int64_t iteration() const noexcept { return iteration_; }
  /// The fault that strikes this tensor on this rank in this iteration, or null.
  [[nodiscard]] const Fault* due(FaultKind kind, std::string_view layer, TensorKind tensor) const noexcept;
  /// The same for a kind that belongs to no layer.
  [[nodiscard]] const Fault* due(FaultKind kind) const noexcept;
  /// Whether one is planted there on any rank and in any iteration: what is built for it must be the same
  /// everywhere.
  [[nodiscard]] bool planted(FaultKind kind, std::string_view layer, TensorKind tensor) const noexcept;
  [[nodiscard]] bool planted(FaultKind kind) const noexcept;
  /// Whether any could strike in this layer.
  [[nodiscard]] bool planted(std::string_view layer) const noexcept;
  [[nodiscard]] std::span<const Fault> faults() const noexcept { return faults_; }
  /// A fault point that can tell says that this one, which is due, has made a difference. Where it strikes
  /// and what comes of it can be steps apart: a rank that skips a maximum loses nothing while it holds it.
  void took_effect(const Fault& fault) const;
  /// By fault: the first iteration in which that was said on this rank.
  [[nodiscard]] std::span<const std::optional<std::int64_t>> first_effects() const noexcept {
    return first_effects_;
  }
  [[nodiscard]] bool is_here(const Fault& fault) const noexcept {
    return fault.rank.value_or(world_rank_) == world_rank_;
  }
  [[nodiscard]] bool is_now(const Fault& fault) const noexcept;
  /// Throws Error(kUsage) for a fault at a layer that is not among these, naming them.
  void require_layers(std::span<const std::string> names) const;

 private:
  std::vector<Fault> faults_;
  int world_rank_;
  std::int64_t iteration_ = 0;
  mutable std::vector<std::optional<std::int64_t>>
      first_effects_;  ///< fault points hold a table they only read
};

/// values[index] = NaN for each such fault that is due. f64, f32 or bf16. Throws Error(kUsage) when an index
/// is outside, on every rank that holds a part of this size and not only on the one to be struck: no rank may
/// go on alone.
void plant_nan(const FaultTable& faults, std::string_view layer, TensorKind tensor,
               const MutableTensorView& values);

}  // namespace amaxscope::megatron
