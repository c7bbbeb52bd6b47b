// Every preset is a config that loads without an error or a warning, and observes only.
#include "features/presets.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "features/builtin.hpp"
#include "runtime/config/config.hpp"

namespace amaxscope {
namespace {

using ::testing::IsEmpty;

TEST(Presets, LoadAndOnlyObserve) {
  const FeatureRegistry registry = builtin_features();
  ASSERT_EQ(presets().size(), 5U);
  for (const Preset& preset : presets()) {
    const Config config = load_config(std::string(preset.yaml), std::string(preset.name), registry);
    EXPECT_THAT(config.warnings, IsEmpty()) << preset.name;
    ASSERT_FALSE(config.sections.empty()) << preset.name;
    for (const ConfigSection& section : config.sections) {
      EXPECT_TRUE(section.enabled) << preset.name;
      EXPECT_FALSE(section.features.empty()) << preset.name;
      for (const FeatureConfig& feature : section.features) {
        const auto made = registry.find(feature.name, feature.base_namespace)->make(feature);
        EXPECT_FALSE(made->alters_numerics()) << preset.name << " " << feature.name;
        // What is observed has no codes: each such tensor would be a warning in every run under the preset.
        if (feature.name == "LogFp8TensorStats" || feature.name == "LogNvfp4TensorStats") {
          EXPECT_FALSE(section.observe) << preset.name << " " << section.name;
        }
      }
    }
    EXPECT_EQ(find_preset(preset.name), &preset);
  }
  EXPECT_EQ(find_preset("wach"), nullptr);
  EXPECT_EQ(preset_names(), "watch, nan, diagnose, gap, full");
}

}  // namespace
}  // namespace amaxscope
