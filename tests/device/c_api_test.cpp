// The C API on tensors of an imitated device, with groups over the imitated NCCL: the codes, results and
// records of the same calls on the host.
#include "tests/capi/c_api.hpp"

#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "capi/amaxscope_cuda.h"
#include "capi/amaxscope_nccl.h"
#include "tests/collectives/nccl_test.hpp"
#include "tests/device/captured_graph.hpp"
#include "tests/device/emulated_device.hpp"
#include "tests/fake/fake_cublaslt.hpp"
#include "tests/support/temporary_folder.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::HasSubstr;

/// A program's allocator that knows what it has given.
struct Memory {
  std::map<void*, std::size_t> given;
  int calls = 0;
  void* only_stream = nullptr;
  bool exhausted = false;

  static void* allocate(void* context, std::size_t bytes, int device, void* stream) {
    auto& own = *static_cast<Memory*>(context);
    EXPECT_EQ(device, 0);
    EXPECT_EQ(stream, own.only_stream);
    if (own.exhausted) return nullptr;
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
    ++own.calls;
    own.given.emplace(memory, bytes);
    return memory;
  }
  static void free(void* context, void* memory, std::size_t bytes, int, void* stream) {
    auto& own = *static_cast<Memory*>(context);
    EXPECT_EQ(stream, own.only_stream);
    const auto found = own.given.find(memory);
    ASSERT_NE(found, own.given.end());
    EXPECT_EQ(found->second, bytes);
    own.given.erase(found);
    EXPECT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), cudaSuccess);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
  }
};

class CApiDevice : public NcclTest {
 protected:
  void SetUp() override {
    NcclTest::SetUp();
    connect_emulator();
    stream_ = CudaStream::create();
  }
  void TearDown() override {
    amaxscope_device_free(device_);
    stream_ = {};
    EXPECT_EQ(fake::live_cublas_objects(), 0U);
    NcclTest::TearDown();
  }
  void open_device(Memory* memory = nullptr) {
    amaxscope_cuda_options options = {};
    options.size = sizeof options;
    if (memory != nullptr) {
      memory->only_stream = stream_.get();
      options.allocator_context = memory;
      options.allocate = Memory::allocate;
      options.free = Memory::free;
    }
    ASSERT_OK(amaxscope_device_from_cuda(&options, &device_));
  }
  [[nodiscard]] amaxscope_view view(const OnDevice<float>& values, std::int64_t rows,
                                    std::int64_t cols) const {
    return {values.data(), AMAXSCOPE_F32, rows, cols, 0, device_, stream_.get()};
  }
  template <class T>
  [[nodiscard]] std::vector<T> fetched(const void* memory, std::size_t count) const {
    std::vector<T> result(count);
    EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(result.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return result;
  }
  [[nodiscard]] ncclComm_t trainers() const {
    ncclUniqueId id{};
    if (rank() == 0) {
      EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    }
    world().broadcast(MutableTensorView(&id, DType::kU8, {sizeof id}), 0, kNcclTag);
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, size(), id, rank()), ncclSuccess);
    return comm;
  }

  CudaStream stream_;
  amaxscope_device* device_ = nullptr;
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"  // of C, where the others are 0
TEST_F(CApiDevice, TensorsAreHandedInAsTheBookSays) {
  constexpr std::int64_t m = 2;
  constexpr std::int64_t k = 16;
  const OnDevice<std::uint16_t> values(std::vector<std::uint16_t>(m * k, 0xC040), stream_);  // -3
  void* const pointer = values.data();
  void* const stream = stream_.get();

  amaxscope_cuda_options on = {.size = sizeof on, .device = 0};
  amaxscope_device* device;
  amaxscope_device_from_cuda(&on, &device);

  amaxscope_view x = {
      .data = pointer, .dtype = AMAXSCOPE_BF16, .rows = m, .cols = k, .device = device, .stream = stream};

  device_ = device;  // until the end of the test
  const Session session = open_session(nullptr);
  amaxscope_quantized* made = nullptr;
  ASSERT_OK(amaxscope_quantize(add_layer(session.get(), "fc1", AMAXSCOPE_CURRENT), AMAXSCOPE_ACTIVATION, &x,
                               AMAXSCOPE_ROWWISE, nullptr, &made));
  const Quantized codes(made);
  EXPECT_EQ(fetched<float>(operand_of(codes, AMAXSCOPE_ROWWISE).device_scale_inv, 1)[0], 3.0F / 448.0F);
}
#pragma GCC diagnostic pop

TEST_F(CApiDevice, QuantizesAndMultipliesWhereTheTensorsAre) {
  Memory memory;
  open_device(&memory);
  {
    const Session session = open_session(nullptr);
    const Session of_host = open_session(nullptr);
    Matrix x(32, 64, 1);
    Matrix weight(16, 64, 2);
    Matrix dy(32, 16, 3);
    const OnDevice<float> x_there(x.values, stream_);
    const OnDevice<float> weight_there(weight.values, stream_);
    const OnDevice<float> dy_there(dy.values, stream_);
    for (const amaxscope_recipe recipe : {AMAXSCOPE_CURRENT, AMAXSCOPE_NVFP4}) {
      const std::string name = "layer of " + std::to_string(recipe);
      amaxscope_layer* const layer = add_layer(session.get(), name.c_str(), recipe);
      amaxscope_layer* const host_layer = add_layer(of_host.get(), name.c_str(), recipe);
      const amaxscope_view given = view(x_there, 32, 64);
      amaxscope_quantized* made = nullptr;
      ASSERT_OK(amaxscope_quantize(layer, AMAXSCOPE_ACTIVATION, &given, AMAXSCOPE_ROWWISE, nullptr, &made));
      const Quantized there(made);
      const Quantized here = quantize(host_layer, AMAXSCOPE_ACTIVATION, x, AMAXSCOPE_ROWWISE);
      const amaxscope_operand got = operand_of(there, AMAXSCOPE_ROWWISE);
      const amaxscope_operand wanted = operand_of(here, AMAXSCOPE_ROWWISE);
      EXPECT_EQ(got.data.device, device_);
      EXPECT_EQ(got.data.stream, stream_.get());
      EXPECT_EQ(wanted.data.device, nullptr);
      const std::size_t bytes = recipe == AMAXSCOPE_NVFP4 ? 32 * 32 : 32 * 64;
      EXPECT_EQ(std::memcmp(fetched<unsigned char>(got.data.data, bytes).data(), wanted.data.data, bytes), 0);
      if (recipe == AMAXSCOPE_CURRENT) {
        EXPECT_EQ(got.scale_inv, 0.0F);
        ASSERT_NE(got.device_scale_inv, nullptr);
        EXPECT_EQ(fetched<float>(got.device_scale_inv, 1)[0], wanted.scale_inv);
        EXPECT_EQ(wanted.device_scale_inv, nullptr);
      } else {
        ASSERT_NE(got.device_tensor_amax, nullptr);
        EXPECT_EQ(fetched<float>(got.device_tensor_amax, 1)[0] * got.tensor_factor, wanted.tensor_factor);
        EXPECT_EQ(got.block_scales.device, device_);
      }
      const OnDevice<float> values(32 * 64, stream_);
      amaxscope_view decoded = view(values, 32, 64);
      EXPECT_OK(amaxscope_values(there.get(), AMAXSCOPE_ROWWISE, &decoded));
      Matrix host_values(32, 64);
      amaxscope_view host_decoded = host_values.view();
      EXPECT_OK(amaxscope_values(here.get(), AMAXSCOPE_ROWWISE, &host_decoded));
      EXPECT_EQ(values.read(), host_values.values);

      // A forward and a backward, the second into a running sum.
      const OnDevice<float> y(32 * 16, stream_);
      const OnDevice<float> dx(32 * 64, stream_);
      const OnDevice<float> dweight(std::vector<float>(16 * 64, 1.0F), stream_);
      const amaxscope_view w = view(weight_there, 16, 64);
      const amaxscope_view g = view(dy_there, 32, 16);
      amaxscope_view out = view(y, 32, 16);
      amaxscope_view back = view(dx, 32, 64);
      amaxscope_view sum = view(dweight, 16, 64);
      amaxscope_saved* saved = nullptr;
      EXPECT_OK(amaxscope_forward(layer, &given, &w, &out, nullptr, &saved));
      EXPECT_OK(amaxscope_backward(layer, &g, &back, &sum, 1.0F, nullptr, &saved));
      Matrix host_y(32, 16);
      Matrix host_dx(32, 64);
      Matrix host_sum(16, 64);
      host_sum.values.assign(16 * 64, 1.0F);
      const amaxscope_view host_x = x.view();
      const amaxscope_view host_w = weight.view();
      const amaxscope_view host_g = dy.view();
      amaxscope_view host_out = host_y.view();
      amaxscope_view host_back = host_dx.view();
      amaxscope_view host_total = host_sum.view();
      EXPECT_OK(amaxscope_forward(host_layer, &host_x, &host_w, &host_out, nullptr, &saved));
      EXPECT_OK(amaxscope_backward(host_layer, &host_g, &host_back, &host_total, 1.0F, nullptr, &saved));
      const std::pair<std::vector<float>, const std::vector<float>*> results[] = {
          {y.read(), &host_y.values}, {dx.read(), &host_dx.values}, {dweight.read(), &host_sum.values}};
      for (const auto& [got_values, wanted_values] : results) {
        for (std::size_t i = 0; i < got_values.size(); ++i) {
          ASSERT_NEAR(got_values[i], (*wanted_values)[i], 1e-4 * (1.0 + std::abs((*wanted_values)[i]))) << i;
        }
      }
    }
    EXPECT_OK(amaxscope_step(session.get()));
  }
  EXPECT_GT(memory.calls, 10);
  EXPECT_TRUE(memory.given.empty());
  EXPECT_EQ(fake::calls("cudaMallocFromPoolAsync"), 0);
}

TEST_F(CApiDevice, ObservesWithoutAWaitAndSaysWhatItCannotDo) {
  open_device();
  const TemporaryFolder folder;
  Session session = open_session(R"(all:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, wgrad]
      stats: [cur_amax]
)",
                                 folder.path().string());
  amaxscope_layer* const layer = add_layer(session.get(), "fc1", AMAXSCOPE_CURRENT);
  Matrix x(16, 32, 1);
  x.values[7] = -24.5F;
  Matrix weight(16, 32, 2);
  Matrix dy(16, 16, 3);
  const OnDevice<float> x_there(x.values, stream_);
  const OnDevice<float> weight_there(weight.values, stream_);
  const OnDevice<float> dy_there(dy.values, stream_);
  const OnDevice<float> y(16 * 16, stream_);
  const OnDevice<float> dweight(std::vector<float>(16 * 32, 0.0F), stream_);
  const amaxscope_view given = view(x_there, 16, 32);
  const amaxscope_view w = view(weight_there, 16, 32);
  const amaxscope_view g = view(dy_there, 16, 16);
  amaxscope_view out = view(y, 16, 16);
  amaxscope_view sum = view(dweight, 16, 32);
  amaxscope_saved* saved = nullptr;
  const int waits = fake::host_waits();
  EXPECT_OK(amaxscope_forward(layer, &given, &w, &out, nullptr, &saved));
  EXPECT_EQ(fake::host_waits(), waits);
  EXPECT_EQ(amaxscope_backward(layer, &g, nullptr, &sum, 1.0F, nullptr, &saved), AMAXSCOPE_ERROR_TENSOR);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("dweight of layer fc1 is a running sum (beta 1) on cuda:0"));
  EXPECT_OK(amaxscope_backward(layer, &g, nullptr, &sum, 0.0F, nullptr, &saved));
  EXPECT_OK(amaxscope_step(session.get()));
  session.reset();
  std::ifstream file(folder.path() / "metrics" / "rank_0.jsonl");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("\"cur_amax\":24.5"));
}

TEST_F(CApiDevice, ACapturedStepIsLoggedAsItsReplaysRun) {
  open_device();
  const TemporaryFolder folder;
  Session session = open_session(kStatistics, folder.path().string());
  amaxscope_layer* const layer = add_layer(session.get(), "fc1");
  const OnDevice<float> x(std::vector<float>(64, 2.0F), stream_);
  const amaxscope_view given = view(x, 8, 8);
  const auto hand_in = [&] {
    amaxscope_quantized* made = nullptr;
    EXPECT_OK(amaxscope_quantize(layer, AMAXSCOPE_ACTIVATION, &given, AMAXSCOPE_ROWWISE, nullptr, &made));
    amaxscope_quantized_free(made);
  };
  EXPECT_EQ(amaxscope_begin_capture(session.get(), device_, stream_.get()), AMAXSCOPE_ERROR_USAGE);
  hand_in();
  EXPECT_OK(amaxscope_step(session.get()));
  {
    EXPECT_OK(amaxscope_begin_capture(session.get(), device_, stream_.get()));
    const CapturedGraph graph({stream_.get(), nullptr}, hand_in);
    EXPECT_OK(amaxscope_end_capture(session.get()));
    EXPECT_EQ(amaxscope_needs_capture(session.get()), 0);
    for (const float value : {3.0F, 5.5F}) {
      const std::vector<float> values(64, value);
      EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
      EXPECT_EQ(cudaMemcpy(x.data(), values.data(), 64 * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
      EXPECT_OK(amaxscope_before_replay(session.get()));
      graph.launch();
      EXPECT_OK(amaxscope_step(session.get()));
    }
  }
  session.reset();
  std::ifstream file(folder.path() / "metrics" / "rank_0.jsonl");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("\"cur_amax\":2"));
  EXPECT_THAT(text.str(), HasSubstr("\"cur_amax\":3"));
  EXPECT_THAT(text.str(), HasSubstr("\"cur_amax\":5.5"));
}

TEST_F(CApiDevice, AGroupOverNcclSharesAScaleOnTheDevice) {
  open_device();
  const ncclComm_t comm = trainers();
  amaxscope_group* group = nullptr;
  amaxscope_nccl_options options = {};
  options.size = sizeof options;
  options.deadline_seconds = 60.0;
  ASSERT_OK(amaxscope_group_from_nccl(comm, &options, &group));
  EXPECT_EQ(fake::operations(comm), 0);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);  // the group is its own
  {
    amaxscope_options of_session = {};
    of_session.size = sizeof of_session;
    of_session.config_text = kStatistics;
    of_session.world = group;
    of_session.tp_size = size();
    amaxscope_session* opened = nullptr;
    ASSERT_OK(amaxscope_open(&of_session, &opened));
    const Session session(opened);
    amaxscope_layer_options of_layer = {};
    of_layer.size = sizeof of_layer;
    of_layer.name = "fc1";
    of_layer.parallel = AMAXSCOPE_COLUMN;
    of_layer.sequence_parallel = 1;
    of_layer.recipe = AMAXSCOPE_CURRENT;
    amaxscope_layer* layer = nullptr;
    ASSERT_OK(amaxscope_register(opened, &of_layer, &layer));
    const OnDevice<float> x(std::vector<float>(64, static_cast<float>(1 + rank())), stream_);
    const amaxscope_view given = view(x, 8, 8);
    amaxscope_quantized* made = nullptr;
    ASSERT_OK(amaxscope_quantize(layer, AMAXSCOPE_ACTIVATION, &given, AMAXSCOPE_ROWWISE, nullptr, &made));
    const Quantized quantized(made);
    // The largest value is the last rank's.
    EXPECT_EQ(fetched<float>(operand_of(quantized, AMAXSCOPE_ROWWISE).device_scale_inv, 1)[0],
              1.0F / (448.0F / static_cast<float>(size())));
    EXPECT_OK(amaxscope_step(opened));
  }
  amaxscope_group_free(group);
}

TEST_F(CApiDevice, WhatIsNotThereIsSaidInWords) {
  amaxscope_cuda_options options = {};
  options.size = sizeof options;
  options.device = 3;
  EXPECT_EQ(amaxscope_device_from_cuda(&options, &device_), AMAXSCOPE_ERROR_USAGE);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("options.device is 3; this process has the devices 0 to 0"));
  options.device = 0;
  options.allocate = Memory::allocate;
  EXPECT_EQ(amaxscope_device_from_cuda(&options, &device_), AMAXSCOPE_ERROR_USAGE);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("go together"));
  options.allocate = nullptr;
  options.size = 8;
  EXPECT_EQ(amaxscope_device_from_cuda(&options, &device_), AMAXSCOPE_ERROR_USAGE);
  options.size = sizeof options;
  fake::set_driver_error(cudaErrorInsufficientDriver);
  EXPECT_EQ(amaxscope_device_from_cuda(&options, &device_), AMAXSCOPE_ERROR_USAGE);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("there is no CUDA device: cudaErrorInsufficientDriver"));
  fake::reset();
  EXPECT_EQ(device_, nullptr);
  amaxscope_group* group = nullptr;
  EXPECT_EQ(amaxscope_group_from_nccl(nullptr, nullptr, &group), AMAXSCOPE_ERROR_USAGE);
  EXPECT_STREQ(amaxscope_last_error(), "comm is NULL");

  Memory memory;
  open_device(&memory);
  const Session session = open_session(nullptr);
  amaxscope_layer* const layer = add_layer(session.get(), "fc1", AMAXSCOPE_CURRENT);
  const OnDevice<float> x(64, stream_);
  const amaxscope_view given = view(x, 8, 8);
  memory.exhausted = true;
  amaxscope_quantized* made = nullptr;
  EXPECT_EQ(amaxscope_quantize(layer, AMAXSCOPE_ACTIVATION, &given, AMAXSCOPE_ROWWISE, nullptr, &made),
            AMAXSCOPE_ERROR_MEMORY);
  EXPECT_EQ(made, nullptr);
}

}  // namespace
}  // namespace amaxscope::testing
