#include <gtest/gtest.h>

#include "runtime/sinks/file_sinks.hpp"

namespace amaxscope {
namespace {

TEST(CallbackSink, HandsOnRecordsAndScalars) {
  std::vector<std::string> seen;
  const auto sink = make_callback_sink([&](const StatRecord& record) { seen.push_back(record.layer); },
                                       [&](std::int64_t iteration, const Scalars& values) {
                                         seen.push_back(std::to_string(iteration) + values.begin()->first);
                                       });
  StatRecord record;
  record.layer = "fc1";
  sink->record(record);
  sink->scalars(4, {{"loss", 1.0}});
  sink->end_of_step(4);
  sink->close();
  EXPECT_EQ(seen, (std::vector<std::string>{"fc1", "4loss"}));
}

TEST(CallbackSink, EitherCallbackMayBeMissing) {
  const auto sink = make_callback_sink({});
  sink->record({});
  sink->scalars(0, {{"loss", 1.0}});
}

}  // namespace
}  // namespace amaxscope
