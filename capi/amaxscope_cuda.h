/* CUDA devices for amaxscope.h: libamaxscope_cuda.so, which is there where amaxscope was built with a CUDA
 * toolkit (docs/cuda.md says what is computed on a device). C99 or C++; names no CUDA type.
 *
 *   amaxscope_cuda_options options = {.size = sizeof options, .device = 0};
 *   amaxscope_device* device;
 *   if (amaxscope_device_from_cuda(&options, &device) != AMAXSCOPE_OK) puts(amaxscope_last_error());
 *   amaxscope_view x = {.data = pointer, .dtype = AMAXSCOPE_BF16, .rows = m, .cols = k, .device = device,
 *                       .stream = stream};
 *
 * Everything that takes a view takes this one. */
#ifndef AMAXSCOPE_CUDA_H
#define AMAXSCOPE_CUDA_H

#include "amaxscope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What becomes of products that cuBLASLt has no kernel for on this device. */
typedef enum amaxscope_unsupported_gemm {
  AMAXSCOPE_DEQUANTIZE = 0, /* decoded to f32 and multiplied in f32; said once for each reason */
  AMAXSCOPE_REFUSE = 1      /* AMAXSCOPE_ERROR_TENSOR */
} amaxscope_unsupported_gemm;

typedef struct amaxscope_cuda_options {
  size_t size; /* sizeof(amaxscope_cuda_options) */
  int device;  /* by its ordinal in this process */
  amaxscope_unsupported_gemm unsupported;
  /* Device memory for what the library makes: codes, scales, results of statistics. Both or none; none: a
   * memory pool of the device's own. Called on the thread that calls the library. */
  void* allocator_context;
  /* At least `bytes`, aligned to 256, to be used by what is enqueued on the stream from now on. NULL: there
   * is no memory (AMAXSCOPE_ERROR_MEMORY). */
  void* (*allocate)(void* context, size_t bytes, int device, void* stream);
  /* Not used any more by what is enqueued on the stream from now on; what was enqueued before still uses it.
   */
  void (*free)(void* context, void* memory, size_t bytes, int device, void* stream);
  /* A message to people; NULL: standard error. */
  void* warn_context;
  void (*warn)(void* context, const char* text);
} amaxscope_cuda_options;

/* AMAXSCOPE_ERROR_USAGE with CUDA's own words where there is no driver or no such device. Freed by
 * amaxscope_device_free. */
AMAXSCOPE_API amaxscope_status amaxscope_device_from_cuda(const amaxscope_cuda_options* options,
                                                          amaxscope_device** device);

#ifdef __cplusplus
}
#endif

#endif
