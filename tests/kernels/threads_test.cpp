// The pool, and that every kernel gives the same bits on one thread and on several.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/amax.hpp"
#include "kernels/block_scale.hpp"
#include "kernels/cast.hpp"
#include "kernels/dequantize.hpp"
#include "kernels/finite_scan.hpp"
#include "kernels/quantization_error.hpp"
#include "kernels/tensor_stats.hpp"
#include "kernels/worker_pool.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

TEST(WorkerPool, EveryPartRunsOnceAndAllAreDoneBeforeRunReturns) {
  for (const unsigned threads : {1U, 2U, 5U}) {
    WorkerPool pool(threads);
    for (const std::size_t parts : {0U, 1U, 2U, 3U, 64U}) {
      for (int again = 0; again < 50; ++again) {
        std::vector<int> runs(parts, 0);  // not atomic: a part belongs to one thread
        pool.run(parts, [&](std::size_t i) { ++runs[i]; });
        EXPECT_EQ(runs, std::vector<int>(parts, 1));
      }
    }
  }
}

TEST(WorkerPool, WakesUpAgainAfterItHasSlept) {
  WorkerPool pool(3);
  for (int again = 0; again < 3; ++again) {
    std::atomic<int> sum = 0;
    pool.run(10, [&](std::size_t i) { sum += static_cast<int>(i); });
    EXPECT_EQ(sum.load(), 45);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(WorkerPool, OfNoThreadsIsRefused) { EXPECT_ANY_THROW(WorkerPool(0)); }

TEST(WorkerPool, IsFoundInTheViewsOfCpuTensors) {
  WorkerPool pool(2);
  const Tensor x = sample_tensor({4, 4}, 1);
  EXPECT_EQ(WorkerPool::of(x), nullptr);
  const TensorView view = on_stream(x, pool.stream());
  EXPECT_EQ(WorkerPool::of(view), &pool);
  EXPECT_EQ(WorkerPool::of(view.reshaped({16})), &pool);
  EXPECT_EQ(view.data(), x.view().data());
}

TEST(WorkerPool, IsKeptThroughAViewWhereItIsShared) {
  auto pool = std::make_shared<WorkerPool>(2);
  const Tensor x = sample_tensor({4, 4}, 1);
  const Tensor beside = Tensor::beside(on_stream(x, pool->stream()), DType::kBF16, {4, 4});
  EXPECT_EQ(WorkerPool::shared_of(beside), pool);
  EXPECT_EQ(WorkerPool::shared_of(x), nullptr);
  WorkerPool own(2);
  EXPECT_EQ(WorkerPool::shared_of(on_stream(x, own.stream())), nullptr);
}

TEST(WorkerPool, ServesTwoThreadsAtOnceAndAPartThatRunsParts) {
  WorkerPool pool(3);
  const auto add_up = [&pool](std::size_t parts) {
    for (int again = 0; again < 200; ++again) {
      std::vector<int> runs(parts, 0);
      pool.run(parts, [&](std::size_t i) { ++runs[i]; });
      EXPECT_EQ(runs, std::vector<int>(parts, 1));
    }
  };
  std::thread other(add_up, 40U);
  add_up(30U);
  other.join();
  std::vector<std::array<int, 3>> runs(5, {0, 0, 0});
  pool.run(runs.size(), [&](std::size_t i) { pool.run(3, [&](std::size_t j) { ++runs[i][j]; }); });
  EXPECT_EQ(runs, (std::vector<std::array<int, 3>>(5, {1, 1, 1})));
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.view().data(), b.view().data(), a.bytes()) == 0;
}

/// More than 1 MiB in every type and in codes, so that the work is shared out.
class ThreadsTest : public testing::TestWithParam<DType> {
 protected:
  ThreadsTest() : x(converted(sample_tensor({1024, 1056}, 3), GetParam())) {}
  [[nodiscard]] TensorView threaded() { return on_stream(x, pool.stream()); }

  WorkerPool pool{8};
  Tensor x;
};

TEST_P(ThreadsTest, Statistics) {
  EXPECT_EQ(amax_bits(threaded()), amax_bits(x));
  EXPECT_EQ(finite_scan(threaded()).amax, finite_scan(x).amax);
  for (const MomentOrder order : {MomentOrder::kSecond, MomentOrder::kFourth}) {
    const TensorMoments a = tensor_stats(threaded(), order);
    const TensorMoments b = tensor_stats(x, order);
    EXPECT_EQ(a.numel, b.numel);
    EXPECT_EQ(a.nonzero, b.nonzero);
    EXPECT_EQ(a.min, b.min);
    EXPECT_EQ(a.max, b.max);
    EXPECT_EQ(a.amin_nonzero, b.amin_nonzero);
    EXPECT_EQ(bits_of(a.sum), bits_of(b.sum));
    EXPECT_EQ(bits_of(a.l1), bits_of(b.l1));
    EXPECT_EQ(bits_of(a.sum_squares), bits_of(b.sum_squares));
    EXPECT_EQ(bits_of(a.mean), bits_of(b.mean));
    EXPECT_EQ(bits_of(a.m2), bits_of(b.m2));
    EXPECT_EQ(bits_of(a.m3), bits_of(b.m3));
    EXPECT_EQ(bits_of(a.m4), bits_of(b.m4));
  }
  const QuantizationError a = quantization_error_of_cast(threaded(), DType::kE4M3, 3.0F);
  const QuantizationError b = quantization_error_of_cast(x, DType::kE4M3, 3.0F);
  EXPECT_EQ(a.compared, b.compared);
  EXPECT_EQ(a.underflows, b.underflows);
  EXPECT_EQ(bits_of(a.error_squares), bits_of(b.error_squares));
  EXPECT_EQ(bits_of(a.signal_squares), bits_of(b.signal_squares));
  EXPECT_EQ(bits_of(a.product), bits_of(b.product));
  EXPECT_EQ(bits_of(a.flushed_squares), bits_of(b.flushed_squares));
  EXPECT_EQ(a.max_error, b.max_error);
}

TEST_P(ThreadsTest, Casts) {
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    Tensor codes_a(format, x.shape());
    Tensor codes_b(format, x.shape());
    Tensor transposed_a(format, {x.cols(), x.rows()});
    Tensor transposed_b(format, {x.cols(), x.rows()});
    cast_to_fp8(threaded(), scalar(3.0F), codes_a);
    cast_to_fp8(x, scalar(3.0F), codes_b);
    EXPECT_TRUE(same_bytes(codes_a, codes_b));
    cast_transpose_to_fp8(threaded(), scalar(5.0F), codes_a, transposed_a);
    cast_transpose_to_fp8(x, scalar(5.0F), codes_b, transposed_b);
    EXPECT_TRUE(same_bytes(codes_a, codes_b));
    EXPECT_TRUE(same_bytes(transposed_a, transposed_b));
    for (std::int64_t row = 0; row < x.rows(); row += 31) {
      for (std::int64_t col = 0; col < x.cols(); col += 33) {
        ASSERT_EQ(codes_a.values<std::uint8_t>()[static_cast<std::size_t>(row * x.cols() + col)],
                  transposed_a.values<std::uint8_t>()[static_cast<std::size_t>(col * x.rows() + row)]);
      }
    }
    Tensor values_a(GetParam(), x.shape());
    Tensor values_b(GetParam(), x.shape());
    dequantize_fp8(on_stream(codes_a, pool.stream()), scalar(0.2F), values_a);
    dequantize_fp8(codes_b, scalar(0.2F), values_b);
    EXPECT_TRUE(same_bytes(values_a, values_b));
  }
}

TEST_P(ThreadsTest, BlockScales) {
  for (const bool mx : {true, false}) {
    for (const bool two_dimensional : {false, true}) {
      std::vector<Tensor> results;
      for (const TensorView& input : {threaded(), x.view()}) {
        std::array<Tensor, 4> out;
        for (const bool columnwise : {false, true}) {
          const BlockLayout layout = mx ? mxfp8_layout(DType::kE4M3, columnwise, two_dimensional)
                                        : fp8_block_layout(DType::kE4M3, columnwise, two_dimensional);
          out[columnwise ? 2 : 0] = Tensor(DType::kE4M3, layout.codes_shape(x.rows(), x.cols()));
          out[columnwise ? 3 : 1] = Tensor(layout.scale_format, layout.scales_shape(x.rows(), x.cols()));
        }
        const BlockOutputs outputs{.rowwise = BlockOutput{.codes = out[0], .scales = out[1]},
                                   .columnwise = BlockOutput{.codes = out[2], .scales = out[3]}};
        if (mx) {
          quantize_mxfp8(input, two_dimensional, outputs);
        } else {
          quantize_fp8_blocks(input, {}, two_dimensional, outputs);
        }
        for (Tensor& tensor : out) results.push_back(std::move(tensor));
      }
      for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(same_bytes(results[i], results[i + 4])) << i;
    }
  }
}

TEST_P(ThreadsTest, Nvfp4) {
  EXPECT_EQ(nvfp4_amaxes(threaded(), true, true, true), nvfp4_amaxes(x, true, true, true));
  for (const bool two_dimensional : {false, true}) {
    Nvfp4Cast cast{.two_dimensional = two_dimensional, .stochastic = StochasticRounding{.key = 5, .call = 9}};
    cast.rowwise_amax = cast.columnwise_amax = 100.0F;
    std::vector<Tensor> results;
    for (const TensorView& input : {threaded(), x.view()}) {
      std::array<Tensor, 4> out;
      for (const bool columnwise : {false, true}) {
        const BlockLayout layout = nvfp4_layout(columnwise, two_dimensional);
        out[columnwise ? 2 : 0] = Tensor(DType::kE2M1, layout.codes_shape(x.rows(), x.cols()));
        out[columnwise ? 3 : 1] = Tensor(DType::kE4M3, layout.scales_shape(x.rows(), x.cols()));
      }
      quantize_nvfp4(input, cast,
                     {.rowwise = BlockOutput{.codes = out[0], .scales = out[1]},
                      .columnwise = BlockOutput{.codes = out[2], .scales = out[3]}});
      for (Tensor& tensor : out) results.push_back(std::move(tensor));
    }
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(same_bytes(results[i], results[i + 4])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ThreadsTest, testing::Values(DType::kF32, DType::kF16, DType::kBF16));

}  // namespace
}  // namespace amaxscope::test
