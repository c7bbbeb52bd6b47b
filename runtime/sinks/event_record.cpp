#include "runtime/sinks/event_record.hpp"

#include <array>
#include <bit>

namespace amaxscope {

namespace {

constexpr std::array<std::uint32_t, 256> kTable = [] {
  constexpr std::uint32_t kPolynomial = 0x82F63B78U;  // 0x1EDC6F41 with its bits reversed
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1U) != 0 ? kPolynomial : 0U);
    table[byte] = rest;
  }
  return table;
}();

template <class Integer>
void append(std::string& to, Integer value) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i) to += static_cast<char>((value >> (8 * i)) & 0xFFU);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) noexcept {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<std::uint8_t>(c)) & 0xFFU];
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) noexcept {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U;
}

std::string event_record(std::string_view data) {
  std::string record;
  record.reserve(data.size() + 16);
  append(record, static_cast<std::uint64_t>(data.size()));
  append(record, masked_crc32c(record));
  record += data;
  append(record, masked_crc32c(data));
  return record;
}

}  // namespace amaxscope
