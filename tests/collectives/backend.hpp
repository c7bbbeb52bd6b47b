// The suites of this folder are written once and run on every backend: a program links one of the files that
// define backends().
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"

namespace amaxscope::testing {

using RankBody = std::function<void(Communicator& world)>;

struct Backend {
  std::string name;
  int ranks = 1;
  /// False where start_all_reduce waits.
  bool starts_without_waiting = true;
  /// Why it cannot be tested here, the same on every rank; then its tests are skipped.
  std::string unavailable = {};
  /// Runs the body as each rank (in MPI: as this one). Expectations inside must not end a rank early.
  std::function<void(const RankBody&)> run;

  friend void PrintTo(const Backend& backend, std::ostream* out) {
    *out << backend.name << " with " << backend.ranks << " ranks";
  }
};

std::vector<Backend> backends();

/// A suite that takes few of them says so here rather than skipping, and carries
/// GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST: a job of one rank may leave it nothing.
inline std::vector<Backend> backends_with(const std::function<bool(const Backend&)>& wanted) {
  std::vector<Backend> result = backends();
  std::erase_if(result, [&](const Backend& backend) { return !wanted(backend); });
  return result;
}
inline bool has_others(const Backend& backend) { return backend.ranks > 1; }
inline bool has_others_to_wait_for(const Backend& backend) {
  return backend.ranks > 1 && backend.starts_without_waiting;
}

/// The same on every rank of an MPI job, which its names must be.
inline std::string backend_name(const ::testing::TestParamInfo<Backend>& info) {
  return info.param.name + std::to_string(info.param.ranks);
}

class BackendTest : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (!GetParam().unavailable.empty()) GTEST_SKIP() << GetParam().unavailable;
  }
  [[nodiscard]] int ranks() const { return GetParam().ranks; }
  void on_ranks(const RankBody& body) const { GetParam().run(body); }
};

constexpr CollectiveTag kTestTag = {.traffic = Traffic::kTrainer, .what = "test"};

}  // namespace amaxscope::testing
