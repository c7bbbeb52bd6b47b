// all_reduce, start_all_reduce and reduce_scatter on every backend. Expected values are sums of small whole
// numbers, which every type holds exactly, unless a test is about rounding.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "core/error.hpp"
#include "tests/collectives/backend.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr DType kReducible[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16,
                                DType::kU32, DType::kI32, DType::kU64, DType::kI64};

/// Calls f(T{}) with the element type.
template <class F>
auto with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kF64:
      return f(double{});
    case DType::kF32:
      return f(float{});
    case DType::kF16:
      return f(F16{});
    case DType::kBF16:
      return f(BF16{});
    case DType::kU32:
      return f(std::uint32_t{});
    case DType::kI32:
      return f(std::int32_t{});
    case DType::kU64:
      return f(std::uint64_t{});
    default:
      return f(std::int64_t{});
  }
}

Tensor whole_numbers(DType dtype, Shape shape, const std::function<int(int)>& value) {
  Tensor result(dtype, shape);
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    int i = 0;
    for (T& x : result.values<T>()) {
      const int wanted = value(i++);
      if constexpr (std::is_same_v<T, F16>) {
        x = to_f16(static_cast<float>(wanted));
      } else if constexpr (std::is_same_v<T, BF16>) {
        x = to_bf16(static_cast<float>(wanted));
      } else {
        x = static_cast<T>(wanted);
      }
    }
  });
  return result;
}

std::vector<int> read(const Tensor& tensor) {
  std::vector<int> result;
  with_type(tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    for (const T& x : tensor.values<T>()) {
      if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
        result.push_back(static_cast<int>(to_float(x)));
      } else {
        result.push_back(static_cast<int>(x));
      }
    }
  });
  return result;
}

class Reductions : public BackendTest {};
class StartedReductions : public BackendTest {};
class ReductionsOfFour : public BackendTest {};

TEST_P(Reductions, EveryTypeAndOperation) {
  on_ranks([&](Communicator& world) {
    const int n = world.size();
    for (const DType dtype : kReducible) {
      SCOPED_TRACE(to_string(dtype));
      // Rank r holds (r + 1), 2(r + 1), 3(r + 1).
      const auto own = [&](int i) { return (world.rank() + 1) * (i + 1); };
      const int sum = n * (n + 1) / 2;
      Tensor io = whole_numbers(dtype, {3}, own);
      world.all_reduce(io, ReduceOp::kSum, kTestTag);
      EXPECT_THAT(read(io), ElementsAre(sum, 2 * sum, 3 * sum));
      io = whole_numbers(dtype, {3}, own);
      world.all_reduce(io, ReduceOp::kMax, kTestTag);
      EXPECT_THAT(read(io), ElementsAre(n, 2 * n, 3 * n));
      io = whole_numbers(dtype, {3}, own);
      world.all_reduce(io, ReduceOp::kMin, kTestTag);
      EXPECT_THAT(read(io), ElementsAre(1, 2, 3));
    }
  });
}

TEST_P(Reductions, SeveralInOneCall) {
  on_ranks([&](Communicator& world) {
    const int n = world.size();
    for (const DType dtype : kReducible) {
      SCOPED_TRACE(to_string(dtype));
      // Of different lengths, one of them none.
      Tensor one = whole_numbers(dtype, {1}, [&](int) { return world.rank() + 1; });
      Tensor none(dtype, {0});
      Tensor three = whole_numbers(dtype, {3}, [&](int i) { return (world.rank() + 1) * (i + 2); });
      const std::vector<MutableTensorView> all = {one, none, three};
      world.all_reduce_each(all, ReduceOp::kMax, kTestTag);
      EXPECT_THAT(read(one), ElementsAre(n));
      EXPECT_THAT(read(three), ElementsAre(2 * n, 3 * n, 4 * n));
    }
    world.all_reduce_each({}, ReduceOp::kMax, kTestTag);
    const std::uint64_t each = 8;  // kReducible
    EXPECT_EQ(world.counters().calls(Traffic::kTrainer), each) << "one call each time, and none for nothing";
    EXPECT_EQ(world.counters().bytes(Traffic::kTrainer), 4U * (8 + 4 + 2 + 2 + 4 + 4 + 8 + 8));
  });
}

TEST_P(Reductions, SeveralInOneCallAreOfOneTypeAndPlace) {
  on_ranks([&](Communicator& world) {
    Tensor f32(DType::kF32, {1});
    Tensor u32(DType::kU32, {1});
    const std::vector<MutableTensorView> types = {f32, u32};
    float memory = 0;
    const std::vector<MutableTensorView> places = {
        f32, MutableTensorView(&memory, DType::kF32, {1}, {DeviceKind::kCuda, 1})};
    const std::vector<MutableTensorView> streams = {
        f32, MutableTensorView(&memory, DType::kF32, {1}, {}, Stream{&memory})};
    for (const auto* wrong : {&types, &places, &streams}) {
      EXPECT_THROW(world.all_reduce_each(*wrong, ReduceOp::kMax, kTestTag), Error);
    }
    EXPECT_EQ(world.counters().calls(Traffic::kTrainer), 0U);
  });
}

TEST_P(Reductions, SignedTypesKnowNegativeValues) {
  on_ranks([&](Communicator& world) {
    for (const DType dtype :
         {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kI64}) {
      SCOPED_TRACE(to_string(dtype));
      Tensor io = whole_numbers(dtype, {1}, [&](int) { return -world.rank() - 3; });
      world.all_reduce(io, ReduceOp::kMin, kTestTag);
      EXPECT_THAT(read(io), ElementsAre(-world.size() - 2));
      io = whole_numbers(dtype, {1}, [&](int) { return -world.rank() - 3; });
      world.all_reduce(io, ReduceOp::kMax, kTestTag);
      EXPECT_THAT(read(io), ElementsAre(-3));
    }
  });
}

TEST_P(Reductions, AStartedOneEndsWithTheSame) {
  on_ranks([&](Communicator& world) {
    const int n = world.size();
    for (const DType dtype : kReducible) {
      SCOPED_TRACE(to_string(dtype));
      const auto io = std::make_shared<Tensor>(
          whole_numbers(dtype, {2}, [&](int i) { return (world.rank() + 1) * (i + 1); }));
      const auto pending = world.start_all_reduce(io, ReduceOp::kSum, kTestTag);
      while (!pending->test()) std::this_thread::yield();
      EXPECT_TRUE(pending->test()) << "asking again is allowed";
      EXPECT_THAT(read(*io), ElementsAre(n * (n + 1) / 2, n * (n + 1)));
    }
  });
}

TEST_P(StartedReductions, DoNotWait) {
  on_ranks([&](Communicator& world) {
    for (const DType dtype : {DType::kU32, DType::kF64, DType::kBF16}) {
      const bool last = world.rank() == world.size() - 1;
      const auto io = std::make_shared<Tensor>(whole_numbers(dtype, {1}, [](int) { return 1; }));
      // On a group of its own, so that the barriers are not the operations in question.
      const auto group = world.split(0, world.rank(), kTestTag);
      std::unique_ptr<PendingCollective> pending;
      if (!last) {
        pending = group->start_all_reduce(io, ReduceOp::kSum, kTestTag);
        EXPECT_FALSE(pending->test()) << "a rank has not come yet";
      }
      world.barrier(kTestTag);
      if (last) pending = group->start_all_reduce(io, ReduceOp::kSum, kTestTag);
      while (!pending->test()) std::this_thread::yield();
      EXPECT_THAT(read(*io), ElementsAre(world.size()));
    }
  });
}

TEST_P(Reductions, SeveralAtATime) {
  on_ranks([&](Communicator& world) {
    const auto first = std::make_shared<Tensor>(Tensor::of<std::uint32_t>({1}, {1}));
    const auto second = std::make_shared<Tensor>(Tensor::of<std::uint32_t>({2}, {1}));
    const auto one = world.start_all_reduce(first, ReduceOp::kSum, kTestTag);
    const auto two = world.start_all_reduce(second, ReduceOp::kSum, kTestTag);
    while (!two->test()) std::this_thread::yield();
    while (!one->test()) std::this_thread::yield();
    EXPECT_THAT(read(*first), ElementsAre(world.size()));
    EXPECT_THAT(read(*second), ElementsAre(2 * world.size()));
  });
}

TEST_P(ReductionsOfFour, SixteenBitSumsAreRoundedOnce) {
  on_ranks([&](Communicator& world) {
    // 256 + 1 + 1 + 1 = 259 lies between the bf16 values 258 and 260, and the even one is 260; with a
    // rounding after each step every 257 would fall back to 256. In f16 the same happens at 2048.
    const auto check = [&](DType dtype, int large, int expected) {
      const auto values = [&](int) { return world.rank() == 0 ? large : 1; };
      Tensor io = whole_numbers(dtype, {1}, values);
      world.all_reduce(io, ReduceOp::kSum, kTestTag);
      EXPECT_THAT(read(io), ElementsAre(expected));
      const auto started = std::make_shared<Tensor>(whole_numbers(dtype, {1}, values));
      const auto pending = world.start_all_reduce(started, ReduceOp::kSum, kTestTag);
      while (!pending->test()) std::this_thread::yield();
      EXPECT_THAT(read(*started), ElementsAre(expected));
      const Tensor in = whole_numbers(dtype, {4, 1}, values);
      Tensor slice(dtype, {1, 1});
      world.reduce_scatter(in, slice, ReduceOp::kSum, kTestTag);
      EXPECT_THAT(read(slice), ElementsAre(expected));
    };
    check(DType::kBF16, 256, 260);
    check(DType::kF16, 2048, 2052);
  });
}

TEST_P(ReductionsOfFour, SixteenBitSumsAreInTheOrderOfTheRanks) {
  on_ranks([&](Communicator& world) {
    // ((2^25 + 1) - 2^25) + 1 is 1 in fp32, because 2^25 + 1 rounds to 2^25; in other orders it is 0 or 2.
    const float values[] = {0x1p25F, 1.0F, -0x1p25F, 1.0F};
    Tensor io = Tensor::of<BF16>({to_bf16(values[world.rank()])}, {1});
    world.all_reduce(io, ReduceOp::kSum, kTestTag);
    EXPECT_EQ(to_float(io.values<BF16>()[0]), 1.0F);
  });
}

TEST_P(Reductions, AmaxBitsKeepInfinityAndNan) {
  on_ranks([&](Communicator& world) {
    const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
    const bool first = world.rank() == 0;
    const float smallest = std::numeric_limits<float>::denorm_min();
    Tensor io =
        Tensor::of<std::uint32_t>({first ? 0x7FC00000U : bits(4.0F), bits(first ? HUGE_VALF : 1.0F),
                                   bits(first ? smallest : 0.0F), bits(first ? 3.0F : 2.9999998F), 0U},
                                  {5});
    world.all_reduce(io, ReduceOp::kMax, kTestTag);
    EXPECT_THAT(io.values<std::uint32_t>(), ElementsAre(0x7FC00000U, 0x7F800000U, 1U, bits(3.0F), 0U));
  });
}

TEST_P(Reductions, CountsBeyondDoublePrecisionAreExact) {
  on_ranks([&](Communicator& world) {
    constexpr std::uint64_t kOdd = (std::uint64_t{1} << 53U) + 1;
    Tensor io = Tensor::of<std::uint64_t>({kOdd}, {1});
    world.all_reduce(io, ReduceOp::kSum, kTestTag);
    EXPECT_EQ(io.values<std::uint64_t>()[0], kOdd * static_cast<std::uint64_t>(world.size()));
  });
}

TEST_P(Reductions, EveryRankSeesTheSameBitsOfASum) {
  on_ranks([&](Communicator& world) {
    Tensor io(DType::kF64, {100});
    for (int i = 0; i < 100; ++i) {
      io.values<double>()[static_cast<std::size_t>(i)] = std::sin(100.0 * world.rank() + i) / 3;
    }
    world.all_reduce(io, ReduceOp::kSum, kTestTag);
    Tensor all(DType::kF64, {world.size(), 100});
    world.all_gather(io, all, kTestTag);
    for (int rank = 0; rank < world.size(); ++rank) {
      EXPECT_THAT(all.values<double>().subspan(static_cast<std::size_t>(rank) * 100, 100),
                  ElementsAreArray(io.values<double>()));
    }
  });
}

TEST_P(Reductions, ScatteredSliceIsThisRanks) {
  on_ranks([&](Communicator& world) {
    const int n = world.size();
    for (const DType dtype : kReducible) {
      SCOPED_TRACE(to_string(dtype));
      // Rank r holds (r + 1) times 2n rows of 3, all in all 0 1 2 3 4 0 1 2 ..; no sum passes 256, bf16's
      // limit.
      const Tensor in = whole_numbers(dtype, {2 * n, 3}, [&](int i) { return i % 5 * (world.rank() + 1); });
      Tensor out(dtype, {2, 3});
      const auto expected = [&](int factor) {
        std::vector<int> slice;
        for (int i = 6 * world.rank(); i < 6 * (world.rank() + 1); ++i) slice.push_back(i % 5 * factor);
        return slice;
      };
      world.reduce_scatter(in, out, ReduceOp::kSum, kTestTag);
      EXPECT_EQ(read(out), expected(n * (n + 1) / 2));
      world.reduce_scatter(in, out, ReduceOp::kMax, kTestTag);
      EXPECT_EQ(read(out), expected(n));
      world.reduce_scatter(in, out, ReduceOp::kMin, kTestTag);
      EXPECT_EQ(read(out), expected(1));
    }
  });
}

TEST_P(Reductions, NothingToReduceIsLegal) {
  on_ranks([&](Communicator& world) {
    for (const DType dtype : kReducible) {
      Tensor io(dtype, {0, 8});
      world.all_reduce(io, ReduceOp::kMax, kTestTag);
      const auto pending =
          world.start_all_reduce(std::make_shared<Tensor>(dtype, Shape{0}), ReduceOp::kSum, kTestTag);
      while (!pending->test()) std::this_thread::yield();
      Tensor out(dtype, {0, 8});
      world.reduce_scatter(Tensor(dtype, {0, 8}).view(), out, ReduceOp::kSum, kTestTag);
    }
    Tensor io = whole_numbers(DType::kF32, {1}, [](int) { return 1; });
    world.all_reduce(io, ReduceOp::kSum, kTestTag);
    EXPECT_THAT(read(io), ElementsAre(world.size()));
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, Reductions, ::testing::ValuesIn(backends()), backend_name);

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StartedReductions);
INSTANTIATE_TEST_SUITE_P(Backends, StartedReductions,
                         ::testing::ValuesIn(backends_with(has_others_to_wait_for)), backend_name);

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ReductionsOfFour);
INSTANTIATE_TEST_SUITE_P(Backends, ReductionsOfFour,
                         ::testing::ValuesIn(backends_with([](const Backend& backend) {
                           return backend.ranks == 4;
                         })),
                         backend_name);

}  // namespace
}  // namespace amaxscope::testing
