// Words of Python for enumerators.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "capi/amaxscope.h"
#include "core/dtype.hpp"
#include "core/error.hpp"
#include "runtime/names.hpp"

namespace amaxscope::python {

template <class Enumerator>
struct Word {
  std::string_view text;
  Enumerator value;
};

/// Throws Error(kUsage) with the words that are allowed.
template <class Enumerator, std::size_t N>
Enumerator meant(const std::array<Word<Enumerator>, N>& words, std::string_view given,
                 std::string_view what) {
  std::string allowed;
  for (const auto& word : words) {
    if (word.text == given) return word.value;
    allowed += allowed.empty() ? "" : ", ";
    allowed += word.text;
  }
  throw Error(ErrorCode::kUsage, fmt::format("{} is \"{}\"; allowed are {}", what, given, allowed));
}

inline constexpr std::array kTensors = {
    Word{"activation", AMAXSCOPE_ACTIVATION}, Word{"weight", AMAXSCOPE_WEIGHT},
    Word{"gradient", AMAXSCOPE_GRADIENT},     Word{"output", AMAXSCOPE_OUTPUT},
    Word{"wgrad", AMAXSCOPE_WGRAD},           Word{"dgrad", AMAXSCOPE_DGRAD}};
inline constexpr std::array kGemms = {Word{"fprop", AMAXSCOPE_FPROP}, Word{"dgrad", AMAXSCOPE_DGRAD_GEMM},
                                      Word{"wgrad", AMAXSCOPE_WGRAD_GEMM}};
inline constexpr std::array kPhases = {
    Word{"forward", AMAXSCOPE_FORWARD}, Word{"recompute", AMAXSCOPE_RECOMPUTE},
    Word{"backward", AMAXSCOPE_BACKWARD}, Word{"evaluation", AMAXSCOPE_EVALUATION}};
inline constexpr std::array kParallels = {Word{"none", AMAXSCOPE_NOT_SPLIT}, Word{"column", AMAXSCOPE_COLUMN},
                                          Word{"row", AMAXSCOPE_ROW}};
inline constexpr std::array kLayouts = {
    Word{"replicated", AMAXSCOPE_REPLICATED}, Word{"shard0", AMAXSCOPE_SHARD_ROWS},
    Word{"shard1", AMAXSCOPE_SHARD_COLUMNS}, Word{"partial", AMAXSCOPE_PARTIAL_SUM}};
inline constexpr std::array kRecipes = {
    Word{"none", AMAXSCOPE_HIGH_PRECISION}, Word{"delayed", AMAXSCOPE_DELAYED},
    Word{"current", AMAXSCOPE_CURRENT},     Word{"mxfp8", AMAXSCOPE_MXFP8},
    Word{"block", AMAXSCOPE_FP8_BLOCK},     Word{"nvfp4", AMAXSCOPE_NVFP4}};
inline constexpr std::array kDirections = {Word{"rowwise", Direction::kRowwise},
                                           Word{"columnwise", Direction::kColumnwise}};
inline constexpr std::array kOnFailure = {Word{"by_config", AMAXSCOPE_BY_CONFIG},
                                          Word{"detach", AMAXSCOPE_DETACH}, Word{"abort", AMAXSCOPE_ABORT}};
inline constexpr std::array kAmaxScopes = {Word{"tensor", AMAXSCOPE_SCALE_OF_TENSOR},
                                           Word{"te", AMAXSCOPE_SCALE_AS_TE},
                                           Word{"local", AMAXSCOPE_SCALE_LOCAL}};
inline constexpr std::array kDTypes = {
    Word{"f64", DType::kF64},   Word{"f32", DType::kF32},   Word{"f16", DType::kF16},
    Word{"bf16", DType::kBF16}, Word{"e4m3", DType::kE4M3}, Word{"e5m2", DType::kE5M2},
    Word{"e8m0", DType::kE8M0}, Word{"e2m1", DType::kE2M1}, Word{"u8", DType::kU8},
    Word{"u32", DType::kU32},   Word{"i32", DType::kI32},   Word{"u64", DType::kU64},
    Word{"i64", DType::kI64}};

/// "f32"
inline std::string word_of(DType dtype) {
  return std::string(kDTypes.at(static_cast<std::size_t>(dtype)).text);
}

inline amaxscope_moment moment(std::string_view phase, int microbatch) {
  return {.phase = meant(kPhases, phase, "phase"), .microbatch = microbatch};
}
inline unsigned directions(bool rowwise, bool columnwise) {
  return (rowwise ? static_cast<unsigned>(AMAXSCOPE_ROWWISE) : 0U) |
         (columnwise ? static_cast<unsigned>(AMAXSCOPE_COLUMNWISE) : 0U);
}

}  // namespace amaxscope::python
