#include <cstring>

#include "capi/calls.hpp"
#include "capi/handles.hpp"
#include "core/device_backend.hpp"
#include "kernels/cast.hpp"
#include "kernels/gemm.hpp"

namespace amaxscope::capi {

namespace {

static_assert(static_cast<int>(AMAXSCOPE_F64) == static_cast<int>(DType::kF64));
static_assert(static_cast<int>(AMAXSCOPE_BF16) == static_cast<int>(DType::kBF16));
static_assert(static_cast<int>(AMAXSCOPE_E2M1) == static_cast<int>(DType::kE2M1));
static_assert(static_cast<int>(AMAXSCOPE_I64) == static_cast<int>(DType::kI64));
static_assert(static_cast<int>(AMAXSCOPE_MAX) == static_cast<int>(ReduceOp::kMax));
static_assert(static_cast<int>(AMAXSCOPE_WGRAD_GEMM) == static_cast<int>(Gemm::kWgrad));
static_assert(static_cast<int>(AMAXSCOPE_EVALUATION) == static_cast<int>(Phase::kEval));
static_assert(static_cast<int>(AMAXSCOPE_PARTIAL_SUM) == static_cast<int>(Layout::kPartial));

Direction direction_of(unsigned direction) {
  AMAXSCOPE_CHECK(direction == AMAXSCOPE_ROWWISE || direction == AMAXSCOPE_COLUMNWISE, ErrorCode::kUsage,
                  "direction is {}; AMAXSCOPE_ROWWISE (1) or AMAXSCOPE_COLUMNWISE (2) is meant", direction);
  return direction == AMAXSCOPE_ROWWISE ? Direction::kRowwise : Direction::kColumnwise;
}

constexpr std::size_t kFirstOperand = sizeof(amaxscope_operand);

/// Nothing is written through it by the library.
amaxscope_view c_view(const TensorView& view, amaxscope_device* device) {
  return {.data = const_cast<void*>(view.data()),
          .dtype = static_cast<amaxscope_dtype>(view.dtype()),
          .rows = view.rows(),
          .cols = view.cols(),
          .row_stride = view.row_stride(),
          .device = device,
          .stream = device == nullptr ? nullptr : view.stream().handle};
}

float tensor_factor(const BlockScaledView& blocks) {
  if (!blocks.tensor_scale) return 1.0F;
  return blocks.device_amax ? blocks.tensor_scale->factor
                            : blocks.tensor_scale->amax * blocks.tensor_scale->factor;
}

const float* device_number(const std::optional<TensorView>& number) {
  return number ? static_cast<const float*>(number->data()) : nullptr;
}

amaxscope_operand c_operand(const GemmOperand& own, amaxscope_device* device) {
  amaxscope_operand result{};
  result.data = c_view(own.data, device);
  result.transposed = own.transposed ? 1 : 0;
  result.scale_inv = own.device_scale_inv ? 0.0F : own.scale_inv;
  result.device_scale_inv = device_number(own.device_scale_inv);
  result.block_rows = 1;
  result.block_cols = 1;
  result.tensor_factor = 1.0F;
  if (!own.blocks) return result;
  result.block_scales = c_view(own.blocks->scales, device);
  result.block_rows = static_cast<int>(own.blocks->layout.block_rows);
  result.block_cols = static_cast<int>(own.blocks->layout.block_cols);
  result.tensor_factor = tensor_factor(*own.blocks);
  result.device_tensor_amax = device_number(own.blocks->device_amax);
  result.rotated = own.blocks->rotated ? 1 : 0;
  return result;
}

const QuantizedTensor& tensor_of(const amaxscope_quantized* quantized, std::string_view name) {
  return *required(quantized, name).tensor;
}

GemmOperand factor(const amaxscope_quantized* quantized, TensorKind tensor, Gemm gemm,
                   std::string_view name) {
  return tensor_of(quantized, name).operand(*amaxscope::direction_of(tensor, gemm));
}

void require_fields(const amaxscope_view& view, std::string_view name) {
  AMAXSCOPE_CHECK(view.rows >= 0 && view.cols >= 0 && (view.row_stride == 0 || view.row_stride >= view.cols),
                  ErrorCode::kUsage, "{} has {} rows, {} columns and a row stride of {}", name, view.rows,
                  view.cols, view.row_stride);
  AMAXSCOPE_CHECK(view.device != nullptr || view.stream == nullptr, ErrorCode::kUsage,
                  "{} has a stream and no device; a stream belongs to a tensor of a device "
                  "(amaxscope_device_from_cuda)",
                  name);
  AMAXSCOPE_CHECK(view.data != nullptr || view.rows == 0 || view.cols == 0, ErrorCode::kUsage,
                  "{}.data is NULL and it has {} x {} elements", name, view.rows, view.cols);
}

Device device_of(const amaxscope_view& view) {
  return view.device == nullptr ? Device{} : view.device->backend->device();
}

Stream stream_of(const amaxscope_view& view) {
  return view.device == nullptr ? Stream{} : Stream{view.stream, view.device->backend.get()};
}

}  // namespace

DType dtype_of(amaxscope_dtype dtype) { return enumerator<DType>(dtype, AMAXSCOPE_I64, "dtype"); }

TensorView view_of(const amaxscope_view* view, std::string_view name) {
  const amaxscope_view& given = required(view, name);
  require_fields(given, name);
  return {given.data,       dtype_of(given.dtype), {given.rows, given.cols},
          device_of(given), stream_of(given),      given.row_stride == 0 ? -1 : given.row_stride};
}

MutableTensorView mutable_view_of(amaxscope_view* view, std::string_view name) {
  const amaxscope_view& given = required(view, name);
  require_fields(given, name);
  AMAXSCOPE_CHECK(given.row_stride == 0 || given.row_stride == given.cols, ErrorCode::kTensor,
                  "{} has a row stride of {} and {} columns; what is written must be contiguous", name,
                  given.row_stride, given.cols);
  return {given.data, dtype_of(given.dtype), {given.rows, given.cols}, device_of(given), stream_of(given)};
}

std::optional<TensorView> optional_view_of(const amaxscope_view* view, std::string_view name) {
  return view == nullptr ? std::nullopt : std::optional(view_of(view, name));
}

TensorMoment moment_of(const amaxscope_moment* moment) {
  if (moment == nullptr) return {};
  AMAXSCOPE_CHECK(moment->microbatch >= 0, ErrorCode::kUsage, "moment.microbatch is {}; they count from 0",
                  moment->microbatch);
  return {.phase = enumerator<Phase>(moment->phase, AMAXSCOPE_EVALUATION, "moment.phase"),
          .microbatch = moment->microbatch};
}

}  // namespace amaxscope::capi

using namespace amaxscope;  // NOLINT(google-build-using-namespace): what follows is C

extern "C" {

amaxscope_status amaxscope_keep(amaxscope_quantized* quantized, unsigned directions) {
  return capi::call([&] {
    capi::required(quantized, "quantized")
        .tensor->update_usage({.rowwise = (directions & AMAXSCOPE_ROWWISE) != 0,
                               .columnwise = (directions & AMAXSCOPE_COLUMNWISE) != 0});
  });
}

void amaxscope_quantized_free(amaxscope_quantized* quantized) { delete quantized; }

amaxscope_status amaxscope_get_operand(const amaxscope_quantized* quantized, unsigned direction,
                                       amaxscope_operand* operand) {
  return capi::call([&] {
    const GemmOperand own = capi::tensor_of(quantized, "quantized").operand(capi::direction_of(direction));
    capi::fill(capi::required(operand, "operand"), capi::c_operand(own, quantized->device),
               capi::kFirstOperand, "operand");
  });
}

amaxscope_status amaxscope_format_name(const amaxscope_quantized* quantized, unsigned direction, char* text,
                                       size_t size) {
  return capi::call([&] {
    char& result = capi::required(text, "text");
    AMAXSCOPE_CHECK(size > 0, ErrorCode::kUsage, "size is 0; the text needs room for its end at least");
    const std::string name =
        capi::tensor_of(quantized, "quantized").format_name(capi::direction_of(direction));
    const std::size_t copied = std::min(name.size(), size - 1);
    std::memcpy(&result, name.data(), copied);
    text[copied] = '\0';
  });
}

amaxscope_status amaxscope_values(const amaxscope_quantized* quantized, unsigned direction,
                                  amaxscope_view* out) {
  return capi::call([&] {
    const QuantizedTensor& own = capi::tensor_of(quantized, "quantized");
    const MutableTensorView result = capi::mutable_view_of(out, "out");
    AMAXSCOPE_CHECK(result.rows() == own.shape().rows() && result.cols() == own.shape().cols(),
                    ErrorCode::kTensor, "out is [{}, {}], the tensor is [{}, {}]", result.rows(),
                    result.cols(), own.shape().rows(), own.shape().cols());
    const Tensor values = own.dequantize(result.dtype(), capi::direction_of(direction));
    copy_tensor(result, values.view());
  });
}

amaxscope_status amaxscope_multiply(amaxscope_gemm gemm, const amaxscope_quantized* a,
                                    const amaxscope_quantized* b, float beta, amaxscope_view* out) {
  return capi::call([&] {
    const Gemm which = capi::enumerator<Gemm>(gemm, AMAXSCOPE_WGRAD_GEMM, "gemm");
    const auto [first, second] = operands_of(which);
    amaxscope::gemm(capi::factor(a, first, which, "a"), capi::factor(b, second, which, "b"),
                    capi::mutable_view_of(out, "out"), beta);
  });
}

}  // extern "C"
