#include "collectives/signature.hpp"

#include <string_view>

#include "core/fnv.hpp"

namespace amaxscope {

namespace {

constexpr unsigned kSignatureBits = 61;
constexpr unsigned kPieceBits = 16;
constexpr double kSumMarker = 2.0;

void add(Fnv1a& hash, std::uint64_t word) noexcept {
  for (unsigned shift = 0; shift < 64; shift += 8) hash.add(static_cast<unsigned char>(word >> shift));
}

/// Each text is preceded by its length, so that no two lists of fields read alike.
void add(Fnv1a& hash, std::string_view text) noexcept {
  add(hash, text.size());
  hash.add(text);
}

double piece(std::uint64_t signature, std::size_t index) noexcept {
  return static_cast<double>(signature >> (kPieceBits * index) & ((1U << kPieceBits) - 1));
}

}  // namespace

std::uint64_t signature_of(const CallIdentity& call) noexcept {
  Fnv1a hash;
  add(hash, call.sequence);
  add(hash, static_cast<std::uint64_t>(call.op));
  add(hash, call.tag.what);
  add(hash, call.tag.layer);
  add(hash, call.tag.tensor);
  add(hash, call.used);
  add(hash, call.length);
  add(hash, static_cast<std::uint64_t>(call.iteration));
  return hash.value() & ((std::uint64_t{1} << kSignatureBits) - 1);
}

void sign_max(std::span<std::uint32_t> frame, std::uint64_t signature) noexcept {
  frame[0] = static_cast<std::uint32_t>(signature);
  frame[1] = static_cast<std::uint32_t>(signature >> 32U);
  frame[2] = ~frame[0];
  frame[3] = ~frame[1];
}

bool all_agree_max(std::span<const std::uint32_t> frame) noexcept {
  return frame[0] == ~frame[2] && frame[1] == ~frame[3];
}

void sign_sum(std::span<double> frame, std::uint64_t signature) noexcept {
  frame[0] = kSumMarker;
  for (std::size_t i = 0; 2 * i + 1 < kSumSignatureWords; ++i) {
    const double own = piece(signature, i);
    frame[2 * i + 1] = own;
    frame[2 * i + 2] = own * own;
  }
}

bool all_agree_sum(std::span<const double> frame, std::uint64_t own_signature, int ranks) noexcept {
  bool agree = frame[0] == kSumMarker * ranks;
  for (std::size_t i = 0; 2 * i + 1 < kSumSignatureWords; ++i) {
    const double own = piece(own_signature, i);
    agree = agree && frame[2 * i + 1] == own * ranks && frame[2 * i + 2] == own * own * ranks;
  }
  return agree;
}

}  // namespace amaxscope
