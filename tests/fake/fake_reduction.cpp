// Reductions as NCCL does them: two values at a time, rounded to the type each time.
#include <algorithm>
#include <cstring>

#include "core/half.hpp"
#include "tests/fake/fake_comm.hpp"
#include "tests/fake/fake_state.hpp"

namespace amaxscope::fake {

namespace {

template <class T>
T reduced(T a, T b, ncclRedOp_t op) {
  switch (op) {
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return static_cast<T>(a + b);
  }
}

F16 reduced(F16 a, F16 b, ncclRedOp_t op) { return to_f16(reduced(to_float(a), to_float(b), op)); }
BF16 reduced(BF16 a, BF16 b, ncclRedOp_t op) { return to_bf16(reduced(to_float(a), to_float(b), op)); }

template <class T>
void each(std::byte* a, const std::byte* b, std::size_t bytes, ncclRedOp_t op) {
  for (std::size_t at = 0; at < bytes; at += sizeof(T)) {
    T x;
    T y;
    std::memcpy(&x, a + at, sizeof(T));
    std::memcpy(&y, b + at, sizeof(T));
    x = reduced(x, y, op);
    std::memcpy(a + at, &x, sizeof(T));
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
    case ncclInt64:
    case ncclUint64:
      return 8;
    case ncclFloat32:
    case ncclInt32:
    case ncclUint32:
      return 4;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    default:
      return 1;
  }
}

void combine(std::byte* a, const std::byte* b, std::size_t bytes, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclFloat64:
      return each<double>(a, b, bytes, op);
    case ncclFloat32:
      return each<float>(a, b, bytes, op);
    case ncclInt64:
      return each<std::int64_t>(a, b, bytes, op);
    case ncclUint64:
      return each<std::uint64_t>(a, b, bytes, op);
    case ncclInt32:
      return each<std::int32_t>(a, b, bytes, op);
    case ncclUint32:
      return each<std::uint32_t>(a, b, bytes, op);
    case ncclFloat16:
      return each<F16>(a, b, bytes, op);
    case ncclBfloat16:
      return each<BF16>(a, b, bytes, op);
    default:
      add_violation("a reduction of a type that the imitated NCCL does not have");
  }
}

}  // namespace amaxscope::fake
