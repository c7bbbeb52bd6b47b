#include "runtime/config/layer_selector.hpp"

#include <gmock/gmock.h>

#include "core/error.hpp"

namespace amaxscope {
namespace {

class Selected {
 public:
  explicit Selected(const std::string& yaml) : diagnostics_("l") {
    const ConfigValue value = parse_yaml(yaml, diagnostics_);
    selector_ = LayerSelector::parse(value, diagnostics_);
  }
  [[nodiscard]] bool matches(const std::string& name, std::optional<int> number = std::nullopt) const {
    return selector_->matches(name, number);
  }
  [[nodiscard]] bool exists() const { return selector_ != nullptr; }
  [[nodiscard]] std::string messages() const {
    std::string text;
    for (const auto& entry : diagnostics_.entries())
      text += (text.empty() ? "" : "\n") + diagnostics_.format(entry);
    return text;
  }

 private:
  Diagnostics diagnostics_;
  std::unique_ptr<LayerSelector> selector_;
};

TEST(LayerSelector, TypesAreSubstrings) {
  const Selected selected("layer_types: [fc1, layernorm_linear]");
  EXPECT_TRUE(selected.matches("transformer_layer.layernorm_mlp.fc1"));
  EXPECT_TRUE(selected.matches("a.layernorm_linear_qkv"));
  EXPECT_FALSE(selected.matches("a.fc2"));
  EXPECT_TRUE(Selected("layer_types: [a.b]").matches("a.b"));
  EXPECT_FALSE(Selected("layer_types: [a.b]").matches("axb"));  // no pattern
  EXPECT_TRUE(Selected("layer_types: fc1").matches("fc1"));     // a bare string is a list of one
  EXPECT_FALSE(Selected("layer_types: fc1").matches("f"));
}

TEST(LayerSelector, APatternDecidesAlone) {
  Diagnostics diagnostics("l");
  const auto pattern_of = [&](const char* yaml) {
    const auto selector = LayerSelector::parse(parse_yaml(yaml, diagnostics), diagnostics);
    const Pattern* pattern = selector->deciding_pattern();
    return pattern == nullptr ? std::string("none") : pattern->text();
  };
  EXPECT_EQ(pattern_of("{layer_name_regex_pattern: fc1, layer_types: [fc2]}"), "fc1");
  EXPECT_EQ(pattern_of("{layer_name_regex_pattern: fc1, exact_layer_names: [a]}"), "none");
  EXPECT_EQ(pattern_of("layer_types: [fc1]"), "none");
}

TEST(LayerSelector, All) {
  for (const char* yaml : {"layer_types: [all]", "layer_types: all", "layer_numbers: all",
                           "layer_numbers: ALL", "layer_numbers: [1, all]", "layer_types: [nothing, all]"}) {
    EXPECT_TRUE(Selected(yaml).matches("output_layer")) << yaml;
    EXPECT_TRUE(Selected(yaml).matches("layers.3.gemm_2")) << yaml;  // no number is needed
  }
}

TEST(LayerSelector, NumbersComeFromTheRegistration) {
  const Selected selected("layer_numbers: [1, '3-5', 7-7]");
  for (const int number : {1, 3, 4, 5, 7}) EXPECT_TRUE(selected.matches("x.99", number)) << number;
  for (const int number : {0, 2, 6, 8}) EXPECT_FALSE(selected.matches("x.1", number)) << number;
  EXPECT_TRUE(Selected("layer_numbers: 5").matches("x", 5));
  EXPECT_TRUE(Selected("layer_numbers: 4-5").matches("x", 5));
  EXPECT_TRUE(Selected("layer_numbers: [3]").matches("layers.3.gemm_2", 3));
}

TEST(LayerSelector, NumbersComeFromTheNameOtherwise) {
  const Selected selected("layer_numbers: [12]");
  EXPECT_TRUE(selected.matches("decoder.layers.12.mlp.linear_fc1"));  // fc1 names a type
  EXPECT_TRUE(selected.matches("decoder.layers.12.mlp.linear_fc12"));
  EXPECT_FALSE(selected.matches("decoder.layers.1.mlp.linear_fc12"));
  EXPECT_FALSE(selected.matches("output_layer"));
  EXPECT_FALSE(selected.matches("layers.99999999999999999999999"));
}

TEST(LayerSelector, SeveralNumbersInANameNeedARegisteredOne) {
  const Selected selected("layer_numbers: [3]");
  try {
    (void)selected.matches("layers.3.gemm_2");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_STREQ(
        error.what(),
        "layer \"layers.3.gemm_2\" has 2 integers in its name and was registered without a number, so "
        "layer_numbers cannot tell which one counts; register the layer with its number");
  }
}

TEST(LayerSelector, TypesAndNumbersMustBothMatch) {
  const Selected selected("layer_types: [fc1]\nlayer_numbers: [2]\n");
  EXPECT_TRUE(selected.matches("decoder.2.fc1"));
  EXPECT_FALSE(selected.matches("decoder.2.fc2"));
  EXPECT_FALSE(selected.matches("decoder.3.fc1"));
  EXPECT_FALSE(selected.matches("layers.2.gemm_2"));  // excluded by type: its two numbers are no error
}

TEST(LayerSelector, TheRegexAloneDecides) {
  const Selected selected("layer_types: [nothing]\nlayer_numbers: [99]\nlayer_name_regex_pattern: .*(fc1)\n");
  EXPECT_TRUE(selected.matches("decoder.1.mlp.fc1"));
  EXPECT_EQ(selected.messages(),
            "l:1:1: layer_types is ignored: layer_name_regex_pattern alone decides when it is given\n"
            "l:2:1: layer_numbers is ignored: layer_name_regex_pattern alone decides when it is given");
}

TEST(LayerSelector, ExactNamesDecideBeforeTheRegex) {
  const Selected selected("exact_layer_names: [a.fc1, b]\nlayer_name_regex_pattern: .*\n");
  EXPECT_TRUE(selected.matches("a.fc1"));
  EXPECT_FALSE(selected.matches("a.fc"));
  EXPECT_FALSE(selected.matches("c"));  // the reference raises here
  EXPECT_EQ(selected.messages(),
            "l:2:1: layer_name_regex_pattern is ignored: exact_layer_names alone decides when it is given");
}

TEST(LayerSelector, Errors) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[fc1]",
       "l:1:1: layers must be a mapping, found a list; allowed: layer_name_regex_pattern, layer_types, "
       "layer_numbers, exact_layer_names"},
      {"{}",
       "l:1:1: layers selects nothing; allowed: layer_name_regex_pattern, layer_types, layer_numbers, "
       "exact_layer_names"},
      {"layer_type: [a]", "l:1:1: unknown key \"layer_type\" in layers; did you mean \"layer_types\"?"},
      {"layer_types: [1]", "l:1:15: layer_types must be a list of strings, found an integer 1"},
      {"layer_types: []", "l:1:14: layer_types is empty: it selects no layer"},
      {"layer_types: ['']", "l:1:15: layer_types holds an empty string; write all to select every layer"},
      {"layer_types:", "l:1:1: layer_types must be a list of strings, found nothing"},
      {"layer_numbers: []", "l:1:16: layer_numbers is empty: it selects no layer"},
      {"layer_numbers: [1.5]",
       "l:1:17: layer_numbers takes integers, \"a-b\" ranges with a <= b, or all; found a number 1.5"},
      {"layer_numbers: [5-3]",
       "l:1:17: layer_numbers takes integers, \"a-b\" ranges with a <= b, or all; found a string \"5-3\""},
      {"layer_numbers: some",
       "l:1:16: layer_numbers takes integers, \"a-b\" ranges with a <= b, or all; found a string \"some\""},
      {"layer_name_regex_pattern: 5",
       "l:1:27: layer_name_regex_pattern must be a string, found an integer 5; quote it"},
      {"layer_name_regex_pattern: 'a('",
       "l:1:27: layer_name_regex_pattern: pattern \"a(\": missing closing parenthesis at offset 2"},
      {"exact_layer_names: {a: 1}", "l:1:20: exact_layer_names must be a list of strings, found a mapping"},
  };
  for (const auto& [yaml, expected] : cases) {
    const Selected selected(yaml);
    EXPECT_FALSE(selected.exists()) << yaml;
    EXPECT_EQ(selected.messages(), expected) << yaml;
  }
}

}  // namespace
}  // namespace amaxscope
