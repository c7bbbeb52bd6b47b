// Fingerprints of what a tensor holds, to find out cheaply whether two copies are equal byte by byte.
// Not cryptographic: unequal contents collide by chance only (2^-64). Equal on every machine of one byte
// order.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.hpp"

namespace amaxscope {

/// Of the bytes of the elements in row-major order; padding between rows is not read. dtype and shape are not
/// part of it. Any dtype, CPU. -0 and +0 differ, as do NaNs of different payload.
std::uint64_t content_hash(const TensorView& x);

/// Fingerprints of out.size() parts of about equal size: part i holds the elements from numel * i / parts to
/// numel * (i + 1) / parts. An empty part has the fingerprint of no bytes. Types of at least one byte.
/// Returns what content_hash would not: the fingerprint of the parts in order.
std::uint64_t content_hash_of_parts(const TensorView& x, std::span<std::uint64_t> out);

/// Order matters: combine(a, b) differs from combine(b, a).
std::uint64_t combine_hashes(std::uint64_t a, std::uint64_t b) noexcept;

}  // namespace amaxscope
