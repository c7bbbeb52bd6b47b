// An iteration with a tensor on a CUDA device, quantized and observed there, as one rank of NCCL. Without a
// device: status 77 and why.
#include <amaxscope/collectives/loopback_communicator.hpp>
#include <amaxscope/collectives/nccl/nccl_communicator.hpp>
#include <amaxscope/core/cuda/cuda_device.hpp>
#include <amaxscope/core/cuda/cuda_handles.hpp>
#include <amaxscope/features/builtin.hpp>
#include <amaxscope/kernels/cuda/cublaslt_gemm.hpp>
#include <amaxscope/kernels/cuda/cuda_backend.hpp>
#include <amaxscope/runtime/quantizers/quantizer_factory.hpp>
#include <amaxscope/runtime/session.hpp>
#include <cstdio>

using namespace amaxscope;

namespace {

constexpr const char* kConfig = R"(
all:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation]
      stats: [cur_amax, l2_norm]
)";

void run_step() {
  const auto backend = make_cuda_backend({.device = 0, .gemm = make_cublaslt_gemm(0)});
  const CudaStream queue = CudaStream::create();
  const Stream stream{queue.get(), backend.get()};

  const auto alone = make_single_rank_communicator();
  const auto nccl = make_nccl_communicator(*alone, {.device = 0});
  SessionGroups groups;
  groups.world = groups.tp = groups.stage = nccl.get();
  SessionOptions options;
  options.config_text = kConfig;
  DebugSession session(builtin_features(), groups, std::move(options));

  OperandQuantizers quantizers;
  quantizers.activation = make_quantizer(
      {.recipe = RecipeKind::kCurrent, .reduce_amaxes = reduce_amaxes_over(nccl.get(), "fc1.activation")});
  LayerDescription description;
  description.name = "fc1";
  description.recipe = RecipeKind::kCurrent;
  const LayerHandle layer = session.layer(description, quantizers);

  const Tensor host = Tensor::of({1.0F, -2.0F, 3.0F, 16.0F}, {2, 2});
  const Tensor x =
      to_device(host.view(), TensorView(nullptr, DType::kU8, Shape{0}, backend->device(), stream));
  DebugQuantizer* const quantizer = layer.quantizer(TensorKind::kActivation);
  const auto codes = quantizer->quantize(x.view(), {.rowwise = true}, {});
  session.step();
  const Tensor values = to_host(codes->dequantize(DType::kF32, Direction::kRowwise).view());
  std::printf("amax in device memory, quantized: %g\n", static_cast<double>(values.values<float>()[3]));
}

}  // namespace

int main() {
  const CudaPresence presence = cuda_presence();
  if (presence.devices == 0) {
    std::printf("SKIPPED: no CUDA device: %s\n", presence.why_none.c_str());
    return 77;
  }
  try {
    run_step();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
