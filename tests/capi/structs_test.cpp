// Structs of an older and of a newer header, as the functions take and fill them.
#include <cstddef>
#include <cstring>

#include "capi/calls.hpp"
#include "tests/capi/c_api.hpp"

namespace amaxscope {
namespace {

using testing::HasSubstr;

/// As the first header had it, and as a later one has it.
struct First {
  std::size_t size;
  std::int64_t number;
};
struct Later {
  std::size_t size;
  std::int64_t number;
  std::int64_t added;
};

TEST(CApiStructs, WhatAnOlderProgramDoesNotKnowIsZeroAndNotWritten) {
  // The program's memory: its struct, and behind that something else of its own.
  constexpr std::int64_t kOfProgram = 77;
  alignas(Later) std::byte memory[sizeof(Later)];
  const First known = {sizeof(First), 5};
  std::memcpy(memory, &known, sizeof known);
  std::memcpy(memory + sizeof known, &kOfProgram, sizeof kOfProgram);
  auto& given = *reinterpret_cast<Later*>(memory);
  const Later taken = capi::taken(&given, sizeof(First), "given");
  EXPECT_EQ(taken.number, 5);
  EXPECT_EQ(taken.added, 0);
  capi::fill(given, Later{0, 6, 9}, sizeof(First), "given");
  EXPECT_EQ(given.size, sizeof(First));
  EXPECT_EQ(given.number, 6);
  EXPECT_EQ(std::memcmp(memory + sizeof known, &kOfProgram, sizeof kOfProgram), 0);
}

TEST(CApiStructs, AProgramOfTodayGetsAll) {
  Later given = {sizeof(Later), 5, 8};
  EXPECT_EQ(capi::taken(&given, sizeof(First), "given").added, 8);
  capi::fill(given, Later{0, 6, 9}, sizeof(First), "given");
  EXPECT_EQ(given.added, 9);
  EXPECT_EQ(given.size, sizeof(Later));
}

TEST(CApiStructs, SizesOfNoHeaderAreRefused) {
  for (const std::size_t size : {std::size_t{0}, sizeof(First) - 1, sizeof(Later) + 8}) {
    const Later given = {size, 0, 0};
    try {
      static_cast<void>(capi::taken(&given, sizeof(First), "given"));
      ADD_FAILURE() << size;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_THAT(error.what(), HasSubstr("takes 16 to 24"));
    }
  }
}

}  // namespace
}  // namespace amaxscope
