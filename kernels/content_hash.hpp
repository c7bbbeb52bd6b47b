// Fingerprints of what a tensor holds, to find out cheaply whether two copies are equal byte by byte.
// Not cryptographic: unequal contents collide by chance only (2^-64). Equal on every machine of one byte
// order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/tensor.hpp"

namespace amaxscope {

/// Of the bytes of the elements in row-major order; padding between rows is not read. dtype and shape are not
/// part of it. Any dtype, CPU. -0 and +0 differ, as do NaNs of different payload.
std::uint64_t content_hash(const TensorView& x);

/// The same of the whole tensor and of parts of about equal size: part i holds the elements from
/// numel * i / kParts to numel * (i + 1) / kParts.
struct ContentParts {
  static constexpr std::size_t kParts = 32;
  std::uint64_t whole = 0;  ///< of the parts in order; not what content_hash gives
  std::array<std::uint64_t, kParts> parts{};
};
/// Types of at least one byte. An empty part has the fingerprint of no bytes.
ContentParts content_parts(const TensorView& x);

/// Order matters: combine(a, b) differs from combine(b, a).
std::uint64_t combine_hashes(std::uint64_t a, std::uint64_t b) noexcept;

}  // namespace amaxscope
