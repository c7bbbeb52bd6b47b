// What tests of the C API share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "capi/amaxscope.h"

namespace amaxscope {

/// EXPECT/ASSERT with the library's own words.
#define EXPECT_OK(call) EXPECT_EQ((call), AMAXSCOPE_OK) << amaxscope_last_error()
#define ASSERT_OK(call) ASSERT_EQ((call), AMAXSCOPE_OK) << amaxscope_last_error()

inline constexpr const char* kStatistics = R"(all:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation]
      stats: [cur_amax]
)";

struct CloseSession {
  void operator()(amaxscope_session* session) const { EXPECT_OK(amaxscope_close(session)); }
};
using Session = std::unique_ptr<amaxscope_session, CloseSession>;
struct FreeQuantized {
  void operator()(amaxscope_quantized* quantized) const { amaxscope_quantized_free(quantized); }
};
using Quantized = std::unique_ptr<amaxscope_quantized, FreeQuantized>;

/// Null when it failed.
inline Session open_session(const char* config, const std::string& log_dir = {}) {
  amaxscope_options options = {};
  options.size = sizeof options;
  options.config_text = config;
  options.log_dir = log_dir.empty() ? nullptr : log_dir.c_str();
  amaxscope_session* session = nullptr;
  EXPECT_OK(amaxscope_open(&options, &session));
  return Session(session);
}

inline amaxscope_layer* add_layer(amaxscope_session* session, const char* name,
                                  amaxscope_recipe recipe = AMAXSCOPE_HIGH_PRECISION) {
  amaxscope_layer_options options = {};
  options.size = sizeof options;
  options.name = name;
  options.recipe = recipe;
  amaxscope_layer* layer = nullptr;
  EXPECT_OK(amaxscope_register(session, &options, &layer));
  return layer;
}

/// A matrix of the program's.
struct Matrix {
  Matrix(std::int64_t row_count, std::int64_t column_count, unsigned seed = 1)
      : rows(row_count), cols(column_count), values(static_cast<std::size_t>(row_count * column_count)) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(engine);
  }
  [[nodiscard]] amaxscope_view view() {
    return {values.data(), AMAXSCOPE_F32, rows, cols, 0, nullptr, nullptr};
  }

  std::int64_t rows;
  std::int64_t cols;
  std::vector<float> values;
};

inline Quantized quantize(amaxscope_layer* layer, amaxscope_tensor tensor, Matrix& x,
                          unsigned directions = AMAXSCOPE_ROWWISE | AMAXSCOPE_COLUMNWISE) {
  const amaxscope_view view = x.view();
  amaxscope_quantized* quantized = nullptr;
  EXPECT_OK(amaxscope_quantize(layer, tensor, &view, directions, nullptr, &quantized));
  return Quantized(quantized);
}

/// A view of a direction, written by the library.
inline amaxscope_operand operand_of(const Quantized& quantized, unsigned direction) {
  amaxscope_operand operand = {};
  operand.size = sizeof operand;
  EXPECT_OK(amaxscope_get_operand(quantized.get(), direction, &operand));
  return operand;
}

inline std::string format_name(const Quantized& quantized, unsigned direction) {
  char text[64];
  EXPECT_OK(amaxscope_format_name(quantized.get(), direction, text, sizeof text));
  return text;
}

}  // namespace amaxscope
