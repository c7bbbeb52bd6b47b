// What is particular to the MPI backend.
#include "collectives/mpi/mpi_communicator.hpp"

#include <gmock/gmock.h>

#include <limits>
#include <thread>

#include "core/error.hpp"
#include "tests/collectives/backend.hpp"
#include "tests/support/mpi_test.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::uint32_t sum_of_ones(MPI_Comm comm) {
  std::uint32_t one = 1;
  MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_UINT32_T, MPI_SUM, comm);
  return one;
}

class MpiCommunicatorTest : public MpiTest {};

TEST_F(MpiCommunicatorTest, TheCallersCommunicatorIsNeverUsed) {
  MPI_Comm callers = MPI_COMM_NULL;
  ASSERT_EQ(MPI_Comm_dup(MPI_COMM_WORLD, &callers), MPI_SUCCESS);
  ASSERT_EQ(MPI_Comm_set_errhandler(callers, MPI_ERRORS_ARE_FATAL), MPI_SUCCESS);
  const auto ours = make_mpi_communicator(callers);

  // A collective of ours that is under way does not meet the caller's next one, whatever their order.
  const auto io = std::make_shared<Tensor>(Tensor::of<std::uint32_t>({7}, {1}));
  std::unique_ptr<PendingCollective> pending;
  if (world().rank() != 0) pending = ours->start_all_reduce(io, ReduceOp::kMax, kTestTag);
  EXPECT_EQ(sum_of_ones(callers), static_cast<std::uint32_t>(world().size()));
  if (world().rank() == 0) pending = ours->start_all_reduce(io, ReduceOp::kMax, kTestTag);
  while (!pending->test()) std::this_thread::yield();
  EXPECT_EQ(io->values<std::uint32_t>()[0], 7U);

  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  ASSERT_EQ(MPI_Comm_get_errhandler(callers, &handler), MPI_SUCCESS);
  EXPECT_EQ(handler, MPI_ERRORS_ARE_FATAL) << "ours returns errors, the caller's choice stays";
  MPI_Errhandler_free(&handler);
  MPI_Comm_free(&callers);
  ours->barrier(kTestTag);
}

TEST_F(MpiCommunicatorTest, WorldRanksAreThoseOfTheJob) {
  // A caller's group in reverse order.
  MPI_Comm reversed = MPI_COMM_NULL;
  ASSERT_EQ(MPI_Comm_split(MPI_COMM_WORLD, 0, -world().rank(), &reversed), MPI_SUCCESS);
  const auto ours = make_mpi_communicator(reversed);
  MPI_Comm_free(&reversed);
  EXPECT_EQ(ours->rank(), world().size() - 1 - world().rank());
  EXPECT_EQ(ours->world_ranks()[static_cast<std::size_t>(ours->rank())], world().rank());
  EXPECT_EQ(ours->world_ranks().front(), world().size() - 1);
}

TEST_F(MpiCommunicatorTest, AnErrorOfMpiNamesTheOperationAndTheReason) {
  if (world().size() != 2) GTEST_SKIP() << "with more ranks some would wait for who failed";
  Tensor io(DType::kU8, {world().rank() == 0 ? 8 : 4});
  if (world().rank() == 0) {
    world().broadcast(io, /*root=*/0, kTestTag);
    return;
  }
  try {
    world().broadcast(io, /*root=*/0, kTestTag);
    FAIL() << "8 bytes were received into 4";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("MPI_Bcast"), HasSubstr("essage truncated")));
  }
}

TEST_F(MpiCommunicatorTest, AMessageOfAnotherSizeIsAnErrorOfTheReceiver) {
  const auto received_error = [&](std::int64_t sent, std::int64_t wanted) -> std::string {
    if (world().rank() == 0) world().send(Tensor(DType::kU8, {sent}).view(), 1, kTestTag);
    if (world().rank() != 1) return {};
    try {
      Tensor io(DType::kU8, {wanted});
      world().receive(io, 0, kTestTag);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInternal);
      return error.what();
    }
    return "nothing was thrown";
  };
  if (world().size() == 1) GTEST_SKIP() << "nobody to send to";
  const std::string longer = received_error(8, 4);
  const std::string shorter = received_error(4, 8);
  if (world().rank() == 1) {
    EXPECT_THAT(longer, HasSubstr("essage truncated")) << "Open MPI and MPICH say it alike";
    EXPECT_THAT(shorter, HasSubstr("4 of 8 bytes came from rank 0"));
  }
}

TEST_F(MpiCommunicatorTest, MoreElementsThanMpiCountsAreRefused) {
  float memory = 0;  // refused before it is looked at
  const std::int64_t many = std::int64_t{std::numeric_limits<int>::max()} + 1;
  try {
    world().all_reduce(MutableTensorView(&memory, DType::kF32, {many}), ReduceOp::kSum, kTestTag);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTensor);
    EXPECT_THAT(error.what(), HasSubstr("2147483648 elements"));
  }
}

TEST_F(MpiCommunicatorTest, AnAbandonedCollectiveStillServesTheOthers) {
  if (world().size() == 1) GTEST_SKIP() << "nobody to abandon";
  const auto group = world().split(0, world().rank(), kTestTag);
  const auto start = [&](DType dtype) {
    return group->start_all_reduce(std::make_shared<Tensor>(dtype, Shape{1000}), ReduceOp::kSum, kTestTag);
  };
  if (world().rank() == 0) {
    start(DType::kF64).reset();
    start(DType::kBF16).reset();
  }
  world().barrier(kTestTag);
  if (world().rank() != 0) {
    const auto pending = start(DType::kF64);
    const auto other = start(DType::kBF16);
    while (!pending->test() || !other->test()) std::this_thread::yield();
  }
  // Rank 0 takes part in the abandoned ones from here, as MPI does within any call.
  Tensor io = Tensor::of<float>({1.0F}, {1});
  world().all_reduce(io, ReduceOp::kSum, kTestTag);
  EXPECT_EQ(io.values<float>()[0], static_cast<float>(world().size()));
}

TEST_F(MpiCommunicatorTest, ManyGroupsComeAndGo) {
  for (int i = 0; i < 200; ++i) {
    const auto group = world().split(world().rank() % 2, world().rank(), kTestTag);
    group->barrier(kTestTag);
  }
}

}  // namespace
}  // namespace amaxscope::testing
