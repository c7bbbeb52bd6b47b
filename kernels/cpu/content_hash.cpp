#include "kernels/content_hash.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "kernels/cpu/arguments.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kOperation = "content_hash";
constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio, odd
constexpr std::uint64_t kStart = 0x243F6A8885A308D3U;       // of pi
constexpr std::size_t kLanes = 8;                           // enough to hide the latency of a multiplication

constexpr std::uint64_t stir(std::uint64_t state, std::uint64_t word) noexcept {
  state = (state ^ word) * kMultiplier;
  return state ^ (state >> 29);
}

std::uint64_t hash_bytes(const unsigned char* bytes, std::size_t size) noexcept {
  std::array<std::uint64_t, kLanes> lanes{};
  for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = kStart + lane * kMultiplier;
  std::size_t at = 0;
  for (; at + sizeof(lanes) <= size; at += sizeof(lanes)) {
    std::array<std::uint64_t, kLanes> words;
    std::memcpy(words.data(), bytes + at, sizeof(words));
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = stir(lanes[lane], words[lane]);
  }
  std::array<unsigned char, sizeof(lanes)> rest{};
  if (at < size) std::memcpy(rest.data(), bytes + at, size - at);
  std::array<std::uint64_t, kLanes> words;
  std::memcpy(words.data(), rest.data(), sizeof(words));
  std::uint64_t result = stir(kStart, size);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    result = stir(std::rotl(result, 23), stir(lanes[lane], words[lane]));
  }
  return result;
}

/// The tensor's bytes side by side: its own memory, or a copy of padded rows that `copy` then owns.
const unsigned char* packed_bytes(const TensorView& x, std::unique_ptr<unsigned char[]>& copy) {
  require_host(kOperation, "x", x);
  const auto* data = static_cast<const unsigned char*>(x.data());
  if (x.contiguous() || x.numel() == 0) return data;
  const std::size_t row = size_bytes(x.dtype(), x.cols());
  const std::size_t stride = size_bytes(x.dtype(), x.row_stride());
  copy = std::make_unique_for_overwrite<unsigned char[]>(row * static_cast<std::size_t>(x.rows()));
  for (std::size_t i = 0; i < static_cast<std::size_t>(x.rows()); ++i) {
    std::memcpy(copy.get() + i * row, data + i * stride, row);
  }
  return copy.get();
}

}  // namespace

std::uint64_t content_hash(const TensorView& x) {
  std::unique_ptr<unsigned char[]> copy;
  const unsigned char* bytes = packed_bytes(x, copy);
  return hash_bytes(bytes, x.bytes());
}

ContentParts content_parts(const TensorView& x) {
  AMAXSCOPE_CHECK(bits_per_element(x.dtype()) >= 8, ErrorCode::kTensor,
                  "{}: parts of {}, whose elements are smaller than a byte", kOperation,
                  to_string(x.dtype()));
  std::unique_ptr<unsigned char[]> copy;
  const unsigned char* bytes = packed_bytes(x, copy);
  const std::size_t width = size_bytes(x.dtype(), 1);
  const auto count = static_cast<std::size_t>(x.numel());
  ContentParts result{.whole = kStart};
  for (std::size_t i = 0; i < result.parts.size(); ++i) {
    const std::size_t begin = count * i / result.parts.size();
    const std::size_t end = count * (i + 1) / result.parts.size();
    result.parts[i] = hash_bytes(bytes == nullptr ? nullptr : bytes + begin * width, (end - begin) * width);
    result.whole = combine_hashes(result.whole, result.parts[i]);
  }
  return result;
}

std::uint64_t combine_hashes(std::uint64_t a, std::uint64_t b) noexcept { return stir(std::rotl(a, 23), b); }

}  // namespace amaxscope
