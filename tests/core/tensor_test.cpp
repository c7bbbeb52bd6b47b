#include "core/tensor.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace amaxscope {
namespace {

template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTensor);
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

TEST(SizeBytes, CountsHalfBytesUpwards) {
  EXPECT_EQ(size_bytes(DType::kF64, 3), 24U);
  EXPECT_EQ(size_bytes(DType::kBF16, 3), 6U);
  EXPECT_EQ(size_bytes(DType::kE4M3, 3), 3U);
  EXPECT_EQ(size_bytes(DType::kE2M1, 3), 2U);
  EXPECT_EQ(size_bytes(DType::kE2M1, 4), 2U);
  EXPECT_EQ(size_bytes(DType::kU64, 0), 0U);
}

TEST(TensorView, NullDataIsLegalOnlyWithoutElements) {
  const TensorView empty(nullptr, DType::kF32, {0, 8});
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_TRUE(empty.values<float>().empty());
  EXPECT_EQ(error_of([] {
              TensorView(nullptr, DType::kF32, {1, 8});
            }),
            "null data for a f32 tensor of shape [1, 8]");
}

TEST(TensorView, DefaultHasNoElement) {
  const TensorView view;
  EXPECT_EQ(view.numel(), 0);
  EXPECT_TRUE(view.contiguous());
}

TEST(TensorView, RowStride) {
  const std::array<float, 24> padded{};
  const TensorView view(padded.data(), DType::kF32, {3, 4}, {}, {}, 8);
  EXPECT_EQ(view.row_stride(), 8);
  EXPECT_FALSE(view.contiguous());
  EXPECT_NE(error_of([&] { static_cast<void>(view.values<float>()); }).find("row stride 8"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { static_cast<void>(view.reshaped({12})); }), "cannot view [3, 4] as [12]");
  EXPECT_EQ(error_of([&] {
              TensorView(padded.data(), DType::kF32, {3, 4}, {}, {}, 3);
            }),
            "row stride 3 is smaller than a row of 4");
}

TEST(TensorView, AccessIsCheckedForTypeAndDevice) {
  const std::array<float, 4> data{};
  const TensorView view(data.data(), DType::kF32, {4});
  EXPECT_EQ(error_of([&] { static_cast<void>(view.values<double>()); }),
            "a f32 tensor was read as another type");
  EXPECT_EQ(error_of([&] { static_cast<void>(view.values<std::uint8_t>()); }),
            "a f32 tensor was read as another type");
  const TensorView elsewhere(data.data(), DType::kF32, {4}, {DeviceKind::kCuda, 1});
  EXPECT_EQ(error_of([&] { static_cast<void>(elsewhere.values<float>()); }),
            "host access to a tensor on cuda:1");
}

TEST(TensorView, BytesReadEveryOneByteType) {
  const std::array<std::uint8_t, 2> data{0x7E, 0xFE};
  for (const DType dtype : {DType::kE4M3, DType::kE5M2, DType::kE8M0, DType::kU8}) {
    EXPECT_EQ(TensorView(data.data(), dtype, {2}).values<std::uint8_t>()[1], 0xFE);
  }
}

TEST(TensorView, ReshapedKeepsBytes) {
  const std::array<float, 6> data{0, 1, 2, 3, 4, 5};
  const TensorView view = TensorView(data.data(), DType::kF32, {2, 3}).reshaped({3, 2});
  EXPECT_EQ(view.shape(), (Shape{3, 2}));
  EXPECT_EQ(view.data(), data.data());
  EXPECT_EQ(view.row_stride(), 2);
  EXPECT_THROW(static_cast<void>(view.reshaped({7})), Error);
}

TEST(Tensor, IsZeroedAndAligned) {
  const Tensor tensor(DType::kBF16, {3, 5});
  EXPECT_TRUE(tensor.defined());
  EXPECT_EQ(tensor.bytes(), 30U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view().data()) % 64, 0U);
  for (const BF16 value : tensor.values<BF16>()) EXPECT_EQ(value.bits, 0);
}

TEST(Tensor, WithoutElementsHasNoMemory) {
  const Tensor tensor(DType::kF32, {0, 8});
  EXPECT_TRUE(tensor.defined());
  EXPECT_EQ(tensor.view().data(), nullptr);
  EXPECT_EQ(tensor.clone().shape(), (Shape{0, 8}));
}

TEST(Tensor, OfCopiesValues) {
  Tensor tensor = Tensor::of<float>({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(tensor.values<float>()[3], 4.0F);
  tensor.values<float>()[3] = 9;
  EXPECT_EQ(std::as_const(tensor).values<float>()[3], 9.0F);
  EXPECT_EQ(error_of([] {
              Tensor::of<float>({1, 2, 3}, {2, 2});
            }),
            "12 bytes given for a f32 tensor of shape [2, 2] (16 bytes)");
}

TEST(Tensor, CloneIsIndependent) {
  Tensor tensor = Tensor::of<std::uint32_t>({1, 2}, {2});
  const Tensor copy = tensor.clone();
  tensor.values<std::uint32_t>()[0] = 7;
  EXPECT_EQ(copy.values<std::uint32_t>()[0], 1U);
}

TEST(Tensor, ReleaseLeavesItUndefined) {
  Tensor tensor(DType::kF32, {4});
  tensor.release();
  EXPECT_FALSE(tensor.defined());
  EXPECT_EQ(tensor.numel(), 0);
  EXPECT_FALSE(Tensor().defined());
  EXPECT_FALSE(tensor.clone().defined());
}

TEST(Tensor, ReshapeNeedsEquallyManyElements) {
  Tensor tensor(DType::kF32, {2, 6});
  tensor.reshape({3, 4});
  EXPECT_EQ(tensor.rows(), 3);
  EXPECT_EQ(error_of([&] { tensor.reshape({5}); }), "cannot reshape [3, 4] to [5]");
}

TEST(Tensor, OnADeviceNeedsABackend) {
  EXPECT_NE(error_of([] {
              Tensor(DType::kF32, {1}, {DeviceKind::kCuda, 0});
            }).find("cuda:0"),
            std::string::npos);
}

}  // namespace
}  // namespace amaxscope
