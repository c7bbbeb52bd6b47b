// The manifest that somebody left in a folder of dumps: the next dump is written all the same, or it is said
// why not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/storage/dump_folder.hpp"
#include "runtime/storage/safetensors.hpp"
#include "tests/bounds/limited.hpp"
#include "tests/support/temporary_folder.hpp"

namespace amaxscope::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ManifestBounds : public ::testing::Test {
 protected:
  /// "written", or the warnings, after one tensor was to be dumped beside this manifest.
  [[nodiscard]] std::string dumped() const {
    return limited([&] {
             std::string warnings;
             {
               DumpFolder folder(folder_.path(),
                                 {.who = "test", .budget = 1 << 20, .budget_name = "max_bytes"},
                                 [&](const std::string& warning) { warnings += warning; });
               DumpMetadata dump;
               dump.identity = {.layer = "fc1", .tensor = "weight", .iteration = 3};
               const Tensor values(DType::kF32, Shape{2, 2});
               const std::vector<NamedTensor> tensors = {{"high_precision", values.view()}};
               folder.write(dump, tensors);
             }
             const bool there = fs::exists(
                 folder_.path() / "iter_000003" /
                 (dump_name({.layer = "fc1", .tensor = "weight", .iteration = 3}) + ".safetensors"));
             return there && warnings.empty() ? std::string("written") : warnings;
           })
        .said;
  }
  [[nodiscard]] std::string dumped_beside(const std::string& manifest) const {
    fs::remove_all(folder_.path() / "iter_000003");
    std::ofstream(folder_.path() / "manifest.jsonl", std::ios::trunc) << manifest;
    return dumped();
  }

  const TemporaryFolder folder_;
};

TEST_F(ManifestBounds, LinesOfOtherKindsCountForNothing) {
  for (const char* line :
       {"{\"status\":7}\n", "{\"status\":\"written\",\"bytes\":\"x\",\"iteration\":[],\"file\":{}}\n", "[]\n",
        "7\n", "{\n", "{\"status\":\"written\",\"bytes\":-1}\n", "{\"status\":\"written\",\"bytes\":1e999}\n",
        "{\"status\":\"written\",\"bytes\":18446744073709551615}\n", "\xff\xfe\n",
        "{\"status\":\"written\",\"iteration\":9,\"file\":\"../../../etc/passwd\",\"bytes\":1}\n",
        "no newline"}) {
    EXPECT_EQ(dumped_beside(line), "written") << line;
  }
  EXPECT_EQ(dumped_beside(std::string(2 << 20, '[') + "\n"), "written");
}

TEST_F(ManifestBounds, WhatIsNoManifestIsSaid) {
  EXPECT_THAT(dumped_beside(std::string(5 << 20, 'x')),
              AllOf(HasSubstr("manifest.jsonl"), HasSubstr("more than 4 MiB")));
  fs::resize_file(folder_.path() / "manifest.jsonl", std::uintmax_t{1} << 40U);
  EXPECT_THAT(dumped(), HasSubstr("more than 4 MiB"));
  fs::remove(folder_.path() / "manifest.jsonl");
  std::ofstream(folder_.path() / "theirs") << "theirs";
  fs::create_symlink("theirs", folder_.path() / "manifest.jsonl");
  EXPECT_THAT(dumped(), HasSubstr("symbolic link"));
  EXPECT_EQ(fs::file_size(folder_.path() / "theirs"), 6U);
}

}  // namespace
}  // namespace amaxscope::test
