// A session that was saved and loaded goes on bit-equal to one that was not stopped: random streams of
// features, histories of what-ifs, what statistics remember of earlier iterations.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "core/error.hpp"
#include "features/builtin.hpp"
#include "runtime/session.hpp"
#include "runtime/sinks/file_sinks.hpp"
#include "runtime/storage/safetensors.hpp"

namespace amaxscope {
namespace {

constexpr const char* kConfig = R"(
override:
  enabled: true
  layers: {layer_types: [a.fc1]}
  transformer_engine:
    RecipeOverride: {enabled: true, recipe: nvfp4, gemms: [fprop, dgrad, wgrad], tensors: [activation, weight, gradient]}
fake:
  enabled: true
  layers: {layer_types: [b.fc1]}
  transformer_engine:
    FakeQuant: {enabled: true, quant_format: NVFP4, gemms: [dgrad, wgrad], tensors: [gradient]}
watch:
  enabled: true
  layers: {layer_types: [all]}
  observe: .*
  transformer_engine:
    LogTensorStats: {enabled: true, tensors: [gradient], stats: [{outlier_channels: {top: 1}}]}
    LogFp8TensorStats:
      enabled: true
      tensors: [gradient]
      stats: [fp8_current_scaling_scale_age, fp8_current_scaling_rounding_correlation, fp8_delayed_scaling_mse]
)";

/// 1 to 2 with a column that stands out; the largest element, and so the current scale, never changes.
Tensor values_of(std::int64_t iteration) {
  Tensor x(DType::kF32, {32, 32});
  for (std::size_t i = 0; i < 1024; ++i) {
    x.values<float>()[i] =
        1.0F +
        std::fmod(0.6180339887F * static_cast<float>(i + 37 * static_cast<std::size_t>(iteration)), 1.0F);
    if (i % 32 == 5) x.values<float>()[i] = 8.0F;
  }
  return x;
}

struct Seen {
  std::vector<std::vector<float>> values;  ///< what the GEMMs get of each gradient, both directions
  std::vector<StatRecord> records;
};

class Restart : public ::testing::Test {
 protected:
  Restart()
      : folder_(std::filesystem::temp_directory_path() / fmt::format("amaxscope_restart_{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~Restart() override { std::filesystem::remove_all(folder_); }

  /// Iterations first .. last of a session, from what is in the folder when it is not the first
  /// one and load is wanted.
  void run(std::int64_t first, std::int64_t last, Seen& seen, bool load = true) const {
    SessionOptions options;
    options.first_iteration = first;
    options.config_text = kConfig;
    options.extra_sinks.push_back(
        make_callback_sink([&](const StatRecord& record) { seen.records.push_back(record); }));
    const FeatureRegistry registry = builtin_features();
    DebugSession session(registry, {}, options);
    std::vector<LayerHandle> handles;
    for (const char* name : {"a.fc1", "b.fc1"}) {
      LayerDescription layer;
      layer.name = name;
      handles.push_back(session.layer(layer));
    }
    if (first != 0 && load) session.load_state(folder_);
    ASSERT_EQ(session.iteration(), first);
    for (std::int64_t iteration = first; iteration <= last; ++iteration) {
      const Tensor x = values_of(iteration);
      for (const LayerHandle& handle : handles) {
        const auto made =
            handle.quantizer(TensorKind::kGradient)
                ->quantize(x.view(), {.rowwise = true, .columnwise = true}, {.phase = Phase::kBackward});
        for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
          const Tensor decoded = made->dequantize(DType::kF32, direction);
          seen.values.emplace_back(decoded.values<float>().begin(), decoded.values<float>().end());
        }
      }
      session.observe("residual.1", "residual", x.view(),
                      Layout::kReplicated);  // registers itself after the load
      session.step();
    }
    session.save_state(folder_);
  }

  std::filesystem::path folder_;
};

double stat(const Seen& seen, std::int64_t iteration, const std::string& layer, const std::string& name) {
  for (const StatRecord& record : seen.records) {
    if (record.iteration != iteration || record.layer != layer) continue;
    for (const StatValue& value : record.stats) {
      if (value.name == name) return value.value;
    }
  }
  return std::nan("");
}

TEST_F(Restart, GoesOnAsIfItHadNotStopped) {
  Seen whole;
  run(0, 5, whole);
  Seen parts;
  run(0, 2, parts);
  run(3, 5, parts);
  EXPECT_EQ(parts.values, whole.values) << "NVFP4's stochastic rounding goes on where it was";
  ASSERT_EQ(parts.records.size(), whole.records.size());
  for (std::size_t i = 0; i < whole.records.size(); ++i) {
    const StatRecord& expected = whole.records[i];
    const StatRecord& found = parts.records[i];
    SCOPED_TRACE(fmt::format("{} {} at {}", expected.layer, expected.tensor, expected.iteration));
    EXPECT_EQ(found.layer, expected.layer);
    ASSERT_EQ(found.stats.size(), expected.stats.size());
    for (std::size_t s = 0; s < expected.stats.size(); ++s) {
      EXPECT_EQ(found.stats[s].name, expected.stats[s].name);
      EXPECT_EQ(found.stats[s].value, expected.stats[s].value) << expected.stats[s].name;
    }
  }
  EXPECT_EQ(stat(parts, 5, "a.fc1", "outlier_channel_1_due_steps"), 6)
      << "iterations 0 to 5, over the restart";
  EXPECT_EQ(stat(parts, 5, "residual.1", "outlier_channel_1_due_steps"), 6);
  EXPECT_EQ(stat(parts, 5, "a.fc1", "fp8_current_scaling_scale_age"), 5);
  EXPECT_FALSE(std::isnan(stat(parts, 3, "a.fc1", "fp8_current_scaling_rounding_correlation")));
  // Without the saved state it is another run: the comparison above can fail.
  Seen forgotten;
  run(3, 3, forgotten, /*load=*/false);
  constexpr std::size_t kIn = 4;  // values of an iteration: two layers, two directions
  for (std::size_t i = 0; i < kIn; ++i) EXPECT_NE(forgotten.values[i], whole.values[3 * kIn + i]) << i;
}

TEST_F(Restart, AHostileStateIsBadInput) {
  Seen seen;
  run(0, 0, seen);
  const std::filesystem::path file = folder_ / "amaxscope_session_rank_0.safetensors";
  const SafetensorsFile sound(file);
  std::map<std::string, std::string> metadata = sound.metadata();
  std::vector<Tensor> values;
  std::vector<NamedTensor> tensors;
  for (const StoredTensor& tensor : sound.tensors()) {
    values.push_back(sound.read(tensor));
    tensors.push_back({tensor.name, {}});
  }
  for (std::size_t i = 0; i < values.size(); ++i) tensors[i].view = values[i].view();
  const auto refusal = [&] {
    write_safetensors(file, tensors, metadata);
    try {
      Seen ignored;
      run(1, 1, ignored);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInput);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  for (const char* iteration : {"", "x", "-1", "1x", "0x1", "9223372036854775808", "1e3", " 1"}) {
    metadata["iteration"] = iteration;
    EXPECT_THAT(refusal(),
                ::testing::HasSubstr(fmt::format("iteration is \"{}\", expected a count", iteration)));
  }
  metadata.erase("iteration");
  EXPECT_THAT(refusal(), ::testing::HasSubstr("its metadata have no \"iteration\""));
  metadata["iteration"] = "1";
  metadata.erase("digest");
  EXPECT_THAT(refusal(), ::testing::HasSubstr("no \"digest\""));
}

}  // namespace
}  // namespace amaxscope
