#include <gmock/gmock.h>

#include <cmath>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "megatron/ops/loss.hpp"
#include "tests/megatron/tensors.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace amaxscope::megatron::testing;

const std::vector<std::int32_t> kIds = {7, 0, 3, 3, 5, 1, 7, 2};

Tensor looked_up(int ranks, const Tensor& table, bool sequence_parallel) {
  const std::int64_t rows = table.rows() / ranks;
  const auto tokens = static_cast<std::int64_t>(kIds.size());
  std::vector<Tensor> parts(static_cast<std::size_t>(ranks));
  run_loopback_ranks(ranks, [&](Communicator& group) {
    const Tensor own = block(table.view(), group.rank() * rows, rows, 0, table.cols());
    Tensor out(table.dtype(), {sequence_parallel ? tokens / ranks : tokens, table.cols()});
    embedding_forward(own.view(), kIds, &group, sequence_parallel, out);
    parts[static_cast<std::size_t>(group.rank())] = std::move(out);
  });
  if (sequence_parallel) return below(parts);
  for (const Tensor& part : parts) EXPECT_EQ(bits(part.view()), bits(parts[0].view()));
  return std::move(parts[0]);
}

Tensor table_gradient(int ranks, const Tensor& dout, bool sequence_parallel) {
  const std::int64_t tokens = dout.rows();
  const DType sums = dout.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  std::vector<Tensor> parts(static_cast<std::size_t>(ranks));
  run_loopback_ranks(ranks, [&](Communicator& group) {
    const std::int64_t share = sequence_parallel ? tokens / ranks : tokens;
    const Tensor own =
        block(dout.view(), sequence_parallel ? group.rank() * share : 0, share, 0, dout.cols());
    Tensor dweight(sums, {8 / ranks, dout.cols()});
    embedding_backward(own.view(), kIds, &group, sequence_parallel, dweight);
    parts[static_cast<std::size_t>(group.rank())] = std::move(dweight);
  });
  return below(parts);
}

TEST(Embedding, CopiesTheRowsOfTheIds) {
  const Tensor table = Tensor::of<float>({0, 1, 10, 11, 20, 21}, {3, 2});
  const std::vector<std::int32_t> ids = {2, 0, 2};
  Tensor out(DType::kF32, {3, 2});
  embedding_forward(table.view(), ids, nullptr, false, out);
  EXPECT_THAT(to_doubles(out.view()), ElementsAre(20, 21, 0, 1, 20, 21));
}

TEST(Embedding, BackwardAddsTheRowsOfEqualIds) {
  const Tensor dout = Tensor::of<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  const std::vector<std::int32_t> ids = {2, 0, 2};
  Tensor dweight = Tensor::of<float>({100, 100, 200, 200, 300, 300}, {3, 2});
  embedding_backward(dout.view(), ids, nullptr, false, dweight);
  EXPECT_THAT(to_doubles(dweight.view()), ElementsAre(103, 104, 200, 200, 306, 308));
}

TEST(Embedding, BackwardIsSummedInDouble) {
  // In fp32, 2^24 + 1 stays 2^24, however often.
  Tensor dout(DType::kF32, {17, 1});
  for (float& value : dout.values<float>()) value = 1;
  dout.values<float>()[0] = 0x1p24F;
  const std::vector<std::int32_t> ids(17, 0);
  Tensor dweight(DType::kF32, {2, 1});
  embedding_backward(dout.view(), ids, nullptr, false, dweight);
  EXPECT_THAT(to_doubles(dweight.view()), ElementsAre(0x1p24 + 16, 0));
}

TEST(Embedding, BackwardAgreesWithFiniteDifferences) {
  Tensor table = random_tensor(DType::kF64, {8, 3}, 41);
  const Tensor dout = random_tensor(DType::kF64, {8, 3}, 42);
  Tensor dtable(DType::kF64, {8, 3});
  embedding_backward(dout.view(), kIds, nullptr, false, dtable);
  EXPECT_LT(gradient_error(table, dtable,
                           [&] {
                             Tensor out(DType::kF64, {8, 3});
                             embedding_forward(table.view(), kIds, nullptr, false, out);
                             return weighted_sum(dout, out);
                           }),
            1e-6);
}

TEST(Embedding, IsTheSameBitsForEverySplit) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    const Tensor table = random_tensor(dtype, {8, 5}, 43);
    const Tensor dout = random_tensor(dtype, {8, 5}, 44);
    const auto rows = bits(looked_up(1, table, false).view());
    const auto gradient = bits(table_gradient(1, dout, false).view());
    for (const int ranks : {1, 2, 4}) {
      for (const bool sequence_parallel : {false, true}) {
        EXPECT_EQ(bits(looked_up(ranks, table, sequence_parallel).view()), rows)
            << to_string(dtype) << ' ' << ranks;
        EXPECT_EQ(bits(table_gradient(ranks, dout, sequence_parallel).view()), gradient)
            << to_string(dtype) << ' ' << ranks;
      }
    }
  }
}

TEST(Embedding, NegativeZeroIsTheSameForEverySplit) {
  Tensor table(DType::kF32, {8, 1});
  for (float& value : table.values<float>()) value = -0.0F;
  const auto rows = bits(looked_up(1, table, false).view());
  EXPECT_EQ(bits(looked_up(2, table, false).view()), rows);
  EXPECT_EQ(bits(looked_up(4, table, true).view()), rows);
}

TEST(Embedding, RefusesIdsAndShapesThatDoNotFit) {
  const Tensor table(DType::kF32, {4, 2});
  Tensor out(DType::kF32, {2, 2});
  const auto message = [&](const std::vector<std::int32_t>& ids) -> std::string {
    try {
      embedding_forward(table.view(), ids, nullptr, false, out);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTensor);
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message({0, 4}), AllOf(HasSubstr("id 4 at position 1"), HasSubstr("vocabulary of 4")));
  EXPECT_THAT(message({-1, 0}), HasSubstr("id -1 at position 0"));
  EXPECT_THAT(message({0}), HasSubstr("wanted f32 of 1 rows"));
  Tensor dweight(DType::kBF16, {4, 2});
  EXPECT_THROW(embedding_backward(Tensor(DType::kBF16, {2, 2}).view(), std::vector<std::int32_t>{0, 1},
                                  nullptr, false, dweight),
               Error);
  run_loopback_ranks(2, [&](Communicator& group) {
    Tensor share(DType::kF32, {1, 2});
    try {
      embedding_forward(table.view(), std::vector<std::int32_t>{0, 1, 2}, &group, true, share);
      ADD_FAILURE() << "three tokens over two ranks";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("3 tokens cannot be split evenly over the 2 ranks"));
    }
  });
}

}  // namespace
}  // namespace amaxscope::megatron
