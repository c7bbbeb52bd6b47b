// Between f32, f16 and bf16.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/runs.cuh"

namespace amaxscope::cuda {

namespace {

/// Bits of RN(x) in T.
template <class T>
__device__ std::uint32_t narrowed(float x) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<std::uint32_t>(x);
  } else {
    return round_to<T>(x).bits;
  }
}

template <class To>
__device__ void put(To* out, std::uint32_t bits) {
  if constexpr (sizeof(To) == 4) {
    *out = std::bit_cast<float>(bits);
  } else {
    out->bits = static_cast<std::uint16_t>(bits);
  }
}

template <class From, class To>
__global__ void __launch_bounds__(kThreads) convert_kernel(const From* x, Runs runs, To* out) {
  constexpr int kCount = Pack<From>::kCount;
  constexpr int kWords = kCount * static_cast<int>(sizeof(To)) / 4;  // 2, 4 or 8
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x) % 16 / sizeof(From));
  const bool aligned = is_aligned(out - past, kWords * 4 < 16 ? kWords * 4 : 16);
  for_each_pack<4>(
      x, runs,
      [&](const Pack<From>& pack, std::int64_t index) {
        if (!aligned) {
#pragma unroll
          for (int i = 0; i < kCount; ++i) put(out + index + i, narrowed<To>(pack[i]));
          return;
        }
        std::uint32_t words[kWords] = {};
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          if constexpr (sizeof(To) == 4) {
            words[i] = narrowed<To>(pack[i]);
          } else {
            words[i / 2] |= narrowed<To>(pack[i]) << (i % 2 * 16);
          }
        }
        if constexpr (kWords == 2) {
          store(reinterpret_cast<uint2*>(out + index), uint2{words[0], words[1]});
        } else {
#pragma unroll
          for (int i = 0; i < kWords; i += 4) {
            store(reinterpret_cast<uint4*>(out + index) + i / 4,
                  uint4{words[i], words[i + 1], words[i + 2], words[i + 3]});
          }
        }
      },
      [&](float value, std::int64_t index) { put(out + index, narrowed<To>(value)); });
}

}  // namespace

LaunchError launch_convert(const Matrix& x, void* out, DType type, Stream stream) {
  if (x.rows * x.cols == 0) return nullptr;
  const Runs runs{.count = x.rows * x.cols};
  return with_type(x.type, [&]<class From>(std::type_identity<From>) {
    return with_type(type, [&]<class To>(std::type_identity<To>) {
      return launch(convert_kernel<From, To>, grid_for_runs<From>(runs.count, 1, 8), kThreads, stream,
                    static_cast<const From*>(x.data), runs, static_cast<To*>(out));
    });
  });
}

}  // namespace amaxscope::cuda
