// Fixture of the tests of what is particular to the NCCL backend, on the imitated CUDA and NCCL.
#pragma once

#include <gmock/gmock.h>

#include <memory>
#include <vector>

#include "collectives/nccl/nccl_communicator.hpp"
#include "tests/collectives/on_device.hpp"
#include "tests/fake/fake_gpu.hpp"
#include "tests/support/mpi_test.hpp"

namespace amaxscope::testing {

constexpr CollectiveTag kNcclTag = {.traffic = Traffic::kTrainer, .what = "test"};

/// world() is MPI's, to start NCCL and to wait for each other by.
class NcclTest : public MpiTest {
 protected:
  void SetUp() override {
    MpiTest::SetUp();
    fake::reset();
    before_ = fake::live();
  }
  /// What the imitation has seen that should not be, and what is left of what was made in the test.
  void TearDown() override {
    EXPECT_THAT(fake::violations(), ::testing::IsEmpty());
    if (leaves_nothing_) {
      EXPECT_EQ(fake::live(), before_);
    }
  }
  /// For tests in which a group is aborted: what a hanging device might still write to is kept.
  void expect_leftovers() { leaves_nothing_ = false; }

  [[nodiscard]] std::unique_ptr<Communicator> make_nccl(NcclOptions options = {
                                                            .deadline = std::chrono::seconds(60),
                                                            .teardown = std::chrono::seconds(20)}) const {
    return make_nccl_communicator(world(), options);
  }
  [[nodiscard]] int rank() const { return world().rank(); }
  [[nodiscard]] int size() const { return world().size(); }
  [[nodiscard]] bool last() const { return rank() == size() - 1; }

 private:
  bool leaves_nothing_ = true;
  fake::Live before_;
};

}  // namespace amaxscope::testing
