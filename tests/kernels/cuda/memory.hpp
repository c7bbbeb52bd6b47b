// Memory that the kernels under test see: of a device, or of the emulator, which is that of the process.
// memory_emulated.cpp and memory_device.cpp are the two.
#pragma once

#include <cstddef>

namespace amaxscope::test {

/// Aligned to 256 bytes. Throws when there is none.
void* device_allocate(std::size_t bytes);
void device_free(void* memory);
void copy_to_device(void* to, const void* from, std::size_t bytes);
/// After all work on the device is done; throws when some of it failed.
void copy_from_device(void* to, const void* from, std::size_t bytes);

/// Of the order in which an emulated device runs what it may run in any order.
void set_order(unsigned seed);
/// Of an emulated device.
void set_multiprocessors(int count);

}  // namespace amaxscope::test
