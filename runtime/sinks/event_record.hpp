// Records of a TFRecord file, which TensorBoard reads. Pure functions. Internal to the sinks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace amaxscope {

/// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
std::uint32_t crc32c(std::string_view bytes) noexcept;
/// Rotated right by 15 and 0xA282EAD8 added: what the records hold, so that a checksum of data that has one
/// in it still tells something.
std::uint32_t masked_crc32c(std::string_view bytes) noexcept;
/// Length (8 bytes), its masked checksum, the data, its masked checksum; integers little endian.
std::string event_record(std::string_view data);

}  // namespace amaxscope
