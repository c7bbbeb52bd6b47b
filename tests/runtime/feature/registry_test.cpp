#include "runtime/feature/registry.hpp"

#include <gmock/gmock.h>

#include "tests/runtime/config/test_registry.hpp"

namespace amaxscope::test {
namespace {

using testing::ElementsAre;

std::string refused(FeatureRegistry& registry, FeatureEntry entry) {
  try {
    registry.add(std::move(entry));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "";
}

FeatureEntry entry(std::string name, std::vector<std::string> aliases = {}, bool base = false) {
  FeatureSchema schema;
  schema.name = std::move(name);
  schema.deprecated_aliases = std::move(aliases);
  return {std::move(schema), base, make_inert};
}

TEST(FeatureRegistry, FindsByNameAndAliasInItsNamespace) {
  const FeatureRegistry registry = test_registry();
  EXPECT_EQ(registry.find("DisableFP8GEMM", false)->schema.name, "DisableQuantizationGEMM");
  EXPECT_EQ(registry.find("DisableQuantizationGEMM", true), nullptr);
  EXPECT_TRUE(registry.find("LogTensorStats", true)->schema.free_tensor_names);
  EXPECT_FALSE(registry.find("LogTensorStats", false)->schema.free_tensor_names);
  EXPECT_EQ(registry.find("logtensorstats", false), nullptr);
  EXPECT_THAT(registry.names(true), ElementsAre("LogTensorStats"));
  EXPECT_EQ(registry.names(false).front(), "DisableQuantizationGEMM");
}

TEST(FeatureRegistry, NamesAreUniqueInANamespace) {
  FeatureRegistry registry;
  registry.add(entry("A", {"OldA"}));
  EXPECT_EQ(refused(registry, entry("A")),
            "feature registry: A is taken by A in the transformer_engine namespace; a feature needs names of "
            "its own");
  EXPECT_EQ(refused(registry, entry("B", {"OldA"})),
            "feature registry: OldA is taken by A in the transformer_engine namespace; a feature needs names "
            "of its own");
  EXPECT_EQ(refused(registry, entry("OldA", {}, /*base=*/true)), "");
  EXPECT_EQ(registry.entries().size(), 2U);  // a refused feature is not half there
}

TEST(FeatureRegistry, RefusesIncompleteEntries) {
  FeatureRegistry registry;
  EXPECT_EQ(refused(registry, entry("")), "feature registry: a feature needs a name");
  FeatureEntry without = entry("A");
  without.make = nullptr;
  EXPECT_EQ(refused(registry, std::move(without)), "feature registry: A has no factory");
  FeatureEntry odd = entry("A");
  odd.schema.statistics = {
      {"s", "", {{.name = "p", .type = KeyType::kBool, .default_text = "", .doc = ""}}, false}};
  EXPECT_EQ(refused(registry, std::move(odd)),
            "feature registry: parameter p of statistic s in A is not an integer; only integers are "
            "supported there");
}

TEST(ScheduleKeys, AreTheFourOfTheReference) {
  std::vector<std::string> names;
  for (const KeySchema& key : schedule_keys()) names.push_back(key.name);
  EXPECT_THAT(names, ElementsAre("freq", "start_step", "end_step", "start_end_list"));
  for (const KeySchema& key : schedule_keys()) {
    EXPECT_FALSE(key.required);
    EXPECT_FALSE(key.doc.empty());
  }
}

}  // namespace
}  // namespace amaxscope::test
