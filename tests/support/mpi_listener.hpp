// What GoogleTest must do differently when one program runs as several ranks.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "collectives/communicator.hpp"

namespace amaxscope::testing {

/// "xml:a/b.xml" -> "xml:a/b.rank3.xml": without it all ranks write one file. Takes and returns a value of
/// GoogleTest's --gtest_output.
std::string output_of_rank(const std::string& output, int rank);

/// Makes the ranks agree on the result of each test, and prints a failure of any rank but 0 (which has
/// GoogleTest's own printer) to stderr at once: gathered later it would be lost when the ranks part.
class MpiListener : public ::testing::EmptyTestEventListener {
 public:
  /// The world must outlive the listener.
  explicit MpiListener(Communicator& world) : world_(world) {}

  void OnTestPartResult(const ::testing::TestPartResult& result) override;
  /// Collective. A rank that failed waits for the others only so long: they may be in a collective that it
  /// left.
  void OnTestEnd(const ::testing::TestInfo& test) override;

 private:
  static constexpr std::chrono::seconds kPatience{5};
  [[nodiscard]] bool failed_anywhere(const ::testing::TestInfo& test, bool failed_here);

  Communicator& world_;
};

}  // namespace amaxscope::testing
