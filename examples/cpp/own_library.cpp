// A part of a program that is a shared object of its own and links amaxscope's static libraries into itself.
// It exports this function and nothing of theirs, so that it can live in one process with another amaxscope
// (CMakeLists.txt says how).
#include <amaxscope/kernels/amax.hpp>
#include <bit>

extern "C" [[gnu::visibility("default")]] float own_library_amax(const float* values, int count) {
  return std::bit_cast<float>(
      amaxscope::amax_bits({values, amaxscope::DType::kF32, amaxscope::Shape{std::int64_t{count}}}));
}
