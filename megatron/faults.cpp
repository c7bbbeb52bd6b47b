#include "megatron/faults.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "core/error.hpp"

namespace amaxscope::megatron {

namespace {

bool strikes(const Fault& fault, FaultKind kind, std::string_view layer, TensorKind tensor) noexcept {
  return fault.kind == kind && fault.tensor.value_or(tensor) == tensor &&
         (fault.layer.empty() || fault.layer == layer);
}

void write_nan(const MutableTensorView& values, std::size_t index) {
  switch (values.dtype()) {
    case DType::kF64:
      values.values<double>()[index] = std::numeric_limits<double>::quiet_NaN();
      return;
    case DType::kF32:
      values.values<float>()[index] = std::numeric_limits<float>::quiet_NaN();
      return;
    default:
      values.values<BF16>()[index] = to_bf16(std::numeric_limits<float>::quiet_NaN());
      return;
  }
}

}  // namespace

FaultTable::FaultTable(std::vector<Fault> faults, int world_rank)
    : faults_(std::move(faults)), world_rank_(world_rank), first_effects_(faults_.size()) {}

void FaultTable::took_effect(const Fault& fault) const {
  std::optional<std::int64_t>& first = first_effects_[static_cast<std::size_t>(&fault - faults_.data())];
  if (!first) first = iteration_;
}

bool FaultTable::is_now(const Fault& fault) const noexcept {
  if (!fault.iteration) return true;
  return row_of(fault.kind).time == FaultTime::kSince ? iteration_ >= *fault.iteration
                                                      : iteration_ == *fault.iteration;
}

const Fault* FaultTable::due(FaultKind kind, std::string_view layer, TensorKind tensor) const noexcept {
  for (const Fault& fault : faults_) {
    if (strikes(fault, kind, layer, tensor) && is_here(fault) && is_now(fault)) return &fault;
  }
  return nullptr;
}

const Fault* FaultTable::due(FaultKind kind) const noexcept {
  for (const Fault& fault : faults_) {
    if (fault.kind == kind && is_here(fault) && is_now(fault)) return &fault;
  }
  return nullptr;
}

bool FaultTable::planted(FaultKind kind, std::string_view layer, TensorKind tensor) const noexcept {
  return std::any_of(faults_.begin(), faults_.end(),
                     [&](const Fault& fault) { return strikes(fault, kind, layer, tensor); });
}

bool FaultTable::planted(FaultKind kind) const noexcept {
  return std::any_of(faults_.begin(), faults_.end(), [&](const Fault& fault) { return fault.kind == kind; });
}

bool FaultTable::planted(std::string_view layer) const noexcept {
  return std::any_of(faults_.begin(), faults_.end(), [&](const Fault& fault) {
    return row_of(fault.kind).keys.has(FaultKey::kLayer) && (fault.layer.empty() || fault.layer == layer);
  });
}

void FaultTable::require_layers(std::span<const std::string> names) const {
  for (const Fault& fault : faults_) {
    if (fault.layer.empty()) continue;
    AMAXSCOPE_CHECK(std::find(names.begin(), names.end(), fault.layer) != names.end(), ErrorCode::kUsage,
                    "fault {}: there is no layer \"{}\"; layers: {}", to_string(fault.kind), fault.layer,
                    fmt::join(names, ", "));
  }
}

void plant_nan(const FaultTable& faults, std::string_view layer, TensorKind tensor,
               const MutableTensorView& values) {
  for (const Fault& fault : faults.faults()) {
    if (!strikes(fault, FaultKind::kNan, layer, tensor) || !faults.is_now(fault)) continue;
    AMAXSCOPE_CHECK(fault.index < values.numel(), ErrorCode::kUsage,
                    "fault nan: index {} is outside {} of {}, which has {} elements on a rank", fault.index,
                    to_string(tensor), layer, values.numel());
    if (faults.is_here(fault)) write_nan(values, static_cast<std::size_t>(fault.index));
  }
}

}  // namespace amaxscope::megatron
