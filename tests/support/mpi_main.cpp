// main() of the GoogleTest programs that run under mpirun. Exit status, the same on all ranks: 0 all passed,
// 1 a test failed on some rank, 77 every test was skipped on every rank (CTest's SKIP_RETURN_CODE).
#include <gmock/gmock.h>
#include <mpi.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/exchange.hpp"
#include "collectives/mpi/mpi_communicator.hpp"
#include "tests/support/mpi_listener.hpp"
#include "tests/support/mpi_test.hpp"

namespace amaxscope::testing {

std::unique_ptr<Communicator> make_test_world() { return make_mpi_communicator(MPI_COMM_WORLD); }

namespace {

constexpr int kAllSkipped = 77;

/// GoogleTest reads where to write its report when it is initialised and never again, so this comes before.
void give_each_rank_its_report(std::vector<std::string>& arguments, int rank) {
  constexpr std::string_view kFlag = "--gtest_output=";
  GTEST_FLAG_SET(output, output_of_rank(GTEST_FLAG_GET(output), rank));  // from the environment
  for (std::string& argument : arguments) {
    if (argument.starts_with(kFlag)) {
      argument = std::string(kFlag) + output_of_rank(argument.substr(kFlag.size()), rank);
    }
  }
}

/// Ranks that shuffle by seeds of their own would run different tests at the same time.
void agree_on_the_order(Communicator& world) {
  if (!GTEST_FLAG_GET(shuffle) || GTEST_FLAG_GET(random_seed) != 0) return;
  constexpr std::int64_t kSeeds = 99999;  // GoogleTest's range is 1 .. 99999
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  Tensor seed = Tensor::of<std::int64_t>({now % kSeeds + 1}, {1});
  world.broadcast(seed, /*root=*/0, {.what = "seed of the test order"});
  GTEST_FLAG_SET(random_seed, static_cast<std::int32_t>(seed.values<std::int64_t>()[0]));
}

int run_tests(Communicator& world, std::vector<std::string> arguments) {
  give_each_rank_its_report(arguments, world.rank());
  // Under mpirun stdout is always a terminal, also when a file is behind it.
  if (GTEST_FLAG_GET(color) == "auto") GTEST_FLAG_SET(color, "no");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  int argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  ::testing::InitGoogleMock(&argc, argv.data());
  agree_on_the_order(world);

  const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
  ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (world.rank() != 0) delete listeners.Release(listeners.default_result_printer());
  // Appended last it is the first to hear of the end of a test, so that the printer sees the agreed result.
  auto* listener = new MpiListener(world);
  listeners.Append(listener);
  const bool passed = RUN_ALL_TESTS() == 0;
  delete listeners.Release(listener);

  const bool skipped =
      tests.test_to_run_count() > 0 && tests.skipped_test_count() == tests.test_to_run_count();
  if (!all_agree(world, passed, {.what = "result of the program"})) return 1;
  return all_agree(world, skipped, {.what = "result of the program"}) ? kAllSkipped : 0;
}

}  // namespace
}  // namespace amaxscope::testing

int main(int argc, char** argv) {
  const amaxscope::MpiEnvironment mpi(&argc, &argv);
  const std::unique_ptr<amaxscope::Communicator> world = amaxscope::testing::make_test_world();
  return amaxscope::testing::run_tests(*world, std::vector<std::string>(argv, argv + argc));
}
