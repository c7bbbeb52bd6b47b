#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "tests/capi/c_api.hpp"

namespace amaxscope {
namespace {

using testing::HasSubstr;

std::vector<float> values_of(const Quantized& quantized, unsigned direction, std::int64_t rows,
                             std::int64_t cols) {
  Matrix out(rows, cols);
  amaxscope_view view = out.view();
  EXPECT_OK(amaxscope_values(quantized.get(), direction, &view));
  return out.values;
}

TEST(CApiLayers, HighPrecisionPointsToTheProgramsMemory) {
  const Session session = open_session(nullptr);
  amaxscope_layer* const layer = add_layer(session.get(), "fc1");
  Matrix x(4, 8);
  const Quantized quantized = quantize(layer, AMAXSCOPE_ACTIVATION, x);
  const amaxscope_operand operand = operand_of(quantized, AMAXSCOPE_ROWWISE);
  EXPECT_EQ(operand.data.data, x.values.data());
  EXPECT_EQ(operand.data.dtype, AMAXSCOPE_F32);
  EXPECT_EQ(operand.scale_inv, 1.0F);
  EXPECT_EQ(operand.block_scales.data, nullptr);
  EXPECT_EQ(format_name(quantized, AMAXSCOPE_ROWWISE), "high precision");
}

TEST(CApiLayers, CurrentScalingGivesCodesUnderTheScaleOfTheAmax) {
  const Session session = open_session(nullptr);
  amaxscope_layer* const layer = add_layer(session.get(), "fc1", AMAXSCOPE_CURRENT);
  Matrix x(4, 8);
  x.values[5] = -16.0F;
  const Quantized quantized = quantize(layer, AMAXSCOPE_ACTIVATION, x);
  const amaxscope_operand row = operand_of(quantized, AMAXSCOPE_ROWWISE);
  EXPECT_EQ(row.scale_inv, 1.0F / 28.0F);  // 448 / 16
  EXPECT_EQ(row.data.dtype, AMAXSCOPE_E4M3);
  EXPECT_EQ(static_cast<const unsigned char*>(row.data.data)[5], 0xFE);  // -448
  const std::vector<float> decoded = values_of(quantized, AMAXSCOPE_ROWWISE, 4, 8);
  EXPECT_EQ(decoded[5], -448.0F * (1.0F / 28.0F));
  for (std::size_t i = 0; i < decoded.size(); ++i) {
    EXPECT_NEAR(decoded[i], x.values[i], std::abs(x.values[i]) / 16.0F + 16.0F / 448.0F / 512.0F) << i;
  }
  EXPECT_EQ(values_of(quantized, AMAXSCOPE_COLUMNWISE, 4, 8), decoded);
  const amaxscope_operand column = operand_of(quantized, AMAXSCOPE_COLUMNWISE);
  EXPECT_EQ(column.data.rows * column.data.cols, 32);
  EXPECT_EQ(format_name(quantized, AMAXSCOPE_ROWWISE), "E4M3");
  const Quantized gradient = quantize(layer, AMAXSCOPE_GRADIENT, x);
  EXPECT_EQ(format_name(gradient, AMAXSCOPE_ROWWISE), "E5M2");
}

TEST(CApiLayers, BlockScalesAreShown) {
  const Session session = open_session(nullptr);
  amaxscope_layer* const layer = add_layer(session.get(), "fc1", AMAXSCOPE_MXFP8);
  Matrix x(32, 64);
  const Quantized quantized = quantize(layer, AMAXSCOPE_ACTIVATION, x);
  const amaxscope_operand row = operand_of(quantized, AMAXSCOPE_ROWWISE);
  EXPECT_EQ(row.block_rows, 1);
  EXPECT_EQ(row.block_cols, 32);
  EXPECT_EQ(row.tensor_factor, 1.0F);
  ASSERT_EQ(row.block_scales.dtype, AMAXSCOPE_E8M0);
  float amax = 0.0F;
  for (std::size_t i = 0; i < 32; ++i) amax = std::max(amax, std::abs(x.values[i]));
  const auto scale = static_cast<const unsigned char*>(row.block_scales.data)[0];
  EXPECT_GE(std::ldexp(448.0F, scale - 127), amax);  // rounded up to a power of two
  EXPECT_LT(std::ldexp(224.0F, scale - 127), amax);
}

TEST(CApiLayers, DelayedScalingTakesItsScaleFromTheStepBefore) {
  const Session session = open_session(nullptr);
  amaxscope_layer* const layer = add_layer(session.get(), "fc1", AMAXSCOPE_DELAYED);
  Matrix x(4, 8);
  x.values[0] = 16.0F;
  EXPECT_EQ(operand_of(quantize(layer, AMAXSCOPE_ACTIVATION, x), AMAXSCOPE_ROWWISE).scale_inv, 1.0F);
  EXPECT_OK(amaxscope_step(session.get()));
  EXPECT_EQ(operand_of(quantize(layer, AMAXSCOPE_ACTIVATION, x), AMAXSCOPE_ROWWISE).scale_inv, 1.0F / 28.0F);
}

TEST(CApiLayers, TheConfigDecides) {
  const Session session = open_session(R"(high:
  enabled: True
  layers:
    layer_name_regex_pattern: fc2
  transformer_engine:
    DisableQuantizationLayer:
      enabled: True
)");
  amaxscope_layer* const fc1 = add_layer(session.get(), "fc1", AMAXSCOPE_CURRENT);
  amaxscope_layer* const fc2 = add_layer(session.get(), "fc2", AMAXSCOPE_CURRENT);
  EXPECT_EQ(amaxscope_active(fc1), 0);
  EXPECT_EQ(amaxscope_active(fc2), 1);
  Matrix x(4, 8);
  EXPECT_EQ(format_name(quantize(fc1, AMAXSCOPE_WEIGHT, x), AMAXSCOPE_ROWWISE), "E4M3");
  EXPECT_EQ(format_name(quantize(fc2, AMAXSCOPE_WEIGHT, x), AMAXSCOPE_ROWWISE), "high precision");
}

TEST(CApiLayers, TheThreeProductsOfALayer) {
  const Session session = open_session(nullptr);
  amaxscope_layer* const layer = add_layer(session.get(), "fc1");
  Matrix x(4, 6, 1);
  Matrix weight(5, 6, 2);
  Matrix gradient(4, 5, 3);
  const Quantized a = quantize(layer, AMAXSCOPE_ACTIVATION, x);
  const Quantized w = quantize(layer, AMAXSCOPE_WEIGHT, weight);
  const Quantized g = quantize(layer, AMAXSCOPE_GRADIENT, gradient);
  const auto at = [](const Matrix& m, std::int64_t i, std::int64_t j) {
    return static_cast<double>(m.values[static_cast<std::size_t>(i * m.cols + j)]);
  };
  Matrix y(4, 5);
  Matrix dx(4, 6);
  Matrix dw(5, 6);
  std::fill(dw.values.begin(), dw.values.end(), 1.0F);
  amaxscope_view out = y.view();
  EXPECT_OK(amaxscope_multiply(AMAXSCOPE_FPROP, a.get(), w.get(), 0.0F, &out));
  out = dx.view();
  EXPECT_OK(amaxscope_multiply(AMAXSCOPE_DGRAD_GEMM, g.get(), w.get(), 0.0F, &out));
  out = dw.view();
  EXPECT_OK(amaxscope_multiply(AMAXSCOPE_WGRAD_GEMM, g.get(), a.get(), 1.0F, &out));
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 5; ++j) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < 6; ++k) sum += at(x, i, k) * at(weight, j, k);
      EXPECT_NEAR(at(y, i, j), sum, 1e-5);
    }
    for (std::int64_t k = 0; k < 6; ++k) {
      double sum = 0.0;
      for (std::int64_t j = 0; j < 5; ++j) sum += at(gradient, i, j) * at(weight, j, k);
      EXPECT_NEAR(at(dx, i, k), sum, 1e-5);
    }
  }
  for (std::int64_t j = 0; j < 5; ++j) {
    for (std::int64_t k = 0; k < 6; ++k) {
      double sum = 1.0;  // what was there
      for (std::int64_t i = 0; i < 4; ++i) sum += at(gradient, i, j) * at(x, i, k);
      EXPECT_NEAR(at(dw, j, k), sum, 1e-5);
    }
  }
}

TEST(CApiLayers, TheTwoPassesAreTheStepsOneByOne) {
  const Session session = open_session(nullptr);
  amaxscope_layer* const layer = add_layer(session.get(), "fc1", AMAXSCOPE_CURRENT);
  Matrix x(4, 16, 1);
  Matrix weight(8, 16, 2);
  Matrix dy(4, 8, 3);
  Matrix expected_y(4, 8);
  Matrix expected_dx(4, 16);
  Matrix expected_dw(8, 16, 4);
  Matrix y(4, 8);
  Matrix dx(4, 16);
  Matrix dw = expected_dw;
  {
    const Quantized a = quantize(layer, AMAXSCOPE_ACTIVATION, x);
    const Quantized w = quantize(layer, AMAXSCOPE_WEIGHT, weight);
    const Quantized g = quantize(layer, AMAXSCOPE_GRADIENT, dy);
    amaxscope_view out = expected_y.view();
    EXPECT_OK(amaxscope_multiply(AMAXSCOPE_FPROP, a.get(), w.get(), 0.0F, &out));
    out = expected_dx.view();
    EXPECT_OK(amaxscope_multiply(AMAXSCOPE_DGRAD_GEMM, g.get(), w.get(), 0.0F, &out));
    Matrix product(8, 16);
    out = product.view();
    EXPECT_OK(amaxscope_multiply(AMAXSCOPE_WGRAD_GEMM, g.get(), a.get(), 0.0F, &out));
    for (std::size_t i = 0; i < product.values.size(); ++i) expected_dw.values[i] += product.values[i];
  }
  const amaxscope_view x_view = x.view();
  const amaxscope_view weight_view = weight.view();
  const amaxscope_view dy_view = dy.view();
  amaxscope_view out = y.view();
  amaxscope_view out_dx = dx.view();
  amaxscope_view out_dw = dw.view();
  amaxscope_saved* saved = nullptr;
  ASSERT_OK(amaxscope_forward(layer, &x_view, &weight_view, &out, nullptr, &saved));
  ASSERT_NE(saved, nullptr);
  EXPECT_EQ(y.values, expected_y.values);
  // A wrong shape leaves everything as it is.
  EXPECT_EQ(amaxscope_backward(layer, &x_view, &out_dx, &out_dw, 1.0F, nullptr, &saved),
            AMAXSCOPE_ERROR_TENSOR);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("dy is [4, 16], expected [4, 8]"));
  ASSERT_OK(amaxscope_backward(layer, &dy_view, &out_dx, &out_dw, 1.0F, nullptr, &saved));
  EXPECT_EQ(saved, nullptr);
  EXPECT_EQ(dx.values, expected_dx.values);
  EXPECT_EQ(dw.values, expected_dw.values);
  EXPECT_EQ(amaxscope_backward(layer, &dy_view, &out_dx, &out_dw, 1.0F, nullptr, &saved),
            AMAXSCOPE_ERROR_USAGE);
}

TEST(CApiLayers, AKeptWeightServesLaterMicroBatches) {
  const Session session = open_session(nullptr);
  amaxscope_layer* const layer = add_layer(session.get(), "fc1", AMAXSCOPE_CURRENT);
  Matrix x(4, 16, 1);
  Matrix weight(8, 16, 2);
  Matrix first(4, 8);
  Matrix second(4, 8);
  Matrix anew(4, 8);
  const amaxscope_view x_view = x.view();
  const amaxscope_view weight_view = weight.view();
  const auto forward = [&](int microbatch, Matrix& y) {
    amaxscope_view out = y.view();
    const amaxscope_moment moment = {AMAXSCOPE_FORWARD, microbatch};
    EXPECT_OK(amaxscope_forward(layer, &x_view, &weight_view, &out, &moment, nullptr));
  };
  forward(0, first);
  weight.values[0] = 100.0F;  // not seen before the next step
  forward(1, second);
  forward(0, anew);
  EXPECT_EQ(first.values, second.values);
  EXPECT_NE(first.values, anew.values);
}

TEST(CApiLayers, AResultIsChangedOnlyWhereTheConfigSaysSo) {
  const Session session = open_session(R"(fake:
  enabled: True
  layers:
    layer_name_regex_pattern: fc1
  transformer_engine:
    FakeQuant:
      enabled: True
      gemms: [fprop]
      tensors: [output]
      quant_format: FP8E4M3
)");
  amaxscope_layer* const fc1 = add_layer(session.get(), "fc1");
  amaxscope_layer* const fc2 = add_layer(session.get(), "fc2");
  EXPECT_EQ(amaxscope_wants_result(fc1, AMAXSCOPE_OUTPUT), 1);
  EXPECT_EQ(amaxscope_wants_result(fc1, AMAXSCOPE_WGRAD), 0);
  EXPECT_EQ(amaxscope_wants_result(fc2, AMAXSCOPE_OUTPUT), 0);
  EXPECT_EQ(amaxscope_wants_result(fc1, AMAXSCOPE_WEIGHT), 0);
  Matrix y(4, 8);
  y.values[0] = 448.0F;
  y.values[1] = 1.03F;  // between 1 and 1.125
  const std::vector<float> before = y.values;
  amaxscope_view view = y.view();
  EXPECT_OK(amaxscope_result(fc2, AMAXSCOPE_OUTPUT, &view, nullptr, nullptr, nullptr, nullptr, nullptr));
  EXPECT_EQ(y.values, before);
  EXPECT_OK(amaxscope_result(fc1, AMAXSCOPE_OUTPUT, &view, nullptr, nullptr, nullptr, nullptr, nullptr));
  EXPECT_EQ(y.values[0], 448.0F);
  EXPECT_EQ(y.values[1], 1.0F);
}

TEST(CApiLayers, AWeightIsSeenAgainWhenItIsReused) {
  const Session session = open_session(R"(all:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [weight]
      stats: [cur_amax]
)");
  amaxscope_layer* const layer = add_layer(session.get(), "fc1", AMAXSCOPE_CURRENT);
  Matrix weight(4, 8);
  const amaxscope_view view = weight.view();
  const Quantized quantized = quantize(layer, AMAXSCOPE_WEIGHT, weight);
  const amaxscope_moment second = {AMAXSCOPE_FORWARD, 1};
  EXPECT_OK(amaxscope_reuse(layer, AMAXSCOPE_WEIGHT, &view, quantized.get(), &second));
  EXPECT_EQ(amaxscope_reuse(layer, AMAXSCOPE_OUTPUT, &view, quantized.get(), &second), AMAXSCOPE_ERROR_USAGE);
}

TEST(CApiLayers, KeepsADirectionAndMakesTheOther) {
  const Session session = open_session(nullptr);
  amaxscope_layer* const layer = add_layer(session.get(), "fc1", AMAXSCOPE_CURRENT);
  Matrix x(4, 8);
  const Quantized quantized = quantize(layer, AMAXSCOPE_ACTIVATION, x, AMAXSCOPE_ROWWISE);
  EXPECT_OK(amaxscope_keep(quantized.get(), AMAXSCOPE_COLUMNWISE));
  amaxscope_operand operand = {};
  operand.size = sizeof operand;
  EXPECT_EQ(amaxscope_get_operand(quantized.get(), AMAXSCOPE_ROWWISE, &operand), AMAXSCOPE_ERROR_USAGE);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("rowwise"));
  EXPECT_OK(amaxscope_get_operand(quantized.get(), AMAXSCOPE_COLUMNWISE, &operand));
}

/// Sets a variable of the environment for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { EXPECT_EQ(setenv(name, value, 1), 0); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(CApiLayers, ResultsOutliveTheSessionAndItsThreads) {
  const Variable threads("AMAXSCOPE_THREADS", "2");
  // Of more than 1 MiB, in codes too: less is not shared among threads.
  Matrix x(1024, 1056, 1);
  Matrix weight(32, 1056, 2);
  for (const amaxscope_recipe recipe : {AMAXSCOPE_HIGH_PRECISION, AMAXSCOPE_DELAYED, AMAXSCOPE_CURRENT,
                                        AMAXSCOPE_MXFP8, AMAXSCOPE_FP8_BLOCK, AMAXSCOPE_NVFP4}) {
    SCOPED_TRACE(recipe);
    Session session = open_session(kStatistics);
    amaxscope_layer* const layer = add_layer(session.get(), "fc1", recipe);
    ASSERT_EQ(amaxscope_active(layer), 1);
    const Quantized a = quantize(layer, AMAXSCOPE_ACTIVATION, x);
    const Quantized b = quantize(layer, AMAXSCOPE_WEIGHT, weight);
    const amaxscope_view x_view = x.view();
    const amaxscope_view weight_view = weight.view();
    Matrix y(1024, 32);
    amaxscope_view out = y.view();
    amaxscope_saved* saved = nullptr;
    ASSERT_OK(amaxscope_forward(layer, &x_view, &weight_view, &out, nullptr, &saved));
    const auto computed = [&] {
      Matrix values(1024, 1056);
      Matrix product(1024, 32);
      amaxscope_view decoded = values.view();
      EXPECT_OK(amaxscope_values(a.get(), AMAXSCOPE_COLUMNWISE, &decoded));
      amaxscope_view result = product.view();
      EXPECT_OK(amaxscope_multiply(AMAXSCOPE_FPROP, a.get(), b.get(), 0.0F, &result));
      return std::pair(values.values, product.values);
    };
    const auto before = computed();
    session.reset();
    EXPECT_EQ(computed(), before);
    EXPECT_OK(amaxscope_keep(a.get(), AMAXSCOPE_COLUMNWISE));
    amaxscope_saved_free(saved);
  }
}

TEST(CApiLayers, StridedInputsAreTakenAndStridedOutputsRefused) {
  const Session session = open_session(nullptr);
  amaxscope_layer* const layer = add_layer(session.get(), "fc1");
  Matrix x(4, 8);
  amaxscope_view view = x.view();
  view.cols = 6;
  view.row_stride = 8;
  EXPECT_EQ(amaxscope_result(layer, AMAXSCOPE_OUTPUT, &view, nullptr, nullptr, nullptr, nullptr, nullptr),
            AMAXSCOPE_ERROR_TENSOR);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("row stride of 8"));
  view.row_stride = 3;
  amaxscope_quantized* quantized = nullptr;
  EXPECT_EQ(amaxscope_quantize(layer, AMAXSCOPE_ACTIVATION, &view, AMAXSCOPE_ROWWISE, nullptr, &quantized),
            AMAXSCOPE_ERROR_USAGE);
}

TEST(CApiLayers, RefusesWhatDoesNotFit) {
  const Session session = open_session(nullptr);
  amaxscope_layer* const layer = add_layer(session.get(), "fc1", AMAXSCOPE_CURRENT);
  Matrix x(4, 8);
  amaxscope_view view = x.view();
  amaxscope_quantized* quantized = nullptr;
  EXPECT_EQ(amaxscope_quantize(layer, AMAXSCOPE_OUTPUT, &view, AMAXSCOPE_ROWWISE, nullptr, &quantized),
            AMAXSCOPE_ERROR_USAGE);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("amaxscope_result"));
  EXPECT_EQ(amaxscope_quantize(layer, AMAXSCOPE_WEIGHT, &view, 0, nullptr, &quantized),
            AMAXSCOPE_ERROR_USAGE);
  EXPECT_EQ(amaxscope_quantize(layer, AMAXSCOPE_WEIGHT, nullptr, 1, nullptr, &quantized),
            AMAXSCOPE_ERROR_USAGE);
  view.data = nullptr;
  EXPECT_EQ(amaxscope_quantize(layer, AMAXSCOPE_WEIGHT, &view, 1, nullptr, &quantized),
            AMAXSCOPE_ERROR_USAGE);
  view = x.view();
  view.dtype = static_cast<amaxscope_dtype>(15);
  EXPECT_EQ(amaxscope_quantize(layer, AMAXSCOPE_WEIGHT, &view, 1, nullptr, &quantized),
            AMAXSCOPE_ERROR_USAGE);
  EXPECT_EQ(quantized, nullptr);

  amaxscope_layer_options options = {};
  options.size = sizeof options;
  amaxscope_layer* other = nullptr;
  EXPECT_EQ(amaxscope_register(session.get(), &options, &other), AMAXSCOPE_ERROR_USAGE);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("options.name is NULL"));
  options.name = "fc9";
  options.dtype = AMAXSCOPE_U32;
  EXPECT_EQ(amaxscope_register(session.get(), &options, &other), AMAXSCOPE_ERROR_USAGE);
  EXPECT_EQ(other, nullptr);
}

}  // namespace
}  // namespace amaxscope
