// Tests that run on every rank of an mpirun job. Link amaxscope_mpi_test_main (amaxscope_test() does, with
// RANKS).
//
// Every rank runs the same tests in the same order, so a test may use collectives. A rank must not leave a
// test early while the others stay in it: prefer EXPECT to ASSERT before a collective. A test that fails on
// any rank fails on all.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "collectives/communicator.hpp"

namespace amaxscope::testing {

/// All ranks of the job, over a duplicate of its own: what one test leaves behind reaches no other.
/// Collective.
std::unique_ptr<Communicator> make_test_world();

/// TEST_F(MpiTest, ...) has world(), new for each test. A derived fixture calls MpiTest::SetUp() first.
class MpiTest : public ::testing::Test {
 protected:
  void SetUp() override { world_ = make_test_world(); }
  [[nodiscard]] Communicator& world() const { return *world_; }

 private:
  std::unique_ptr<Communicator> world_;
};

}  // namespace amaxscope::testing
