// NCCL through the imitation of it and of CUDA (tests/fake), with MPI to start it.
#include <gmock/gmock.h>

#include "collectives/nccl/nccl_communicator.hpp"
#include "tests/collectives/backend.hpp"
#include "tests/fake/fake_gpu.hpp"
#include "tests/support/mpi_test.hpp"

namespace amaxscope::testing {

std::vector<Backend> backends() {
  return {{.name = "nccl", .ranks = make_test_world()->size(), .run = [](const RankBody& body) {
             const auto job = make_test_world();
             fake::reset();
             {
               const auto world = make_nccl_communicator(
                   *job, {.deadline = std::chrono::seconds(60), .teardown = std::chrono::seconds(1)});
               body(*world);
             }
             EXPECT_THAT(fake::violations(), ::testing::IsEmpty());
             EXPECT_EQ(fake::pageable_copies(), 0);
             EXPECT_EQ(fake::live().communicators, 0U);
             EXPECT_EQ(fake::live().streams, 0U);
           }}};
}

}  // namespace amaxscope::testing
