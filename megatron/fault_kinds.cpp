#include "megatron/fault_kinds.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace amaxscope::megatron {

namespace {

using enum FaultKey;

constexpr std::array kKinds = {
    FaultKindRow{FaultKind::kSkipAmaxReduction, "skip_amax_reduction", "P02",
                 FaultKeys(kLayer, kRank, kIteration, kTensor), FaultKeys(kLayer), FaultTime::kAt,
                 FaultTensors::kOperands,
                 "the rank makes an operand's scale from its own amax; the others still get its amax"},
    FaultKindRow{FaultKind::kScaleOff, "scale_off", "",
                 FaultKeys(kLayer, kRank, kIteration, kTensor, kExponent), FaultKeys(kLayer, kExponent),
                 FaultTime::kAt, FaultTensors::kOperands, "an operand's scale is multiplied by 2^k"},
    FaultKindRow{FaultKind::kNan, "nan", "", FaultKeys(kLayer, kRank, kIteration, kTensor, kIndex),
                 FaultKeys(kLayer), FaultTime::kAt, FaultTensors::kAll,
                 "a NaN at an element of a tensor, before it is quantized or reduced"},
    FaultKindRow{FaultKind::kAmaxOverDp, "amax_over_dp", "P01", FaultKeys(kIteration), FaultKeys(),
                 FaultTime::kSince, FaultTensors::kNone,
                 "delayed scaling reduces its amaxes over dp instead of tp and dp"},
    FaultKindRow{FaultKind::kStaleWeight, "stale_weight", "P03",
                 FaultKeys(kLayer, kRank, kIteration, kMicrobatch), FaultKeys(kLayer), FaultTime::kSince,
                 FaultTensors::kNone,
                 "a quantized weight is not refreshed after the optimizer step; from that micro-batch on"},
    FaultKindRow{FaultKind::kStaleColumnwise, "stale_columnwise", "P05", FaultKeys(kLayer, kRank, kIteration),
                 FaultKeys(kLayer), FaultTime::kSince, FaultTensors::kNone,
                 "only the rowwise copy of a quantized weight is refreshed"},
    FaultKindRow{FaultKind::kRecomputeInBf16, "recompute_in_bf16", "P07",
                 FaultKeys(kLayer, kRank, kIteration), FaultKeys(), FaultTime::kSince, FaultTensors::kNone,
                 "a recompute multiplies in BF16 instead of quantizing; no layer: in all"},
    FaultKindRow{FaultKind::kE5m2Gradients, "e5m2_gradients", "P08", FaultKeys(kLayer), FaultKeys(),
                 FaultTime::kAlways, FaultTensors::kNone,
                 "mxfp8 gradients in E5M2 instead of E4M3; no layer: in all"},
    FaultKindRow{
        FaultKind::kScaleRoundedDown, "scale_rounded_down", "P09",
        FaultKeys(kLayer, kRank, kIteration, kTensor), FaultKeys(), FaultTime::kSince,
        FaultTensors::kOperands,
        "mxfp8 scales rounded down to powers of two, so that blocks saturate; no layer, no tensor: all"},
    FaultKindRow{FaultKind::kGrowChannel, "grow_channel", "P11", FaultKeys(kLayer, kIteration, kChannel),
                 FaultKeys(kLayer), FaultTime::kSince, FaultTensors::kNone,
                 "gate and up weights of one SwiGLU channel are aligned and grow by 2 % a step"},
    FaultKindRow{FaultKind::kFixedRoundingSeed, "fixed_rounding_seed", "P13",
                 FaultKeys(kLayer, kRank, kIteration), FaultKeys(), FaultTime::kSince, FaultTensors::kNone,
                 "nvfp4 gradients are rounded with the same random numbers every time; no layer: in all"},
    FaultKindRow{FaultKind::kSkipGradientReduction, "skip_gradient_reduction", "P14",
                 FaultKeys(kIteration, kParameter), FaultKeys(), FaultTime::kSince, FaultTensors::kNone,
                 "the gradient of a replicated parameter (the final norm's weight) is not reduced over tp"},
    FaultKindRow{FaultKind::kOverwriteColumnwise, "overwrite_columnwise", "P17",
                 FaultKeys(kLayer, kRank, kIteration), FaultKeys(kLayer), FaultTime::kAt, FaultTensors::kNone,
                 "the columnwise copy of a quantized weight is overwritten with NaN"},
    FaultKindRow{FaultKind::kNoMasterWeights, "no_master_weights", "P19", FaultKeys(kIteration), FaultKeys(),
                 FaultTime::kSince, FaultTensors::kNone,
                 "weights are kept in BF16 only: updates smaller than half a step of it are lost"},
    FaultKindRow{
        FaultKind::kAdamLag, "adam_lag", "P20", FaultKeys(kIteration, kExponent), FaultKeys(kIteration),
        FaultTime::kAt, FaultTensors::kNone,
        "no fault of precision: gradients jump by 2^k (k=6), unclipped, and Adam's second moments lag"},
};

std::string_view when(FaultTime time) noexcept {
  return time == FaultTime::kSince ? " (iteration: from then on)" : "";
}

}  // namespace

std::span<const FaultKindRow> fault_kinds() noexcept { return kKinds; }

const FaultKindRow& row_of(FaultKind kind) noexcept {
  return *std::find_if(kKinds.begin(), kKinds.end(),
                       [kind](const FaultKindRow& row) { return row.kind == kind; });
}

std::string_view to_string(FaultKind kind) noexcept { return row_of(kind).name; }

std::string FaultKeys::names() const {
  std::vector<std::string_view> result;
  for (std::size_t i = 0; i < kFaultKeys.size(); ++i) {
    if (has(static_cast<FaultKey>(i))) result.push_back(kFaultKeys[i]);
  }
  return fmt::format("{}", fmt::join(result, ", "));
}

std::string fault_help() {
  std::string text;
  for (const FaultKindRow& row : kKinds) {
    text +=
        fmt::format("{:<3} {}@{}{}\n      {}\n", row.id, row.name, row.keys.names(), when(row.time), row.doc);
  }
  return text;
}

}  // namespace amaxscope::megatron
