// The bytes of a flight record, in a file or in memory; little endian. Inside of FlightRecorder and
// FlightReader.
//
//   FlightHeader | FlightGroupSlot x kFlightGroups | FlightRun x kFlightRuns | FlightSlot x header.entries
//
// One process writes while others read. A word that changes is a std::uint64_t that is stored whole. What
// takes several words stands between two stamps: the writer stores `begun` first and `written` last; a reader
// who looks at `written`, then at what is between, then at `begun`, and sees the same stamp twice has seen it
// whole.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace amaxscope {

constexpr std::array<char, 8> kFlightMagic = {'A', 'M', 'A', 'X', 'S', 'F', 'L', 'T'};
constexpr std::uint32_t kFlightVersion = 1;
constexpr std::size_t kFlightGroups = 128;
constexpr std::size_t kFlightRuns = 1024;
constexpr std::size_t kMostFlightEntries = 1U << 16U;

template <std::size_t N>
using FlightText = std::array<char, N>;  ///< ends with a zero byte

struct FlightHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t entries;
  std::uint32_t world_rank;
  std::uint32_t world_size;
  std::uint64_t pid;
  std::uint64_t process_start;
  std::uint64_t pid_namespace;
  std::uint64_t created_ns;  ///< since 1970
  FlightText<64> host;
  FlightText<40> machine;
  // What changes.
  std::uint64_t state;
  std::uint64_t iteration;  ///< two's complement
  std::uint64_t progress;
  std::uint64_t updated_ns;  ///< since 1970
  std::uint64_t next_number;
  std::uint64_t inside;  ///< 0: nothing; see FlightInside
  std::uint64_t group_count;
  std::uint64_t run_count;
  std::uint64_t where_written;
  FlightText<160> where;
  std::uint64_t where_begun;
};

/// Bit 63: a send or receive; bits 48-62: group + 1; below: the collective's sequence or the peer's world
/// rank.
struct FlightInside {
  static constexpr std::uint64_t kPeer = std::uint64_t{1} << 63U;
  static constexpr unsigned kGroupShift = 48;
  static constexpr std::uint64_t kLow = (std::uint64_t{1} << kGroupShift) - 1;
};

struct FlightGroupSlot {
  FlightText<48> name;
  std::uint32_t first_run;
  std::uint32_t runs;   ///< 0: members were not kept
  std::uint64_t calls;  ///< collectives begun
  std::uint64_t left;   ///< 0, or 1 + the first sequence in which the rank takes no part
};

/// World ranks first, first + stride, ...
struct FlightRun {
  std::uint32_t first;
  std::uint32_t stride;
  std::uint32_t count;
};

struct FlightSlot {
  std::uint64_t written;  ///< 1 + number; 0: never
  std::uint64_t begin_ns;
  std::uint64_t end_ns;
  std::uint64_t outcome;
  std::uint64_t sequence;
  std::uint64_t count;
  std::uint64_t iteration;
  std::uint16_t group;
  std::uint8_t operation;
  std::uint8_t op;
  std::uint8_t dtype;
  std::uint8_t traffic;
  std::array<std::uint8_t, 2> unused;
  std::int32_t peer;
  FlightText<52> what;
  FlightText<96> layer;
  FlightText<32> tensor;
  std::uint64_t begun;
};

static_assert(sizeof(FlightSlot) == 256 && sizeof(FlightGroupSlot) == 72 && sizeof(FlightHeader) % 8 == 0);
static_assert(std::is_trivially_copyable_v<FlightHeader> && std::is_trivially_copyable_v<FlightSlot>);

constexpr std::size_t kFlightGroupsOffset = sizeof(FlightHeader);
constexpr std::size_t kFlightRunsOffset = kFlightGroupsOffset + kFlightGroups * sizeof(FlightGroupSlot);
/// Header, groups and runs: all but the entries.
constexpr std::size_t kFlightStatusBytes = kFlightRunsOffset + kFlightRuns * sizeof(FlightRun);
static_assert(kFlightStatusBytes % 8 == 0);

constexpr std::size_t flight_bytes(std::size_t entries) noexcept {
  return kFlightStatusBytes + entries * sizeof(FlightSlot);
}

}  // namespace amaxscope
