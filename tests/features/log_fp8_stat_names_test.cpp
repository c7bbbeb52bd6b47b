#include <gmock/gmock.h>

#include "tests/features/inspecting_fixture.hpp"

namespace amaxscope {
namespace {

using ::testing::HasSubstr;
using testing::load_error;

std::string reason_for(std::string_view word) {
  std::string reason;
  EXPECT_FALSE(parse_fp8_stat(word, reason).has_value()) << word;
  return reason;
}

TEST(Fp8StatName, TakesEveryNameApart) {
  struct Case {
    const char* word;
    std::optional<RecipeKind> recipe;
    const char* stat;
    bool columnwise;
  };
  for (const Case& one :
       {Case{"underflows%", std::nullopt, "underflows%", false},
        Case{"scale_inv_min_columnwise", std::nullopt, "scale_inv_min", true},
        Case{"fp8_delayed_scaling_overflows%", RecipeKind::kDelayed, "overflows%", false},
        Case{"fp8_current_scaling_scale_inv_max", RecipeKind::kCurrent, "scale_inv_max", false},
        Case{"mxfp8_mse_columnwise", RecipeKind::kMxfp8, "mse", true},
        Case{"fp8_block_scaling_cosine", RecipeKind::kBlock, "cosine", false}}) {
    std::string reason;
    const auto name = parse_fp8_stat(one.word, reason);
    ASSERT_TRUE(name.has_value()) << one.word << ": " << reason;
    EXPECT_EQ(name->recipe, one.recipe);
    EXPECT_EQ(name->stat, one.stat);
    EXPECT_EQ(name->columnwise, one.columnwise);
    EXPECT_EQ(name->prefix + name->stat + (name->columnwise ? "_columnwise" : ""), one.word);
  }
}

TEST(Fp8StatName, SaysWhatIsWrongWithAnAlmostRightWord) {
  EXPECT_THAT(reason_for("fp8_current_scaling_mse_columnwise"),
              HasSubstr("ask for \"fp8_current_scaling_mse\""));
  EXPECT_THAT(reason_for("fp8_delayed_scaling_underflows%_columnwise"), HasSubstr("one scale"));
  EXPECT_THAT(reason_for("delayed_scaling_underflows%"), HasSubstr("\"fp8_delayed_scaling_underflows%\""));
  EXPECT_THAT(reason_for("nvfp4_mse"), HasSubstr("LogNvfp4TensorStats"));
  EXPECT_THAT(reason_for("mxfp8_median"), HasSubstr("underflows%"));
  EXPECT_EQ(reason_for("underflow"), "");
  EXPECT_EQ(reason_for("fp8_underflows%"), "");
  EXPECT_EQ(reason_for(""), "");
}

TEST(Fp8StatName, LoadingReportsThemAll) {
  const std::string error = load_error(R"(s:
  enabled: true
  layers: {layer_types: [all]}
  transformer_engine:
    LogFp8TensorStats:
      enabled: true
      tensors: [activation]
      stats: [mse, underflow%, nvfp4_mse, fp8_current_scaling_mse_columnwise, mxfp8_mse_columnwise]
)");
  EXPECT_THAT(error, HasSubstr("did you mean \"underflows%\""));
  EXPECT_THAT(error, HasSubstr("LogNvfp4TensorStats"));
  EXPECT_THAT(error, HasSubstr("both directions have the same codes"));
  EXPECT_THAT(error, ::testing::Not(HasSubstr("mxfp8_mse_columnwise")));
}

}  // namespace
}  // namespace amaxscope
