// Tensors on a device: memory in the order of a stream, copies, and what is refused.
#include "core/error.hpp"
#include "kernels/amax.hpp"
#include "kernels/cast.hpp"
#include "kernels/finite_scan.hpp"
#include "kernels/tensor_stats.hpp"
#include "tests/device/emulated_device.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::HasSubstr;

template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTensor);
    return error.what();
  }
  return "no error";
}

TEST_F(DeviceTest, WhatIsCopiedThereAndBackIsTheSame) {
  const EmulatedDevice device;
  const Tensor host = Tensor::of({1.0F, -2.5F, 3.0F, 4.0F, 5.0F, 6.0F}, {2, 3});
  const Tensor there = device.put(host.view());
  EXPECT_EQ(there.device(), (Device{DeviceKind::kCuda, 0}));
  EXPECT_EQ(there.shape(), (Shape{2, 3}));
  EXPECT_TRUE(same(there.view(), host.view()));
  const Tensor copy = there.clone();
  EXPECT_NE(copy.view().data(), there.view().data());
  EXPECT_TRUE(same(copy.view(), host.view()));
  EXPECT_TRUE(same(there.view().slice(2, 3), Tensor::of({3.0F, 4.0F, 5.0F}, {3}).view()));
  EXPECT_EQ(device.put(Tensor(DType::kF32, {0, 7}).view()).bytes(), 0U);
}

TEST_F(DeviceTest, MemoryIsGivenBackBehindWhatUsesIt) {
  const EmulatedDevice device;
  const Tensor host = Tensor::of({7.0F, 8.0F}, {2});
  fake::set_stream_delay(std::chrono::milliseconds(5));
  const int before = fake::host_waits();
  const Tensor copy = [&] {
    const Tensor there = device.put(host.view());
    return there.clone();
  }();  // `there` is gone before the copy of it has run
  EXPECT_EQ(fake::host_waits(), before + 1) << "page-locked memory is made once, and nothing else waits";
  EXPECT_TRUE(same(copy.view(), host.view()));
}

TEST_F(DeviceTest, WhatHasNoBackendOrNoKernelIsRefusedByName) {
  int handle = 0;
  const Device gpu{DeviceKind::kCuda, 0};
  EXPECT_THAT(error_of([&] { Tensor(DType::kF32, {2}, gpu, Stream{&handle}); }), HasSubstr("has no backend"));
  float value = 0;
  const TensorView bare(&value, DType::kF32, Shape{1}, gpu, Stream{&handle});
  EXPECT_THAT(error_of([&] { static_cast<void>(amax_bits(bare)); }), HasSubstr("has no backend"));
  EXPECT_THAT(error_of([&] { static_cast<void>(to_host(bare)); }), HasSubstr("has no backend"));

  const EmulatedDevice device;
  const Tensor x = device.put(Tensor::of({1.0F, 2.0F}, {1, 2}).view());
  EXPECT_THAT(error_of([&] { static_cast<void>(finite_scan(x.view())); }), HasSubstr("on the host only"));
  EXPECT_THAT(error_of([&] { static_cast<void>(max_blockwise_dynamic_range(x, 2, 1, false)); }),
              HasSubstr("on the host only"));
  EXPECT_THAT(error_of([&] { convert(x.view(), Tensor(DType::kBF16, {1, 2})); }), HasSubstr("out is on cpu"));
  EXPECT_THAT(error_of([&] { static_cast<void>(x.values<float>()); }), HasSubstr("host access"));
}

TEST_F(DeviceTest, OneLaunchForAnAmaxAndNoneForNothing) {
  const EmulatedDevice device;
  const Tensor x = device.put(Tensor::of({1.0F, -9.0F}, {2}).view());
  Tensor out = device.tensor(DType::kU32, {1});
  device.finish();
  const int launches = fake::calls("cudaLaunchKernel");
  const int waits = fake::host_waits();
  amax(x, out);
  EXPECT_GE(fake::calls("cudaLaunchKernel"), launches + 1);
  EXPECT_EQ(fake::host_waits(), waits);
  EXPECT_EQ(to_host(out.view()).values<std::uint32_t>()[0], std::bit_cast<std::uint32_t>(9.0F));
}

TEST_F(DeviceTest, WhatCannotBeMadeLeavesNothing) {
  for (const char* function :
       {"cudaMemPoolCreate", "cudaMemPoolSetAttribute", "cudaDeviceGetAttribute", "cudaGetDevice"}) {
    fake::fail_at(function, 1, cudaErrorUnknown);
    EXPECT_THROW(EmulatedDevice(), Error) << function;
  }
  const EmulatedDevice device;
  const Tensor host = Tensor::of({1.0F}, {1});
  for (const char* function :
       {"cudaMallocFromPoolAsync", "cudaMallocHost", "cudaMemcpyAsync", "cudaEventRecord"}) {
    fake::fail_at(function, 1, cudaErrorUnknown);
    EXPECT_THROW(static_cast<void>(device.put(host.view())), Error) << function;
  }
  EXPECT_TRUE(same(device.put(host.view()).view(), host.view()));
}

}  // namespace
}  // namespace amaxscope::testing
