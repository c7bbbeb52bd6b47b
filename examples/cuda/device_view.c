/* The C API with a tensor in device memory. Without a device: status 77 and the library's own words. */
#include <amaxscope_cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>

#define OK(call)                                                  \
  do {                                                            \
    if ((call) != AMAXSCOPE_OK) {                                 \
      fprintf(stderr, "%s: %s\n", #call, amaxscope_last_error()); \
      return 1;                                                   \
    }                                                             \
  } while (0)

int main(void) {
  amaxscope_cuda_options on = {.size = sizeof on, .device = 0};
  amaxscope_options options = {.size = sizeof options, .preset = "watch"};
  amaxscope_layer_options fc1 = {.size = sizeof fc1, .name = "fc1", .recipe = AMAXSCOPE_CURRENT};
  amaxscope_operand operand = {.size = sizeof operand};
  amaxscope_device* device;
  amaxscope_session* session;
  amaxscope_layer* layer;
  amaxscope_quantized* codes;
  const float values[4] = {1.0F, -2.0F, 3.0F, 16.0F};
  float scale_inv = 0.0F;
  void* memory;
  cudaStream_t stream;

  if (amaxscope_device_from_cuda(&on, &device) != AMAXSCOPE_OK) {
    printf("SKIPPED: %s\n", amaxscope_last_error());
    return 77;
  }
  if (cudaStreamCreate(&stream) != cudaSuccess || cudaMalloc(&memory, sizeof values) != cudaSuccess ||
      cudaMemcpy(memory, values, sizeof values, cudaMemcpyHostToDevice) != cudaSuccess) {
    return 1;
  }
  OK(amaxscope_open(&options, &session));
  OK(amaxscope_register(session, &fc1, &layer));
  amaxscope_view x = {
      .data = memory, .dtype = AMAXSCOPE_F32, .rows = 2, .cols = 2, .device = device, .stream = stream};
  OK(amaxscope_quantize(layer, AMAXSCOPE_ACTIVATION, &x, AMAXSCOPE_ROWWISE, NULL, &codes));
  OK(amaxscope_get_operand(codes, AMAXSCOPE_ROWWISE, &operand));
  cudaMemcpyAsync(&scale_inv, operand.device_scale_inv, sizeof scale_inv, cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  printf("scale_inv %g, of the amax 16: %g\n", scale_inv, 16.0F / 448.0F);
  amaxscope_quantized_free(codes);
  OK(amaxscope_step(session));
  OK(amaxscope_close(session));
  amaxscope_device_free(device);
  cudaFree(memory);
  cudaStreamDestroy(stream);
  return 0;
}
