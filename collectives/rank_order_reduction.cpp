#include "collectives/rank_order_reduction.hpp"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "core/error.hpp"

namespace amaxscope {

namespace {

template <class T>
T combine(T a, T b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return static_cast<T>(a + b);
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
  }
  return a;
}

template <class T>
T rounded(float value) {
  if constexpr (std::is_same_v<T, BF16>) {
    return to_bf16(value);
  } else {
    return to_f16(value);
  }
}

template <class T>
void reduce_typed(std::span<const void* const> inputs, void* out, std::int64_t count, ReduceOp op) {
  auto* result = static_cast<T*>(out);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto element = [&](std::size_t rank) { return static_cast<const T*>(inputs[rank])[i]; };
    if constexpr (std::is_same_v<T, BF16> || std::is_same_v<T, F16>) {
      float value = to_float(element(0));
      for (std::size_t rank = 1; rank < inputs.size(); ++rank)
        value = combine(value, to_float(element(rank)), op);
      result[i] = rounded<T>(value);
    } else {
      T value = element(0);
      for (std::size_t rank = 1; rank < inputs.size(); ++rank) value = combine(value, element(rank), op);
      result[i] = value;
    }
  }
}

}  // namespace

void reduce_in_order(std::span<const void* const> inputs, void* out, std::int64_t count, DType dtype,
                     ReduceOp op) {
  switch (dtype) {
    case DType::kF64:
      return reduce_typed<double>(inputs, out, count, op);
    case DType::kF32:
      return reduce_typed<float>(inputs, out, count, op);
    case DType::kF16:
      return reduce_typed<F16>(inputs, out, count, op);
    case DType::kBF16:
      return reduce_typed<BF16>(inputs, out, count, op);
    case DType::kU32:
      return reduce_typed<std::uint32_t>(inputs, out, count, op);
    case DType::kI32:
      return reduce_typed<std::int32_t>(inputs, out, count, op);
    case DType::kU64:
      return reduce_typed<std::uint64_t>(inputs, out, count, op);
    case DType::kI64:
      return reduce_typed<std::int64_t>(inputs, out, count, op);
    default:
      break;
  }
  throw Error(ErrorCode::kTensor,
              fmt::format("{} tensors cannot be reduced over ranks; allowed: f64 f32 f16 bf16 "
                          "u32 i32 u64 i64",
                          to_string(dtype)));
}

void reduce_parts_in_order(const void* parts, int ranks, void* out, std::int64_t count, DType dtype,
                           ReduceOp op) {
  const std::size_t bytes = size_bytes(dtype, count);
  std::vector<const void*> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(static_cast<const std::byte*>(parts) + static_cast<std::size_t>(rank) * bytes);
  }
  reduce_in_order(inputs, out, count, dtype, op);
}

}  // namespace amaxscope
