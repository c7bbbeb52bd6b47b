#include "bench/kernels/limits.hpp"

#include <stdexcept>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/kernels/limits.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace amaxscope::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Words = hn::ScalableTag<std::uint64_t>;
constexpr std::size_t kAhead = 4096;

std::uint64_t read(const void* from, std::size_t bytes) {
  const Words d;
  const std::size_t step = hn::Lanes(d);
  const auto* words = static_cast<const std::uint64_t*>(from);
  const std::size_t count = bytes / sizeof(std::uint64_t);
  auto a = hn::Zero(d);
  auto b = a;
  auto c = a;
  auto e = a;
  for (std::size_t i = 0; i + 4 * step <= count; i += 4 * step) {
    for (std::size_t line = 0; line < 4 * step; line += 8) hwy::Prefetch(words + i + line + kAhead / 8);
    a = hn::Add(a, hn::LoadU(d, words + i));
    b = hn::Add(b, hn::LoadU(d, words + i + step));
    c = hn::Add(c, hn::LoadU(d, words + i + 2 * step));
    e = hn::Add(e, hn::LoadU(d, words + i + 3 * step));
  }
  return hn::GetLane(hn::Add(hn::Add(a, b), hn::Add(c, e)));
}

template <int kReads, int kWrites>
void pass(const void* from, std::size_t bytes, void* to, bool streamed) {
  const Words d;
  const std::size_t step = hn::Lanes(d);
  const auto* in = static_cast<const std::uint64_t*>(from);
  auto* out = static_cast<std::uint64_t*>(to);
  const std::size_t steps = bytes / sizeof(std::uint64_t) / step / kReads;
  for (std::size_t i = 0; i < steps; ++i) {
    for (std::size_t line = 0; line < kReads * step; line += 8) hwy::Prefetch(in + line + kAhead / 8);
    auto all = hn::LoadU(d, in);
    for (int k = 1; k < kReads; ++k)
      all = hn::Xor(all, hn::LoadU(d, in + static_cast<std::size_t>(k) * step));
    in += kReads * step;
    for (int k = 0; k < kWrites; ++k) {
      if (streamed) {
        hn::Stream(all, d, out);
      } else {
        hn::StoreU(all, d, out);
      }
      out += step;
    }
  }
  hwy::FlushStream();
}

void read_write(int reads, int writes, const void* from, std::size_t bytes, void* to, bool streamed) {
  if (reads == 8 && writes == 1) return pass<8, 1>(from, bytes, to, streamed);
  if (reads == 4 && writes == 1) return pass<4, 1>(from, bytes, to, streamed);
  if (reads == 2 && writes == 1) return pass<2, 1>(from, bytes, to, streamed);
  if (reads == 2 && writes == 2) return pass<2, 2>(from, bytes, to, streamed);
  if (reads == 4 && writes == 2) return pass<4, 2>(from, bytes, to, streamed);
  if (reads == 1 && writes == 4) return pass<1, 4>(from, bytes, to, streamed);
  if (reads == 1 && writes == 8) return pass<1, 8>(from, bytes, to, streamed);
  throw std::invalid_argument("read_and_write: no loop of this shape");
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace amaxscope::bench {

HWY_EXPORT(read);
HWY_EXPORT(read_write);

std::uint64_t read_all(const void* from, std::size_t bytes) {
  return HWY_DYNAMIC_DISPATCH(read)(from, bytes);
}

void read_and_write(int reads, int writes, const void* from, std::size_t bytes, void* to, bool streamed) {
  HWY_DYNAMIC_DISPATCH(read_write)(reads, writes, from, bytes, to, streamed);
}

}  // namespace amaxscope::bench
#endif
