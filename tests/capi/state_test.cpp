// A session that is taken up again from what was saved makes the codes that it would have made.
#include <array>
#include <filesystem>

#include "tests/capi/c_api.hpp"
#include "tests/support/temporary_folder.hpp"

namespace amaxscope {
namespace {

using testing::HasSubstr;

constexpr const char* kTrends = R"(all:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    Trends:
      enabled: True
      tensors: [activation]
)";

void append(std::vector<unsigned char>& bytes, const amaxscope_view& view) {
  const auto* const first = static_cast<const unsigned char*>(view.data);
  const std::int64_t elements = view.rows * view.cols;
  const std::int64_t count = view.dtype == AMAXSCOPE_E2M1  ? elements / 2
                             : view.dtype == AMAXSCOPE_F32 ? elements * 4
                                                           : elements;
  bytes.insert(bytes.end(), first, first + count);
}

/// Two layers with recipes that remember something.
class Training {
 public:
  explicit Training(std::int64_t first_iteration = 0) {
    amaxscope_options options = {};
    options.size = sizeof options;
    options.config_text = kTrends;
    options.first_iteration = first_iteration;
    amaxscope_session* opened = nullptr;
    EXPECT_OK(amaxscope_open(&options, &opened));
    session_.reset(opened);
    delayed_ = add_layer(session_.get(), "delayed", AMAXSCOPE_DELAYED);
    nvfp4_ = add_layer(session_.get(), "nvfp4", AMAXSCOPE_NVFP4);
  }
  [[nodiscard]] amaxscope_session* session() const { return session_.get(); }

  /// Codes, scales and the like of all operands of a step by layer; the values depend on the step.
  using Bytes = std::vector<unsigned char>;
  std::array<Bytes, 2> step() {
    std::array<Bytes, 2> result;
    const auto iteration = static_cast<unsigned>(amaxscope_iteration(session_.get()));
    for (std::size_t i = 0; i < result.size(); ++i) {
      amaxscope_layer* const layer = i == 0 ? delayed_ : nvfp4_;
      Bytes& bytes = result[i];
      for (const amaxscope_tensor tensor : {AMAXSCOPE_ACTIVATION, AMAXSCOPE_WEIGHT, AMAXSCOPE_GRADIENT}) {
        Matrix x(32, 32, 10 * iteration + static_cast<unsigned>(tensor));
        x.values[3] =
            40.0F - 6.0F * static_cast<float>(iteration);  // so that histories have something to say
        const Quantized quantized = quantize(layer, tensor, x);
        for (const unsigned direction : {unsigned{AMAXSCOPE_ROWWISE}, unsigned{AMAXSCOPE_COLUMNWISE}}) {
          const amaxscope_operand operand = operand_of(quantized, direction);
          append(bytes, operand.data);
          if (operand.block_scales.data != nullptr) append(bytes, operand.block_scales);
          const float numbers[] = {operand.scale_inv, operand.tensor_factor};
          const auto* const raw = reinterpret_cast<const unsigned char*>(numbers);
          bytes.insert(bytes.end(), raw, raw + sizeof numbers);
        }
      }
    }
    EXPECT_OK(amaxscope_step(session_.get()));
    return result;
  }

 private:
  Session session_;
  amaxscope_layer* delayed_ = nullptr;
  amaxscope_layer* nvfp4_ = nullptr;
};

TEST(CApiState, ARestartMakesTheCodesOfARunThatWentOn) {
  const TemporaryFolder folder;
  std::vector<std::array<Training::Bytes, 2>> expected;
  {
    Training run;
    for (int step = 0; step < 3; ++step) run.step();
    EXPECT_OK(amaxscope_save_state(run.session(), folder.path().c_str()));
    for (int step = 3; step < 6; ++step) expected.push_back(run.step());
  }
  Training resumed;
  ASSERT_OK(amaxscope_load_state(resumed.session(), folder.path().c_str()));
  EXPECT_EQ(amaxscope_iteration(resumed.session()), 3);
  for (std::size_t step = 0; step < expected.size(); ++step)
    EXPECT_EQ(resumed.step(), expected[step]) << step;

  // With the runtime's own file alone the codes would be others: the test can tell.
  const auto forgotten = Training(3).step();
  EXPECT_NE(forgotten[0], expected[0][0]);
  EXPECT_NE(forgotten[1], expected[0][1]);
}

TEST(CApiState, WhatDoesNotFitIsRefusedByNameAndNothingChanges) {
  const TemporaryFolder folder;
  {
    Training run;
    run.step();
    EXPECT_OK(amaxscope_save_state(run.session(), folder.path().c_str()));
  }
  const std::string path = folder.path().string();
  const Session fewer = open_session(kTrends);
  add_layer(fewer.get(), "delayed", AMAXSCOPE_DELAYED);
  EXPECT_EQ(amaxscope_load_state(fewer.get(), path.c_str()), AMAXSCOPE_ERROR_INPUT);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("register the same layers first"));
  const Session others = open_session(kTrends);
  add_layer(others.get(), "fc7", AMAXSCOPE_DELAYED);
  EXPECT_EQ(amaxscope_load_state(others.get(), path.c_str()), AMAXSCOPE_ERROR_INPUT);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("has no tensor delayed/fc7.activation/scale"));
  EXPECT_EQ(amaxscope_iteration(others.get()), 0);

  // Two files that were not saved together.
  const TemporaryFolder second;
  Training run;
  run.step();
  run.step();
  EXPECT_OK(amaxscope_save_state(run.session(), second.path().c_str()));
  constexpr const char* kFile = "amaxscope_recipes_rank_0.safetensors";
  std::filesystem::copy_file(second.path() / kFile, folder.path() / kFile,
                             std::filesystem::copy_options::overwrite_existing);
  Training resumed;
  EXPECT_EQ(amaxscope_load_state(resumed.session(), path.c_str()), AMAXSCOPE_ERROR_INPUT);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("they were saved together"));
  EXPECT_EQ(amaxscope_iteration(resumed.session()), 0);
  EXPECT_EQ(amaxscope_load_state(resumed.session(), "/nowhere"), AMAXSCOPE_ERROR_INPUT);
}

}  // namespace
}  // namespace amaxscope
