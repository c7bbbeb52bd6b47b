// Reading a config file, and texts that are hostile: an Error in bounded time, never a crash.
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/runtime/config/test_registry.hpp"
#include "tests/support/temporary_folder.hpp"

namespace amaxscope::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

class ConfigFile : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  static std::string refused(const fs::path& path) {
    try {
      (void)read_config_file(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      return error.what();
    }
    return "";
  }
  const TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
};

TEST_F(ConfigFile, ReadsTheBytes) {
  const std::string bytes("a: 1\r\n\0b", 8);
  EXPECT_EQ(read_config_file(write("c.yaml", bytes)), bytes);
  EXPECT_EQ(read_config_file(write("empty.yaml", "")), "");
}

TEST_F(ConfigFile, MissingFileAndDirectoryAreErrors) {
  const fs::path missing = folder_ / "no.yaml";
  EXPECT_EQ(refused(missing), missing.string() + ": cannot open the config file: No such file or directory");
  EXPECT_EQ(refused(folder_), folder_.string() + ": is a directory, not a config file");
}

TEST_F(ConfigFile, AFileThatMayNotBeReadIsAnError) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
  const fs::path path = write("secret.yaml", "a: 1");
  fs::permissions(path, fs::perms::none);
  EXPECT_EQ(refused(path), path.string() + ": cannot open the config file: Permission denied");
}

TEST_F(ConfigFile, TooLongIsAnErrorAlsoWithoutAnEnd) {
  const std::string limit(1 << 20, '#');
  EXPECT_EQ(read_config_file(write("full.yaml", limit)).size(), limit.size());
  EXPECT_THAT(refused(write("long.yaml", limit + "#")), HasSubstr("the config file is over 1048576 bytes"));
  EXPECT_THAT(refused("/dev/zero"), HasSubstr("the config file is over 1048576 bytes"));
}

TEST(TextDigest, IsFnv1a64) {
  // Test vectors of the FNV reference code.
  EXPECT_EQ(text_digest(""), "cbf29ce484222325");
  EXPECT_EQ(text_digest("a"), "af63dc4c8601ec8c");
  EXPECT_EQ(text_digest("foobar"), "85944171f73967e8");
}

class Hostile : public testing::Test {
 protected:
  void SetUp() override { start_ = std::chrono::steady_clock::now(); }
  void TearDown() override { EXPECT_LT(std::chrono::steady_clock::now() - start_, std::chrono::seconds(20)); }

 private:
  std::chrono::steady_clock::time_point start_;
};

std::string repeat(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

TEST_F(Hostile, DeepNesting) {
  constexpr int kDeep = 100'000;
  for (const char* open : {"[", "{a: ", "- ", "{", "? ", "[[{", "a: [", "!!seq [", "&a ["}) {
    EXPECT_NE(errors_of(repeat(open, kDeep)), "") << open;
  }
  EXPECT_THAT(errors_of(repeat("[", 65) + repeat("]", 65)), HasSubstr("nested more than 64 levels deep"));
  EXPECT_THAT(errors_of(repeat("[", 64) + repeat("]", 64)), StartsWith("t.yaml:1:1: a config is a mapping"));
  std::string stairs;
  for (int i = 0; i < 1000; ++i) stairs += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_THAT(errors_of(stairs), HasSubstr("nested more than 64 levels deep"));
}

TEST_F(Hostile, AliasBombs) {
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    laughs +=
        "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + repeat(last + ", ", 9) + last + "]\n";
  }
  EXPECT_THAT(errors_of(laughs), HasSubstr("aliases expand to more than 100000 nodes"));
  // Few nodes, but much text.
  EXPECT_THAT(errors_of("a: &a " + std::string(500'000, 'x') + "\nb: [" + repeat("*a, ", 1000) + "]\n"),
              HasSubstr("8388608 bytes"));
  // Each merge doubles.
  std::string merges = "m0: &m0 {k: 1}\n";
  for (int i = 1; i < 40; ++i) {
    merges += "m" + std::to_string(i) + ": &m" + std::to_string(i) + " {a: *m" + std::to_string(i - 1) +
              ", b: *m" + std::to_string(i - 1) + "}\n";
  }
  EXPECT_THAT(errors_of(merges), HasSubstr("aliases expand to more than 100000 nodes"));
  std::string chain = "c0: &c0 [x]\n";
  for (int i = 1; i < 80; ++i)
    chain += "c" + std::to_string(i) + ": &c" + std::to_string(i) + " [*c" + std::to_string(i - 1) + "]\n";
  EXPECT_THAT(errors_of(chain), HasSubstr("aliases nest more than 64 levels deep"));
}

TEST_F(Hostile, TooMuch) {
  EXPECT_EQ(errors_of(std::string(2 << 20, 'a')),
            "t.yaml: the config has 2097152 bytes; at most 1048576 (1 MiB) are allowed");
  EXPECT_THAT(errors_of("a: [" + repeat("1,", 120'000) + "]"),
              HasSubstr("the config has more than 100000 YAML nodes"));
  EXPECT_NE(errors_of(std::string(1'000'000, 'a')), "");
  EXPECT_NE(errors_of("'" + std::string(1'000'000, 'a')), "");
  EXPECT_NE(errors_of(std::string(1'000'000, 'a') + ": 1"), "");
  EXPECT_EQ(errors_of(std::string(1'000'000, '\n')), "");
  EXPECT_NE(errors_of(repeat("k: 1\n", 40'000)), "");  // as many duplicate keys
  EXPECT_NE(errors_of(repeat("*", 1'000'000)), "");
  EXPECT_NE(errors_of(repeat("&a ", 300'000)), "");
  EXPECT_NE(errors_of("a: " + repeat("!", 1'000'000)), "");
  EXPECT_NE(errors_of("%" + repeat("a", 1'000'000)), "");
}

TEST_F(Hostile, ListsThatMultiply) {
  std::string names;
  for (int i = 0; i < 20'000; ++i) names += "t" + std::to_string(i) + ",";
  std::string stats;
  for (int i = 1; i < 5'000; ++i)
    stats += "{max_blockwise_dynamic_range: {block_size: " + std::to_string(i) + "}},";
  FeatureRegistry registry = test_registry();
  FeatureSchema schema = registry.find("LogTensorStats", false)->schema;
  schema.name = "Wide";
  schema.free_tensor_names = true;
  registry.add({schema, /*base_namespace=*/true, make_inert});
  try {
    (void)load_config(
        "s:\n  enabled: True\n  layers: {layer_types: [a]}\n  Wide: {enabled: True, tensors: [" + names +
            "], stats: [" + stats + "]}\n",
        "t.yaml", registry);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the lists of Wide expand to too many values"));
  }
}

TEST_F(Hostile, BytesThatAreNoText) {
  EXPECT_EQ(errors_of("a: \xFF"), "t.yaml:1:4: byte 0xff is not UTF-8; a config is UTF-8 text");
  EXPECT_EQ(errors_of("a: 1\nb: \xC3"), "t.yaml:2:4: byte 0xc3 is not UTF-8; a config is UTF-8 text");
  EXPECT_EQ(errors_of("\xC0\x80"), "t.yaml:1:1: byte 0xc0 is not UTF-8; a config is UTF-8 text");  // overlong
  EXPECT_EQ(errors_of("\xED\xA0\x80"),
            "t.yaml:1:1: byte 0xed is not UTF-8; a config is UTF-8 text");  // surrogate
  EXPECT_EQ(errors_of("\xF4\x90\x80\x80"),
            "t.yaml:1:1: byte 0xf4 is not UTF-8; a config is UTF-8 text");  // > 10FFFF
  EXPECT_EQ(errors_of(std::string("a: \0b", 5)),
            "t.yaml:1:4: character U+0000 is not allowed in YAML; write it as an escape in double quotes");
  EXPECT_EQ(errors_of("a: \x04"),
            "t.yaml:1:4: character U+0004 is not allowed in YAML; write it as an escape in double quotes");
  EXPECT_EQ(errors_of("a:\r\n  \x1B"),
            "t.yaml:2:3: character U+001B is not allowed in YAML; write it as an escape in double quotes");
}

TEST_F(Hostile, EscapedControlCharactersAreShownEscaped) {
  EXPECT_EQ(errors_of("\"s\\0\\e\": 5"),
            "t.yaml:1:10: section \"s\\x00\\x1b\" must be a mapping, found an integer 5; it needs enabled, "
            "layers and the features");
}

TEST_F(Hostile, MutatedConfigsNeverCrash) {
  const std::string seed = in_section(
      "    FakeQuant: &f\n      enabled: True\n      quant_format: 'FP8E4M3'\n      gemms_struct:\n"
      "        - {gemm: fprop, tensors: [activation, weight], freq: 10}\n        - gemm: dgrad\n"
      "          tensors_struct: [{tensor: gradient, start_end_list: [[0, 2], [4, -1]]}]\n"
      "    LogTensorStats: {<<: {enabled: on}, tensors: weight, stats: [mean, {max_blockwise_dynamic_range: "
      "{dims: 2}}]}\n");
  ASSERT_EQ(errors_of(seed), "");
  const std::string alphabet = "[]{}:,-?&*!|>'\"%@`#<~ \n\t\\0aT=.";
  std::mt19937 random(20260131);
  const auto pick = [&](std::size_t size) { return random() % size; };
  for (int round = 0; round < 4000; ++round) {
    std::string text = seed;
    for (std::size_t edit = 0, edits = 1 + pick(4); edit < edits; ++edit) {
      const std::size_t at = pick(text.size());
      switch (pick(4)) {
        case 0:
          text[at] = alphabet[pick(alphabet.size())];
          break;
        case 1:
          text.erase(at, 1 + pick(8));
          break;
        case 2:
          text.insert(at, 1, alphabet[pick(alphabet.size())]);
          break;
        default:
          text.insert(pick(text.size()), text.substr(at, 1 + pick(40)));
      }
      if (text.empty()) text = seed;
    }
    const std::string errors = errors_of(text);
    if (!errors.empty()) {
      ASSERT_THAT(errors, StartsWith("t.yaml:")) << text;
    }
  }
}

}  // namespace
}  // namespace amaxscope::test
