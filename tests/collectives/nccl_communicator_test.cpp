// How NCCL groups are made and end, on the imitated libraries.
#include "collectives/nccl/nccl_communicator.hpp"

#include <thread>

#include "collectives/mpi/mpi_communicator.hpp"
#include "core/error.hpp"
#include "tests/collectives/nccl_test.hpp"
#include "tests/support/faulty_communicator.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class NcclCommunicatorTest : public NcclTest {
 protected:
  /// A communicator as a trainer makes it; null when it could not be made.
  [[nodiscard]] ncclComm_t trainers(bool blocking) const {
    ncclUniqueId id{};
    if (rank() == 0) {
      EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    }
    world().broadcast(MutableTensorView(&id, DType::kU8, {sizeof id}), 0, kNcclTag);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    ncclComm_t comm = nullptr;
    const ncclResult_t made = ncclCommInitRankConfig(&comm, size(), id, rank(), &config);
    EXPECT_TRUE(made == ncclSuccess || made == ncclInProgress);
    settle(comm);
    return comm;
  }
  /// Waits until it is no longer in progress.
  static void settle(ncclComm_t comm) {
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress; std::this_thread::yield()) {
      ASSERT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    }
  }
  static void destroy(ncclComm_t comm) {
    ncclCommFinalize(comm);
    settle(comm);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
};

std::string error_of(ErrorCode code, const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(NcclCommunicatorTest, RanksAreThoseOfTheBootstrap) {
  const auto reversed = world().split(0, -rank(), kNcclTag);
  const auto nccl = make_nccl_communicator(*reversed, {});
  EXPECT_EQ(nccl->rank(), size() - 1 - rank());
  EXPECT_EQ(nccl->world_ranks(), reversed->world_ranks());
  EXPECT_EQ(nccl->device(), (Device{DeviceKind::kCuda, 0}));
}

TEST_F(NcclCommunicatorTest, ALateRankOfTheBootstrapIsWaitedFor) {
  // Late for the broadcast of NCCL's identifier: the fifth call of the bootstrap.
  FaultyCommunicator late(world(), {.kind = CommunicatorFault::Kind::kLate,
                                    .call = last() ? 4 : 1000,
                                    .delay = std::chrono::milliseconds(300)});
  const auto nccl = make_nccl_communicator(late, {});
  nccl->barrier(kNcclTag);
}

TEST_F(NcclCommunicatorTest, ARankWithoutADeviceIsNamedOnEveryRank) {
  if (last()) fake::set_driver_error(cudaErrorInsufficientDriver);
  EXPECT_EQ(error_of(ErrorCode::kUsage, [&] { static_cast<void>(make_nccl()); }),
            fmt::format("NCCL cannot be used: rank {}: no CUDA device: cudaErrorInsufficientDriver "
                        "(cudaErrorInsufficientDriver)",
                        size() - 1));
  fake::reset();
  if (rank() == 0) fake::set_devices(0);
  EXPECT_THAT(error_of(ErrorCode::kUsage, [&] { static_cast<void>(make_nccl()); }),
              HasSubstr("rank 0: no CUDA device: cudaErrorNoDevice"));
  fake::reset();
  EXPECT_THAT(error_of(ErrorCode::kUsage, [&] { static_cast<void>(make_nccl({.device = 1})); }),
              HasSubstr("no CUDA device 1; there are 1, counted from 0"));
  if (last()) fake::set_nccl_version(NCCL_VERSION(2, 17, 1));
  EXPECT_THAT(
      error_of(ErrorCode::kUsage, [&] { static_cast<void>(make_nccl()); }),
      HasSubstr(fmt::format("rank {}: NCCL 2.17.1 is loaded; 2.18.1 or newer is needed", size() - 1)));
}

TEST_F(NcclCommunicatorTest, ARankThatCannotConnectIsNamedOnEveryRank) {
  expect_leftovers();
  if (last()) fake::fail_at("ncclCommInitRankConfig", 1, ncclSystemError);
  const std::string text = error_of(ErrorCode::kInternal, [&] {
    static_cast<void>(
        make_nccl({.deadline = std::chrono::milliseconds(300), .teardown = std::chrono::seconds(20)}));
  });
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("NCCL could not connect the ranks"),
            HasSubstr(fmt::format("rank {}: ncclCommInitRankConfig: unhandled system error", size() - 1))));
  if (size() > 1) {
    EXPECT_THAT(
        text, HasSubstr("rank 0: ncclCommInitRankConfig: NCCL was still connecting the ranks after 300 ms"));
  }
  EXPECT_EQ(fake::live().communicators, 0U);
}

TEST_F(NcclCommunicatorTest, TheTrainersCommunicatorIsSplitAndNeverUsed) {
  for (const bool blocking : {true, false}) {
    const ncclComm_t trainer = trainers(blocking);
    const CudaStream stream = CudaStream::create();
    {
      const auto ours = make_nccl_communicator(ExistingNccl{.comm = trainer}, {});
      EXPECT_EQ(ours->rank(), rank());
      EXPECT_EQ(ours->size(), size());
      // A reduction of the trainer that waits for the last rank holds nothing of ours up.
      const OnDevice<float> theirs(std::vector<float>{1.0F}, stream);
      const auto reduce = [&] {
        const ncclResult_t result =
            ncclAllReduce(theirs.data(), theirs.data(), 1, ncclFloat, ncclSum, trainer, stream.get());
        EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress);
        settle(trainer);
      };
      reduce();  // connects
      if (!last()) reduce();
      Tensor io = Tensor::of<std::uint32_t>({static_cast<std::uint32_t>(rank())}, {1});
      for (int i = 0; i < 3; ++i) ours->all_reduce(io, ReduceOp::kMax, kNcclTag);
      EXPECT_EQ(io.values<std::uint32_t>()[0], static_cast<std::uint32_t>(size() - 1));
      if (last()) reduce();
      EXPECT_EQ(theirs.read()[0], static_cast<float>(size() * size()));
      EXPECT_EQ(fake::operations(trainer), 2);
    }
    EXPECT_EQ(fake::operations(trainer), 2);
    destroy(trainer);
  }
}

TEST_F(NcclCommunicatorTest, GroupsAreMadeAsTheBookSays) {
  const ncclComm_t trainers = this->trainers(true);
  const int rank = this->rank();
  const int local_rank = 0;
  const int tp_color = rank % 2;
  {
    // From MPI, or any other Communicator: it hands out NCCL's identifier and ends the job when asked to.
    auto world = make_mpi_communicator(MPI_COMM_WORLD);
    auto nccl = make_nccl_communicator(*world, {.device = local_rank});

    // From a communicator that the program has: a new one is split off it.
    auto ours = make_nccl_communicator(ExistingNccl{.comm = trainers}, {});

    auto tp = nccl->split(tp_color, rank, {.what = "tp"});

    EXPECT_EQ(nccl->world_ranks(), world->world_ranks());
    EXPECT_EQ(ours->size(), size());
    ASSERT_NE(tp, nullptr);
    EXPECT_EQ(tp->size(), (size() + 1 - tp_color) / 2);
  }
  destroy(trainers);
}

TEST_F(NcclCommunicatorTest, WorldRanksOfAnExistingOneAreTheCallers) {
  const ncclComm_t trainer = trainers(true);
  std::vector<int> given;
  for (int i = 0; i < size(); ++i) given.push_back(10 + i);
  EXPECT_EQ(make_nccl_communicator(ExistingNccl{.comm = trainer, .world_ranks = given}, {})->world_ranks(),
            given);
  given.push_back(0);
  EXPECT_THAT(error_of(ErrorCode::kUsage,
                       [&] {
                         static_cast<void>(
                             make_nccl_communicator(ExistingNccl{.comm = trainer, .world_ranks = given}, {}));
                       }),
              HasSubstr(fmt::format("{} world ranks given for an NCCL communicator of {} ranks", size() + 1,
                                    size())));
  EXPECT_THAT(
      error_of(ErrorCode::kUsage, [&] { static_cast<void>(make_nccl_communicator(ExistingNccl{}, {})); }),
      HasSubstr("no NCCL communicator"));
  fake::set_nccl_version(NCCL_VERSION(2, 17, 1));
  EXPECT_THAT(error_of(ErrorCode::kUsage,
                       [&] { static_cast<void>(make_nccl_communicator(ExistingNccl{.comm = trainer}, {})); }),
              HasSubstr("NCCL 2.17.1 is loaded"));
  world().barrier(kNcclTag);
  destroy(trainer);
}

TEST_F(NcclCommunicatorTest, AbortIsTheBootstraps) {
  const auto nccl = make_nccl();
  int asked = 0;
  const ncclComm_t trainer = trainers(true);
  {
    const auto ours = make_nccl_communicator(
        ExistingNccl{.comm = trainer,
                     .abort =
                         [&](int status, std::string_view reason) {
                           ++asked;
                           throw Error(ErrorCode::kInternal, fmt::format("{} {}", status, reason));
                         }},
        {});
    EXPECT_EQ(error_of(ErrorCode::kInternal, [&] { ours->abort(71, "scales differ"); }), "71 scales differ");
    const auto child = ours->split(0, rank(), kNcclTag);
    EXPECT_EQ(error_of(ErrorCode::kInternal, [&] { child->abort(3, "in a group"); }), "3 in a group");
  }
  EXPECT_EQ(asked, 2);
  destroy(trainer);
}

TEST_F(NcclCommunicatorTest, MemoryIsUsedAgain) {
  const auto nccl = make_nccl();
  const auto reduce = [&](std::int64_t count) {
    Tensor io(DType::kF32, {count});
    nccl->all_reduce(io, ReduceOp::kMax, kNcclTag);
  };
  reduce(1);
  reduce(100'000);
  const int device = fake::calls("cudaMalloc");
  const int host = fake::calls("cudaMallocHost");
  const int events = fake::calls("cudaEventCreateWithFlags");
  for (int i = 0; i < 20; ++i) {
    reduce(1 + i);
    reduce(100'000 - i);
    nccl->barrier(kNcclTag);
  }
  EXPECT_EQ(fake::calls("cudaMalloc"), device);
  EXPECT_EQ(fake::calls("cudaMallocHost"), host);
  EXPECT_EQ(fake::calls("cudaEventCreateWithFlags"), events);
  EXPECT_EQ(fake::pageable_copies(), 0);
  EXPECT_EQ(fake::calls("cudaStreamSynchronize") + fake::calls("cudaDeviceSynchronize") +
                fake::calls("cudaEventSynchronize"),
            0);
}

TEST_F(NcclCommunicatorTest, GroupsEndInAnyOrderWithTheirPendingCollectives) {
  auto nccl = make_nccl();
  auto group = nccl->split(0, rank(), kNcclTag);
  const auto io = std::make_shared<Tensor>(Tensor::of<std::uint32_t>({3}, {1}));
  const auto pending = group->start_all_reduce(io, ReduceOp::kSum, kNcclTag);
  nccl.reset();
  group.reset();
  while (!pending->test()) std::this_thread::yield();
  EXPECT_EQ(io->values<std::uint32_t>()[0], 3U * static_cast<unsigned>(size()));
}

TEST_F(NcclCommunicatorTest, ManyGroupsComeAndGo) {
  const auto nccl = make_nccl();
  for (int i = 0; i < 10; ++i) {
    const auto group = nccl->split(rank() % 2, rank(), kNcclTag);
    group->barrier(kNcclTag);
  }
}

}  // namespace
}  // namespace amaxscope::testing
