#include "features/dump_tensors.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "features/builtin.hpp"
#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/session.hpp"
#include "tests/runtime/storage/storage_fixture.hpp"

namespace amaxscope {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::view_bytes;

std::string yaml(const std::string& keys,
                 const std::string& tensors = "[activation, weight, gradient, output]") {
  return "dump:\n  enabled: True\n  layers: {layer_types: [all]}\n  observe: stream\n  transformer_engine:\n"
         "    DumpTensors: {enabled: True, tensors: " +
         tensors + ", " + keys + "}\n";
}

class DumpTensorsTest : public testing::StorageTest {
 protected:
  void open(const std::string& config, std::int64_t first_iteration = 0) {
    session_.reset();
    SessionOptions options;
    options.config_text = config;
    options.log_dir = folder_;
    options.first_iteration = first_iteration;
    session_ = std::make_unique<DebugSession>(registry_, SessionGroups{}, options);
  }
  LayerHandle layer(const std::string& name, RecipeKind recipe = RecipeKind::kNone) {
    LayerDescription description;
    description.name = name;
    description.recipe = recipe;
    OperandQuantizers parents;
    if (recipe != RecipeKind::kNone) {
      parents.activation = current(DType::kE4M3);
      parents.weight = current(DType::kE4M3);
      parents.gradient = current(DType::kE5M2);
    }
    return session_->layer(description, parents);
  }
  static std::shared_ptr<Quantizer> current(DType format) {
    return std::make_shared<Float8CurrentScalingQuantizer>(format, CurrentScalingOptions{}, ReduceAmaxes{});
  }
  static void feed(const LayerHandle& handle, TensorKind tensor, const TensorView& x,
                   TensorMoment moment = {}) {
    DebugQuantizer* quantizer = handle.quantizer(tensor);
    if (quantizer != nullptr) static_cast<void>(quantizer->quantize(x, {true, true}, moment));
  }
  [[nodiscard]] std::string path(std::int64_t iteration, const std::string& name) const {
    return (folder_ / "tensor_dumps" / "rank_0" / dump_iteration_folder(iteration) / (name + ".safetensors"))
        .string();
  }
  [[nodiscard]] std::vector<nlohmann::json> manifest() const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(read("tensor_dumps/rank_0/manifest.jsonl"));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  [[nodiscard]] std::size_t dumped() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "tensor_dumps")) {
      count += static_cast<std::size_t>(entry.path().extension() == ".safetensors");
    }
    return count;
  }
  [[nodiscard]] std::size_t count_status(const std::string& status) const {
    std::size_t count = 0;
    for (const nlohmann::json& line : manifest())
      count += static_cast<std::size_t>(line.at("status") == status);
    return count;
  }

  FeatureRegistry registry_ = builtin_features();
  std::unique_ptr<DebugSession> session_;
};

TEST_F(DumpTensorsTest, WritesTheTensorItsCodesAndWhatTheyAre) {
  open(yaml("high_precision_tensor: True, quantized_tensor: True"));
  const LayerHandle handle = layer("decoder.layers.2.fc1", RecipeKind::kCurrent);
  const Tensor x = Tensor::of<float>({1, -2, 448, 0.5F, 3, 7}, Shape{1, 2, 3});
  feed(handle, TensorKind::kActivation, x, {.phase = Phase::kForward, .microbatch = 1});

  const SafetensorsFile file(path(0, "decoder.layers.2.fc1.activation.mb1.forward"));
  EXPECT_EQ(view_bytes(file.read(file.at("high_precision"))), view_bytes(x));
  EXPECT_EQ(file.at("high_precision").shape(), Shape({1, 2, 3}));
  // amax 448: scale 1, so the codes are those of the values. 1 0x38, -2 0xC0, 448 0x7E, 0.5 0x30, 3 0x44, 7
  // 0x4E.
  EXPECT_EQ(file.at("rowwise").dtype, DType::kE4M3);
  EXPECT_EQ(view_bytes(file.read(file.at("rowwise"))), "\x38\xC0\x7E\x30\x44\x4E");
  EXPECT_EQ(file.at("columnwise").shape(), Shape({3, 2}));
  EXPECT_EQ(view_bytes(file.read(file.at("columnwise"))), "\x38\x30\xC0\x44\x7E\x4E");
  EXPECT_THAT(file.read(file.at("rowwise_scale_inv")).values<float>(), ElementsAre(1.0F));
  EXPECT_THAT(file.read(file.at("columnwise_scale_inv")).values<float>(), ElementsAre(1.0F));

  const std::map<std::string, std::string>& metadata = file.metadata();
  const std::map<std::string, std::string> wanted = {{"layer", "decoder.layers.2.fc1"},
                                                     {"tensor", "activation"},
                                                     {"iteration", "0"},
                                                     {"microbatch", "1"},
                                                     {"phase", "forward"},
                                                     {"rank", "0"},
                                                     {"layout", "replicated"},
                                                     {"tp_ranks", "0"},
                                                     {"recipe", "current"},
                                                     {"format", "e4m3"},
                                                     {"shape", "1,2,3"},
                                                     {"rowwise_format", "e4m3"},
                                                     {"columnwise_format", "e4m3"}};
  for (const auto& [key, value] : wanted) EXPECT_EQ(metadata.at(key), value) << key;

  ASSERT_EQ(manifest().size(), 1U);
  EXPECT_EQ(manifest()[0]["file"], "iter_000000/decoder.layers.2.fc1.activation.mb1.forward.safetensors");
  EXPECT_EQ(manifest()[0]["bytes"], 24 + 6 + 6 + 4 + 4);
}

TEST_F(DumpTensorsTest, DirectionsThatStayedInHighPrecisionAreWrittenAsThey) {
  open(yaml("quantized_tensor: True") +
       "keep:\n  enabled: True\n  layers: {layer_types: [all]}\n  transformer_engine:\n"
       "    DisableQuantizationGEMM: {enabled: True, gemms: [wgrad]}\n");
  const LayerHandle handle = layer("fc1", RecipeKind::kCurrent);
  const Tensor x = Tensor::of<float>({1, 448}, Shape{1, 2});
  feed(handle, TensorKind::kActivation, x);
  const SafetensorsFile file(path(0, "fc1.activation.mb0.forward"));
  EXPECT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(view_bytes(file.read(file.at("rowwise"))), "\x38\x7E");
  EXPECT_EQ(view_bytes(file.read(file.at("columnwise_high_precision"))), view_bytes(x));
  EXPECT_EQ(file.metadata().at("columnwise_format"), "f32");
}

TEST_F(DumpTensorsTest, ResultsAndObservedTensorsAreWrittenAsTheyAre) {
  open(yaml("high_precision_tensor: True, quantized_tensor: True"));
  const LayerHandle handle = layer("fc1", RecipeKind::kCurrent);
  Tensor y = Tensor::of<float>({5, 6}, Shape{1, 2});
  handle.quantizer(TensorKind::kOutput)->process_gemm_output(y, {});
  session_->observe("stream.1", "residual", y, Layout::kReplicated, {.phase = Phase::kEval, .microbatch = 2});
  session_->observe("elsewhere", "residual", y, Layout::kReplicated);
  EXPECT_EQ(SafetensorsFile(path(0, "fc1.output.mb0.forward")).tensors().size(), 1U);
  const SafetensorsFile observed(path(0, "stream.1.residual.mb2.eval"));
  EXPECT_THAT(observed.read(observed.at("high_precision")).values<float>(), ElementsAre(5, 6));
  EXPECT_EQ(observed.metadata().at("observed"), "true");
  EXPECT_EQ(dumped(), 2U);
}

TEST_F(DumpTensorsTest, CodesAloneOfWhatHasNoneAreAskedForInVain) {
  open(yaml("quantized_tensor: True"));
  const LayerHandle handle = layer("fc1");
  EXPECT_EQ(handle.quantizer(TensorKind::kOutput), nullptr);
  EXPECT_THAT(read("nvdlfw_inspect_logs/nvdlfw_inspect_globalrank-0.log"),
              HasSubstr("output is not quantized; high_precision_tensor would write it"));
}

// cases.md 38: 10 tensors of 256 KiB under a budget of 1 MiB.
TEST_F(DumpTensorsTest, TheBudgetLetsFourOfTenThrough) {
  open(yaml("high_precision_tensor: True, max_bytes_per_rank: 1048576"));
  const Tensor x(DType::kF32, Shape{256, 256});
  std::vector<LayerHandle> handles;
  for (int i = 0; i < 10; ++i) handles.push_back(layer("layer." + std::to_string(i)));
  for (const LayerHandle& handle : handles) feed(handle, TensorKind::kActivation, x);
  session_->step();
  session_->close();
  EXPECT_EQ(dumped(), 4U);
  EXPECT_EQ(count_status("written"), 4U);
  EXPECT_EQ(count_status("skipped"), 6U);
  EXPECT_EQ(manifest().back()["skipped"], 6);
  EXPECT_EQ(manifest().back()["why"], "max_bytes_per_rank");
  EXPECT_EQ(manifest().back()["layer"], "layer.9");
  // Said once.
  const std::string log = read("nvdlfw_inspect_logs/nvdlfw_inspect_globalrank-0.log");
  const std::size_t first = log.find("would go over max_bytes_per_rank 1048576");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(log.find("would go over", first + 1), std::string::npos);
}

TEST_F(DumpTensorsTest, WhatFitsIsWrittenAfterSomethingThatDidNot) {
  open(yaml("high_precision_tensor: True, max_bytes_per_rank: 100"));
  const LayerHandle handle = layer("fc1");
  feed(handle, TensorKind::kActivation, Tensor(DType::kF32, Shape{5, 6}));  // 120 bytes
  feed(handle, TensorKind::kWeight, Tensor(DType::kF32, Shape{5, 5}));      // 100 bytes
  EXPECT_EQ(count_status("skipped"), 1U);
  EXPECT_EQ(count_status("written"), 1U);
}

TEST_F(DumpTensorsTest, NamesOfAnyKindGetAFileEachAndStayInside) {
  open(yaml("high_precision_tensor: True"));
  const std::vector<std::string> names = {
      "a/b",          "a b",  "..", "../../outside", std::string(300, 'n'), std::string(300, 'n') + "m",
      "\xE6\x97\xA5", "a%2Fb"};
  std::map<std::string, float> expected;
  float value = 1;
  for (const std::string& name : names) {
    const LayerHandle handle = layer(name);
    for (const int microbatch : {0, 1}) {
      for (const Phase phase : {Phase::kForward, Phase::kRecompute, Phase::kEval}) {
        feed(handle, TensorKind::kActivation, Tensor::of<float>({value}, Shape{1}), {phase, microbatch});
        expected[name + "|" + std::to_string(microbatch) + "|" + std::string(to_string(phase))] = value++;
      }
    }
  }
  const std::vector<nlohmann::json> lines = manifest();
  ASSERT_EQ(lines.size(), expected.size());
  std::set<std::string> files;
  for (const nlohmann::json& line : lines) {
    files.insert(line["file"]);
    const std::filesystem::path file = folder_ / "tensor_dumps/rank_0" / line["file"].get<std::string>();
    const SafetensorsFile opened(file);
    const std::string key = line["layer"].get<std::string>() + "|" +
                            std::to_string(line["microbatch"].get<int>()) + "|" +
                            line["phase"].get<std::string>();
    EXPECT_THAT(opened.read(opened.at("high_precision")).values<float>(), ElementsAre(expected.at(key)))
        << key;
    EXPECT_EQ(opened.metadata().at("layer"), line["layer"]);
    EXPECT_EQ(std::filesystem::canonical(file).parent_path(),
              std::filesystem::canonical(folder_ / "tensor_dumps/rank_0/iter_000000"));
  }
  EXPECT_EQ(files.size(), expected.size());
  EXPECT_EQ(dumped(), expected.size());
  EXPECT_FALSE(std::filesystem::exists(folder_.parent_path() / "outside"));
}

TEST_F(DumpTensorsTest, TheSameTensorTwiceAtOneMomentIsTwoFiles) {
  open(yaml("high_precision_tensor: True"));
  const LayerHandle handle = layer("tied");
  feed(handle, TensorKind::kActivation, Tensor::of<float>({1}, Shape{1}));
  feed(handle, TensorKind::kActivation, Tensor::of<float>({2}, Shape{1}));
  const SafetensorsFile second(path(0, "tied.activation.mb0.forward.1"));
  EXPECT_THAT(second.read(second.at("high_precision")).values<float>(), ElementsAre(2));
  EXPECT_EQ(second.metadata().at("occurrence"), "1");
}

TEST_F(DumpTensorsTest, IsDueByItsSchedule) {
  open(yaml("high_precision_tensor: True, freq: 2, start_step: 1, end_step: -1"));
  const LayerHandle handle = layer("fc1");
  for (int i = 0; i < 6; ++i) {
    feed(handle, TensorKind::kActivation, Tensor::of<float>({static_cast<float>(i)}, Shape{1}));
    session_->step();
  }
  std::vector<std::int64_t> iterations;
  for (const nlohmann::json& line : manifest()) iterations.push_back(line["iteration"]);
  EXPECT_THAT(iterations, ElementsAre(2, 4));
}

TEST_F(DumpTensorsTest, ARestartGoesOnWithoutRepeating) {
  const std::string config = yaml("high_precision_tensor: True, max_bytes_per_rank: 16");
  open(config);
  const auto run = [&](std::int64_t from, std::int64_t to, float value) {
    const LayerHandle handle = layer("fc1");
    for (std::int64_t i = from; i < to; ++i) {
      feed(handle, TensorKind::kActivation, Tensor::of<float>({value + static_cast<float>(i)}, Shape{1}));
      session_->step();
    }
  };
  run(0, 3, 0);
  open(config, 2);  // the checkpoint was one iteration older than the end
  run(2, 5, 100);
  std::vector<std::string> seen;
  for (const nlohmann::json& line : manifest()) {
    seen.push_back(line["iteration"].dump() + line["status"].get<std::string>());
  }
  // Four bytes each: the fifth is over the budget of 16, which holds for the folder.
  EXPECT_THAT(seen, ElementsAre("0written", "1written", "2written", "3written", "4skipped"));
  const SafetensorsFile kept(path(2, "fc1.activation.mb0.forward"));
  EXPECT_THAT(kept.read(kept.at("high_precision")).values<float>(), ElementsAre(2));
}

TEST_F(DumpTensorsTest, ADiskThatRefusesEndsNothing) {
  open(yaml("high_precision_tensor: True"));
  const LayerHandle handle = layer("fc1");
  // A file stands where the folder of the iteration would be.
  std::filesystem::create_directories(folder_ / "tensor_dumps/rank_0");
  write("tensor_dumps/rank_0/iter_000000", "");
  const Tensor x = Tensor::of<float>({1}, Shape{1});
  feed(handle, TensorKind::kActivation, x);
  feed(handle, TensorKind::kWeight, x);
  session_->step();
  feed(handle, TensorKind::kActivation, x);
  EXPECT_FALSE(session_->detached());
  EXPECT_EQ(count_status("failed"), 2U);
  EXPECT_EQ(count_status("written"), 1U);
  EXPECT_THAT(manifest()[0]["why"].get<std::string>(), HasSubstr("cannot be made"));
  const std::string log = read("nvdlfw_inspect_logs/nvdlfw_inspect_globalrank-0.log");
  const std::size_t first = log.find("the training goes on without this file");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(log.find("the training goes on", first + 1), std::string::npos);
}

TEST_F(DumpTensorsTest, ObservingChangesNoByteAndAnEmptyTensorIsAFile) {
  open(yaml("high_precision_tensor: True, quantized_tensor: True"));
  const LayerHandle handle = layer("fc1", RecipeKind::kCurrent);
  const Tensor x = Tensor::of<float>({1, 2, 3, 4}, Shape{2, 2});
  const Tensor before = x.clone();
  const auto dumped_operand = handle.quantizer(TensorKind::kActivation)->quantize(x, {true, true}, {});
  const auto plain = current(DType::kE4M3)->quantize(x, {true, true}, {});
  EXPECT_EQ(view_bytes(x), view_bytes(before));
  for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
    EXPECT_EQ(view_bytes(dumped_operand->operand(direction).data),
              view_bytes(plain->operand(direction).data));
  }
  feed(handle, TensorKind::kGradient, TensorView(nullptr, DType::kF32, Shape{0, 8}), {Phase::kBackward, 0});
  const SafetensorsFile file(path(0, "fc1.gradient.mb0.backward"));
  EXPECT_EQ(file.at("high_precision").shape(), Shape({0, 8}));
}

TEST_F(DumpTensorsTest, RefusesAConfigThatWritesNothing) {
  const auto refusal = [&](const std::string& config) { return testing::error_of([&] { open(config); }); };
  EXPECT_THAT(refusal(yaml("freq: 2")),
              AllOf(HasSubstr("config: "), HasSubstr("DumpTensors"),
                    HasSubstr("set high_precision_tensor or quantized_tensor to True")));
  EXPECT_THAT(refusal(yaml("high_precision_tensor: True, max_bytes_per_rank: 0")),
              HasSubstr("max_bytes_per_rank"));
  EXPECT_THAT(refusal("s:\n  enabled: True\n  layers: {layer_types: [all]}\n  transformer_engine:\n"
                      "    DumpTensors:\n      enabled: True\n      high_precision_tensor: True\n"
                      "      tensors_struct: [{tensor: weight, max_bytes_per_rank: 5}]\n"),
              HasSubstr("max_bytes_per_rank is for all tensors together"));
}

TEST_F(DumpTensorsTest, WithoutALogDirectoryNothingIsWritten) {
  SessionOptions options;
  options.config_text = yaml("high_precision_tensor: True");
  session_ = std::make_unique<DebugSession>(registry_, SessionGroups{}, options);
  feed(layer("fc1"), TensorKind::kActivation, Tensor::of<float>({1}, Shape{1}));
  session_->step();
  EXPECT_EQ(files(), 0U);
}

}  // namespace
}  // namespace amaxscope
