// libFuzzer's way in; its main() comes with -fsanitize=fuzzer. --write-seeds=FOLDER leaves the seeds there,
// for it to begin with.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  constexpr std::string_view kOption = "--write-seeds=";
  for (int index = 1; index < *count; ++index) {
    const std::string_view argument = (*arguments)[index];
    if (!argument.starts_with(kOption)) continue;
    const std::filesystem::path folder = argument.substr(kOption.size());
    int number = 0;
    for (const std::string& seed : amaxscope::fuzz::seeds())
      std::ofstream(folder / ("seed_" + std::to_string(number++)), std::ios::binary) << seed;
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  amaxscope::fuzz::read({reinterpret_cast<const char*>(bytes), size});
  return 0;
}
