// What memory allows: loops that only read and write, in the shapes of the kernels. A limit is the best
// trivial loop that was tried, not a proof; some kernels come out a little above it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace amaxscope::bench {

/// Reads `bytes`; returns something that depends on all of them.
std::uint64_t read_all(const void* from, std::size_t bytes);

/// Reads `bytes` and writes writes/reads as many: {4, 1} is the shape of an fp32 cast to codes. reads and
/// writes: 8 to 1, 4 to 1, 2 to 1, 2 to 2, 4 to 2, 1 to 4 or 1 to 8. Outputs are 64-byte aligned; streamed
/// ones pass the caches by.
void read_and_write(int reads, int writes, const void* from, std::size_t bytes, void* to, bool streamed);

}  // namespace amaxscope::bench
