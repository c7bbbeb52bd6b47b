// Cast to FP8 under one scale that lies in device memory.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/runs.cuh"

namespace amaxscope::cuda {

namespace {

template <DType kFormat, class T>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(const T* x, Runs runs, const float* scale, std::uint8_t* codes) {
  constexpr int kCount = Pack<T>::kCount;
  const float factor = load(scale);
  // Codes of packs lie as x does: aligned all or none.
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x) % 16 / sizeof(T));
  const bool aligned = is_aligned(codes - past, kCount);
  for_each_pack<4>(
      x, runs,
      [&](const Pack<T>& pack, std::int64_t index) {
        const Fp8Codes<T> encoded = encode_pack<kFormat>(pack, [&](int) { return factor; });
        if (aligned) {
          store_codes<T>(codes + index, encoded);
        } else {
#pragma unroll
          for (int i = 0; i < kCount; ++i)
            codes[index + i] = static_cast<std::uint8_t>(encoded.words[i / 4] >> (i % 4 * 8));
        }
      },
      [&](float value, std::int64_t index) {
        codes[index] = static_cast<std::uint8_t>(encode_fp8_pair<kFormat>(value * factor, 0.0F));
      });
}

}  // namespace

LaunchError launch_cast(const Matrix& x, DType format, const float* scale, std::uint8_t* codes,
                        Stream stream) {
  if (x.rows * x.cols == 0) return nullptr;
  return with_format(format, [&]<DType kFormat>(std::integral_constant<DType, kFormat>) {
    return with_type(x.type, [&]<class T>(std::type_identity<T>) {
      const Runs runs{.count = x.rows * x.cols};
      return launch(cast_kernel<kFormat, T>, grid_for_runs<T>(runs.count, 1, 8), kThreads, stream,
                    static_cast<const T*>(x.data), runs, scale, codes);
    });
  });
}

}  // namespace amaxscope::cuda
