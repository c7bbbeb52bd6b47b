// Counts what a thread allocates, in a test program that has allocations.cpp among its sources.
#pragma once

#include <cstdint>

namespace amaxscope::testing {

/// Calls of operator new on this thread since it began.
std::uint64_t allocations_of_this_thread() noexcept;

}  // namespace amaxscope::testing
