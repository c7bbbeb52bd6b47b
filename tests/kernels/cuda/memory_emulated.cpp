#include <cstring>
#include <new>

#include "tests/emulator/emulator.hpp"
#include "tests/kernels/cuda/memory.hpp"

namespace amaxscope::test {

void* device_allocate(std::size_t bytes) { return ::operator new (bytes, std::align_val_t{256}); }
void device_free(void* memory) { ::operator delete (memory, std::align_val_t{256}); }
void copy_to_device(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
void copy_from_device(void* to, const void* from, std::size_t bytes) { copy_to_device(to, from, bytes); }
void set_order(unsigned seed) { emulator::settings().seed = seed; }
void set_multiprocessors(int count) { emulator::settings().multiprocessors = count; }

}  // namespace amaxscope::test
