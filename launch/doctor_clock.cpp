#include "launch/doctor_clock.hpp"

#include <chrono>
#include <limits>
#include <vector>

#include "core/tensor.hpp"

namespace amaxscope::launch {

namespace {

constexpr int kRounds = 5;
constexpr CollectiveTag kTag{.traffic = Traffic::kTrainer, .what = "clocks of the ranks"};

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::int64_t certain_offset(std::int64_t before, std::int64_t after, std::int64_t theirs) noexcept {
  if (theirs < before) return theirs - before;
  if (theirs > after) return theirs - after;
  return 0;
}

double clock_offset_seconds(Communicator& group) {
  std::int64_t offset = 0;
  std::int64_t narrowest = std::numeric_limits<std::int64_t>::max();
  for (int round = 0; round < kRounds; ++round) {
    // A rank reads its clock after rank 0 entered the first barrier and before rank 0 left the second.
    const std::int64_t before = now();
    group.barrier(kTag);
    const std::int64_t mine = now();
    group.barrier(kTag);
    Tensor window = Tensor::of<std::int64_t>({before, now()}, Shape{2});
    group.broadcast(window.mutable_view(), 0, kTag);
    const std::int64_t begin = window.values<std::int64_t>()[0];
    const std::int64_t end = window.values<std::int64_t>()[1];
    if (end - begin >= narrowest) continue;
    narrowest = end - begin;
    offset = certain_offset(begin, end, mine);
  }
  return static_cast<double>(offset) / 1e6;
}

}  // namespace amaxscope::launch
