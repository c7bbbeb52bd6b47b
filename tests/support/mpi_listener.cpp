#include "tests/support/mpi_listener.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <thread>

namespace amaxscope::testing {

std::string output_of_rank(const std::string& output, int rank) {
  const std::size_t colon = output.find(':');
  const std::string format = output.substr(0, colon);
  if (format.empty()) return output;
  const std::string path = colon == std::string::npos ? "test_detail." + format : output.substr(colon + 1);
  if (path.ends_with('/')) return fmt::format("{}:{}rank{}/", format, path, rank);
  const std::string suffix = "." + format;
  const bool has_suffix = path.ends_with(suffix);
  const std::string stem = has_suffix ? path.substr(0, path.size() - suffix.size()) : path;
  return fmt::format("{}:{}.rank{}{}", format, stem, rank, has_suffix ? suffix : "");
}

void MpiListener::OnTestPartResult(const ::testing::TestPartResult& result) {
  if (!result.failed() || world_.rank() == 0) return;
  // One write, so that lines of two ranks do not mix.
  const std::string text = fmt::format("[rank {}] {}:{}: {}\n", world_.rank(),
                                       result.file_name() == nullptr ? "?" : result.file_name(),
                                       result.line_number(), result.message());
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void MpiListener::OnTestEnd(const ::testing::TestInfo& test) {
  const bool failed_here = test.result()->Failed();
  if (failed_anywhere(test, failed_here) && !failed_here) {
    GTEST_NONFATAL_FAILURE_("failed on another rank; its message is on stderr, marked [rank N]");
  }
}

bool MpiListener::failed_anywhere(const ::testing::TestInfo& test, bool failed_here) {
  auto vote = std::make_shared<Tensor>(DType::kU32, Shape{1});
  vote->values<std::uint32_t>()[0] = failed_here ? 1 : 0;
  const auto pending = world_.start_all_reduce(vote, ReduceOp::kMax, {.what = "result of a test"});
  const auto start = std::chrono::steady_clock::now();
  while (!pending->test()) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (failed_here && std::chrono::steady_clock::now() - start > kPatience) {
      world_.abort(1, fmt::format("{}.{} failed here, and other ranks have not come to its end after {} s",
                                  test.test_suite_name(), test.name(), kPatience.count()));
    }
  }
  return vote->values<std::uint32_t>()[0] != 0;
}

}  // namespace amaxscope::testing
