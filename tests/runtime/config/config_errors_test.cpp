// Every error of a config, with the exact text a user sees.
#include <gmock/gmock.h>

#include "tests/runtime/config/test_registry.hpp"

namespace amaxscope::test {
namespace {

struct Case {
  std::string yaml;
  std::string expected;
};

void check(const std::vector<Case>& cases) {
  for (const Case& test : cases) EXPECT_EQ(errors_of(test.yaml), test.expected) << test.yaml;
}

// One feature of transformer_engine, on line 5 from column 5 on.
Case feature(const std::string& text, const std::string& expected) {
  return {in_section("    " + text + "\n"), expected};
}

TEST(ConfigErrors, File) {
  check({
      {"[a, b]", "t.yaml:1:1: a config is a mapping of sections, found a list"},
      {"just text", "t.yaml:1:1: a config is a mapping of sections, found a string \"just text\""},
      {"s: {enabled: True, enabled: False}",
       "t.yaml:1:1: section \"s\" has no layers; say which layers it is about\n"
       "t.yaml:1:20: duplicate key \"enabled\"; it stands at line 1 already"},
      {"s: !!python/name:os.x {}",
       "t.yaml:1:4: tag \"!!python/name:os.x\" is not allowed here; a config holds plain "
       "values only"},
  });
}

TEST(ConfigErrors, Section) {
  const std::string rest =
      "  layers: {layer_types: [all]}\n  transformer_engine: {DisableQuantizationLayer: {enabled: True}}\n";
  check({
      {"s: 5",
       "t.yaml:1:4: section \"s\" must be a mapping, found an integer 5; it needs enabled, layers and the "
       "features"},
      {"s:",
       "t.yaml:1:1: section \"s\" must be a mapping, found nothing; it needs enabled, layers and the "
       "features"},
      {"s:\n" + rest, "t.yaml:1:1: section \"s\" has no enabled; write enabled: True or enabled: False"},
      {"s:\n  enabled: \"False\"\n" + rest,
       "t.yaml:2:12: enabled must be True or False, found a string \"False\"; write it without quotes"},
      {"s:\n  enabled: 1\n" + rest, "t.yaml:2:12: enabled must be True or False, found an integer 1"},
      {"s:\n  enabled:\n" + rest, "t.yaml:2:3: enabled must be True or False, found nothing"},
      {"s:\n  enabled: True\n  transformer_engine: {DisableQuantizationLayer: {enabled: True}}\n",
       "t.yaml:1:1: section \"s\" has no layers; say which layers it is about"},
      {"s:\n  enabled: True\n  layers: all\n",
       "t.yaml:3:11: layers must be a mapping, found a string \"all\"; allowed: layer_name_regex_pattern, "
       "layer_types, "
       "layer_numbers, exact_layer_names"},
      {"s:\n  enabled: True\n" + rest + "  layer_types: [x]\n",
       "t.yaml:5:3: \"layer_types\" stands under layers:"},
      {"s:\n  enabled: True\n" + rest + "  LogFp8TensorStats: {enabled: True}\n",
       "t.yaml:5:3: feature \"LogFp8TensorStats\" stands under transformer_engine:"},
      {"s:\n  enabled: True\n" + rest + "  LogTensorStat: {enabled: True}\n",
       "t.yaml:5:3: unknown key \"LogTensorStat\" in a section; did you mean \"LogTensorStats\"?"},
      {"s:\n  enabled: True\n" + rest + "  other: 1\n",
       "t.yaml:5:3: unknown key \"other\" in a section; allowed: enabled, layers, observe, "
       "transformer_engine, "
       "LogTensorStats"},
      {"s:\n  enabled: True\n  layers: {layer_types: [all]}\n  transformer_engine: [LogTensorStats]\n",
       "t.yaml:4:23: transformer_engine must be a mapping of features, found a list"},
      {"s:\n  enabled: True\n" + rest + "  observe: [a]\n",
       "t.yaml:5:12: observe must be a pattern in a string, found a list"},
      {"s:\n  enabled: True\n" + rest + "  observe: 'a['\n",
       "t.yaml:5:12: observe: pattern \"a[\": unterminated character set at offset 1"},
  });
}

TEST(ConfigErrors, Feature) {
  check({
      feature("LogTensorStat: {enabled: True}",
              "t.yaml:5:5: unknown feature \"LogTensorStat\"; did you mean \"LogTensorStats\"?"),
      feature("DisableFp8Gemm: {enabled: True}",
              "t.yaml:5:5: unknown feature \"DisableFp8Gemm\"; did you mean \"DisableFP8GEMM\"?"),
      feature(
          "Zzz: {enabled: True}",
          "t.yaml:5:5: unknown feature \"Zzz\"; allowed: DisableQuantizationGEMM, DisableQuantizationLayer, "
          "PerTensorScaling, FakeQuant, LogTensorStats, LogFp8TensorStats, Probe, DisableFP8GEMM, "
          "DisableFP8Layer"),
      feature("Probe: [a]",
              "t.yaml:5:12: Probe must be a mapping that begins with enabled: True, found a list"),
      feature("Probe:", "t.yaml:5:5: Probe must be a mapping that begins with enabled: True, found nothing"),
      feature("Probe: {tensors: [weight]}",
              "t.yaml:5:5: Probe has no enabled; write enabled: True or enabled: False"),
      feature("Probe: {enabled: 'True', tensors: [weight]}",
              "t.yaml:5:22: enabled must be True or False, found a string \"True\"; write it without quotes"),
      feature("LogTensorStats: {enabled: True, tensors: [weight], stats: [min], freqq: 2}",
              "t.yaml:5:70: unknown key \"freqq\" in LogTensorStats; did you mean \"freq\"?"),
      feature("LogTensorStats: {enabled: True, tensors: [weight], stats: [min], frequency: 2}",
              "t.yaml:5:70: unknown key \"frequency\" in LogTensorStats; did you mean \"freq\"?"),
      feature("LogTensorStats: {enabled: True, tensors: [weight], stat: [min]}",
              "t.yaml:5:5: LogTensorStats needs stats\n"
              "t.yaml:5:56: unknown key \"stat\" in LogTensorStats; did you mean \"stats\"?"),
      feature("DisableQuantizationGEMM: {enabled: True, gemms: [fprop], tensors: [weight]}",
              "t.yaml:5:62: unknown key \"tensors\" in DisableQuantizationGEMM; allowed: enabled, gemms, "
              "gemms_struct, freq, "
              "start_step, end_step, start_end_list"),
  });
}

TEST(ConfigErrors, BaseFeatureUnderTheNamespace) {
  FeatureRegistry registry = test_registry();
  registry.add({{.name = "OnlyBase", .doc = ""}, /*base_namespace=*/true, make_inert});
  try {
    (void)load_config(in_section("    OnlyBase: {enabled: True}\n"), "t.yaml", registry);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "t.yaml:5:5: feature \"OnlyBase\" stands in the section itself, not under transformer_engine");
  }
}

TEST(ConfigErrors, Lists) {
  check({
      feature("PerTensorScaling: {enabled: True, tensors: [weight]}",
              "t.yaml:5:5: PerTensorScaling needs gemms or gemms_struct"),
      feature("PerTensorScaling: {enabled: True, gemms: [fprop]}",
              "t.yaml:5:5: PerTensorScaling needs tensors or tensors_struct for fprop"),
      feature("PerTensorScaling: {enabled: True, gemms_struct: [{gemm: fprop}]}",
              "t.yaml:5:61: PerTensorScaling needs tensors or tensors_struct for fprop"),
      feature("LogTensorStats: {enabled: True, stats: [min]}",
              "t.yaml:5:5: LogTensorStats needs tensors or tensors_struct"),
      feature("Probe: {enabled: True, tensors: [gradients]}",
              "t.yaml:5:38: unknown tensor \"gradients\" in Probe; did you mean \"gradient\"?"),
      feature("Probe: {enabled: True, tensors: [bias]}",
              "t.yaml:5:38: unknown tensor \"bias\" in Probe; allowed: activation, weight, gradient, output, "
              "wgrad, dgrad"),
      feature("DisableQuantizationGEMM: {enabled: True, gemms: [fprob]}",
              "t.yaml:5:54: unknown GEMM \"fprob\" in DisableQuantizationGEMM; did you mean \"fprop\"?"),
      feature("Probe: {enabled: True, tensors: []}", "t.yaml:5:37: tensors is an empty list"),
      feature("Probe: {enabled: True, tensors: }",
              "t.yaml:5:28: tensors must be a list of names, found nothing"),
      feature("Probe: {enabled: True, tensors: {a: 1}}",
              "t.yaml:5:37: tensors must be a list of names, found a mapping"),
      feature("Probe: {enabled: True, tensors: [5]}",
              "t.yaml:5:38: tensors must be a list of names, found an integer 5"),
      feature("Probe: {enabled: True, tensors: [weight, weight]}",
              "t.yaml:5:46: weight is listed twice; it stands at line 5 already"),
      feature("DisableQuantizationGEMM: {enabled: True, gemms: [fprop, fprop]}",
              "t.yaml:5:61: fprop is listed twice; it stands at line 5 already"),
  });
}

TEST(ConfigErrors, Structs) {
  check({
      feature("Probe: {enabled: True, tensors_struct: [{sample: 2}]}",
              "t.yaml:5:45: an entry of tensors_struct needs the key tensor"),
      feature("Probe: {enabled: True, tensors_struct: [{tensor: 1}]}",
              "t.yaml:5:54: tensor must be a name, found an integer 1"),
      feature("Probe: {enabled: True, tensors_struct: [weight]}",
              "t.yaml:5:45: tensors_struct holds {tensor: name, ...} mappings, found a string \"weight\"; "
              "plain names "
              "stand in tensors"),
      feature("Probe: {enabled: True, tensors_struct: {tensor: weight}}",
              "t.yaml:5:44: tensors_struct must be a list of {tensor: name, ...} mappings, found a mapping"),
      feature("Probe: {enabled: True, tensors_struct: []}", "t.yaml:5:44: tensors_struct is an empty list"),
      feature("Probe: {enabled: True, tensors_struct: [{tensor: weight}, {tensor: weight}]}",
              "t.yaml:5:72: weight is listed twice; it stands at line 5 already"),
      feature("Probe: {enabled: True, tensors_struct: [{tensor: weight, enabled: True}]}",
              "t.yaml:5:62: enabled is not allowed in an entry of tensors_struct; it belongs to the whole "
              "feature"),
      feature("Probe: {enabled: True, tensors_struct: [{tensor: weight, sampl: 3}]}",
              "t.yaml:5:62: unknown key \"sampl\" in an entry of tensors_struct; did you mean \"sample\"?"),
      feature("PerTensorScaling: {enabled: True, gemms_struct: [{gemm: fprop, tensors: [weight]}, {gemm: "
              "fprop, tensors: "
              "[activation]}]}",
              "t.yaml:5:95: fprop is listed twice; it stands at line 5 already"),
      feature(
          "PerTensorScaling: {enabled: True, gemms_struct: [{gemm: fprop, tensors: [weight], enabled: "
          "False}]}",
          "t.yaml:5:87: enabled is not allowed in an entry of gemms_struct; it belongs to the whole feature"),
      feature("PerTensorScaling: {enabled: True, gemms_struct: [{tensors: [weight]}]}",
              "t.yaml:5:54: an entry of gemms_struct needs the key gemm"),
      feature("DisableQuantizationGEMM: {enabled: True, gemms_struct: [{gemm: fprop, tensors: [weight]}]}",
              "t.yaml:5:75: unknown key \"tensors\" in an entry of gemms_struct; allowed: gemm, freq, "
              "start_step, end_step, "
              "start_end_list"),
      feature("PerTensorScaling: {enabled: True, gemms_struct: [{gemm: wgrad, tensors: [gradient, weight]}]}",
              "t.yaml:5:88: weight takes no part in wgrad; its tensors: activation, gradient, wgrad"),
      feature("PerTensorScaling: {enabled: True, gemms_struct: [{gemm: dgrad, tensors_struct: [{tensor: "
              "activation}]}]}",
              "t.yaml:5:94: activation takes no part in dgrad; its tensors: weight, gradient, dgrad"),
  });
}

TEST(ConfigErrors, Values) {
  const std::string scaling =
      "PerTensorScaling: {enabled: True, gemms: [fprop], tensors: [weight], ";  // 71 columns
  const std::string probe = "Probe: {enabled: True, tensors: [weight], ";       // 46 columns
  check({
      feature(scaling + "margin: a}", "t.yaml:5:82: margin must be a number, found a string \"a\""),
      feature(scaling + "margin: .nan}", "t.yaml:5:82: margin must be a finite number, found .nan"),
      feature(scaling + "margin: }", "t.yaml:5:74: margin must be a number, found nothing"),
      feature(scaling + "amax_scope: tensors}",
              "t.yaml:5:86: unknown amax_scope \"tensors\" in PerTensorScaling; did you mean \"tensor\"?"),
      feature(scaling + "amax_scope: 5}",
              "t.yaml:5:86: amax_scope must be a string, found an integer 5; quote it if text is meant"),
      feature(scaling + "skip_unsupported: 'no'}",
              "t.yaml:5:92: skip_unsupported must be True or False, found a string \"no\"; write it without "
              "quotes"),
      feature(probe + "sample: 0}", "t.yaml:5:55: sample must be 1 or more, found 0"),
      feature(probe + "sample: '5'}",
              "t.yaml:5:55: sample must be an integer, found a string \"5\"; write it without quotes"),
      feature(probe + "sample: 5.0}", "t.yaml:5:55: sample must be an integer, found a number 5"),
      feature(probe + "sample: 1:30}",
              "t.yaml:5:55: \"1:30\" is a base-60 number in YAML; quote it if text is meant"),
      feature(probe + "checks: [I1, I4]}",
              "t.yaml:5:60: unknown checks \"I4\" in Probe; did you mean \"I1\"?"),
      feature(probe + "checks: []}", "t.yaml:5:55: checks is an empty list"),
      feature(probe + "checks: {a: 1}}", "t.yaml:5:55: checks must be a list of strings, found a mapping"),
      feature("FakeQuant: {enabled: True, gemms: [fprop], tensors: [weight]}",
              "t.yaml:5:5: FakeQuant needs quant_format; allowed: FP8E4M3, FP8E5M2"),
      feature("FakeQuant: {enabled: True, gemms: [fprop], tensors_struct: [{tensor: weight}, {tensor: "
              "activation, "
              "quant_format: FP8E4M3}]}",
              "t.yaml:5:74: FakeQuant needs quant_format; allowed: FP8E4M3, FP8E5M2"),
      feature("FakeQuant: {enabled: True, gemms: [fprop], tensors: [weight], quant_format: E4M3}",
              "t.yaml:5:81: unknown quant_format \"E4M3\" in FakeQuant; allowed: FP8E4M3, FP8E5M2"),
  });
}

TEST(ConfigErrors, Statistics) {
  const std::string log = "LogTensorStats: {enabled: True, tensors: [weight], stats: ";  // 62 columns
  const std::string fp8 = "LogFp8TensorStats: {enabled: True, tensors: [weight], stats: ";
  check({
      feature(log + "[means]}",
              "t.yaml:5:64: unknown statistic \"means\" in LogTensorStats; did you mean \"mean\"?"),
      feature(log + "[]}", "t.yaml:5:63: stats is an empty list: there is nothing to do"),
      feature(log + "}", "t.yaml:5:56: stats must be a list of statistics, found nothing"),
      feature(log + "5}", "t.yaml:5:63: stats must be a list of statistics, found an integer 5"),
      feature(log + "[5]}", "t.yaml:5:64: stats holds names of statistics, found an integer 5"),
      feature(log + "[{max_blockwise_dynamic_range: , block_size: 32}]}",
              "t.yaml:5:64: a statistic with parameters is written {name: {parameter: value}}, found a "
              "mapping of 2 keys; "
              "are the parameters indented below the name?"),
      feature(log + "[{max_blockwise_dynamic_range: {block: 32}}]}",
              "t.yaml:5:95: unknown parameter \"block\" of max_blockwise_dynamic_range; did you mean "
              "\"block_size\"?"),
      feature(log + "[{max_blockwise_dynamic_range: {block_size: 0}}]}",
              "t.yaml:5:107: block_size must be 1 or more, found 0"),
      feature(log + "[{max_blockwise_dynamic_range: {dims: 3}}]}",
              "t.yaml:5:101: unknown dims 3 in max_blockwise_dynamic_range; did you mean \"1\"?"),
      feature(
          log + "[{max_blockwise_dynamic_range: 32}]}",
          "t.yaml:5:94: parameters of max_blockwise_dynamic_range must be a mapping, found an integer 32"),
      feature(log + "[{mean: {a: 1}}]}", "t.yaml:5:71: statistic \"mean\" takes no parameters"),
      feature(log + "[histogram]}", "t.yaml:5:64: statistic \"histogram\" needs the parameter bins"),
      feature(log + "[{histogram: {}}]}", "t.yaml:5:76: statistic \"histogram\" needs the parameter bins"),
      feature(fp8 + "[underflows]}",
              "t.yaml:5:67: unknown statistic \"underflows\" in LogFp8TensorStats; did you mean "
              "\"underflows%\"?"),
      feature(fp8 + "[fp8_current_scaling_mse_columnwise]}",
              "t.yaml:5:67: statistic \"fp8_current_scaling_mse_columnwise\" in LogFp8TensorStats: "
              "per-tensor recipes have "
              "no columnwise statistics"),
      feature(fp8 + "[{mxfp8_mse: {a: 1}}]}", "t.yaml:5:68: statistic \"mxfp8_mse\" takes no parameters"),
  });
}

TEST(ConfigErrors, Schedules) {
  const std::string probe = "Probe: {enabled: True, tensors: [weight], ";  // 46 columns
  check({
      feature(probe + "freq: 0}", "t.yaml:5:53: freq must be 1 or more, found 0"),
      feature(probe + "freq: }", "t.yaml:5:47: freq must be an integer, found nothing"),
      feature(probe + "start_step: -1}", "t.yaml:5:59: start_step must be 0 or more, found -1"),
      feature(probe + "end_step: -2}", "t.yaml:5:57: end_step must be -1 or more, found -2"),
      feature(probe + "start_step: 10, end_step: 5}",
              "t.yaml:5:73: the end 5 is before the start 10; -1 means no end"),
      feature(probe + "start_end_list: [[0, 5], [5, 9]]}",
              "t.yaml:5:72: [5, 9] overlaps [0, 5]; both ends are included"),
      feature(probe + "start_end_list: [[0, -1], [5, 9]]}",
              "t.yaml:5:73: [5, 9] overlaps [0, -1]; both ends are included"),
      feature(probe + "start_end_list: [[9, 5]]}",
              "t.yaml:5:64: the end 5 is before the start 9; -1 means no end"),
      feature(probe + "start_end_list: [[-3, 5]]}", "t.yaml:5:64: [-3, 5] starts before iteration 0"),
      feature(probe + "start_end_list: [[1, 2, 3]]}",
              "t.yaml:5:64: start_end_list holds [start, end] pairs of integers, found a list of 3"),
      feature(probe + "start_end_list: [[1, a]]}",
              "t.yaml:5:64: start_end_list holds [start, end] pairs of integers, found a list of 2"),
      feature(probe + "start_end_list: [1, 2]}",
              "t.yaml:5:64: start_end_list holds [start, end] pairs of integers, found an integer 1\n"
              "t.yaml:5:67: start_end_list holds [start, end] pairs of integers, found an integer 2"),
      feature(probe + "start_end_list: []}", "t.yaml:5:63: start_end_list is an empty list"),
      feature(probe + "start_end_list: 5}",
              "t.yaml:5:63: start_end_list must be a list of [start, end] pairs, found an integer 5"),
      // Contradictions between levels are reported where the end stands.
      feature("Probe: {enabled: True, start_step: 50, tensors_struct: [{tensor: weight, end_step: 20}]}",
              "t.yaml:5:88: the end 20 is before the start 50; -1 means no end"),
  });
}

TEST(ConfigErrors, Observe) {
  check({
      {"s:\n  enabled: True\n  observe: a\n  transformer_engine:\n    PerTensorScaling: {enabled: True}\n",
       "t.yaml:5:5: PerTensorScaling acts on GEMMs, and a section with observe alone has none; give layers"},
      {"s:\n  enabled: True\n  observe: a\n  transformer_engine:\n    LogTensorStats: {enabled: True}\n",
       "t.yaml:5:5: LogTensorStats needs stats"},
  });
}

TEST(ConfigErrors, DisabledPartsAreCheckedToo) {
  check({
      {"s:\n  enabled: False\n  layers: {layer_type: [a]}\n  transformer_engine:\n"
       "    LogTensorStats: {enabled: True, tensors: [wieght], stats: [man], freqq: 1}\n",
       "t.yaml:3:12: unknown key \"layer_type\" in layers; did you mean \"layer_types\"?\n"
       "t.yaml:5:47: unknown tensor \"wieght\" in LogTensorStats; did you mean \"weight\"?\n"
       "t.yaml:5:64: unknown statistic \"man\" in LogTensorStats; did you mean \"min\"?\n"
       "t.yaml:5:70: unknown key \"freqq\" in LogTensorStats; did you mean \"freq\"?"},
      feature("Probe: {enabled: False, tensors: [weight], sample: 0}",
              "t.yaml:5:56: sample must be 1 or more, found 0"),
  });
}

TEST(ConfigErrors, AllErrorsOfAFileAtOnceInItsOrder) {
  EXPECT_EQ(
      errors_of(R"(one:
  enabled: "True"
  layers:
    layer_name_regex_pattern: "*x"
  transformer_engine:
    FakeQuant:
      enabled: True
      gemms: [fprop, fpropp]
      tensors: [weight]
      freq: 0
    Nothing: {}
two:
  layers: {layer_numbers: [x]}
  enabled: True
  LogTensorStats:
    enabled: True
    tensors: [any]
    stats: [cur_amax]
    start_step: 3
    end_step: 2
)"),
      "t.yaml:2:12: enabled must be True or False, found a string \"True\"; write it without quotes\n"
      "t.yaml:4:31: layer_name_regex_pattern: pattern \"*x\": quantifier does not follow a repeatable item "
      "at offset 0\n"
      "t.yaml:6:5: FakeQuant needs quant_format; allowed: FP8E4M3, FP8E5M2\n"
      "t.yaml:8:22: unknown GEMM \"fpropp\" in FakeQuant; did you mean \"fprop\"?\n"
      "t.yaml:10:13: freq must be 1 or more, found 0\n"
      "t.yaml:11:5: unknown feature \"Nothing\"; allowed: DisableQuantizationGEMM, DisableQuantizationLayer, "
      "PerTensorScaling, FakeQuant, LogTensorStats, LogFp8TensorStats, Probe, DisableFP8GEMM, "
      "DisableFP8Layer\n"
      "t.yaml:13:28: layer_numbers takes integers, \"a-b\" ranges with a <= b, or all; found a string \"x\"\n"
      "t.yaml:18:13: unknown statistic \"cur_amax\" in LogTensorStats; allowed: min, max, mean, std, "
      "l1_norm, l2_norm\n"
      "t.yaml:20:15: the end 2 is before the start 3; -1 means no end");
}

}  // namespace
}  // namespace amaxscope::test
