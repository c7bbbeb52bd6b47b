#include "megatron/ops/heads.hpp"

#include <algorithm>
#include <cmath>

#include "megatron/ops/compute.hpp"

namespace amaxscope::megatron {

namespace {

constexpr double kRotaryBase = 10000.0;

void require_qkv(std::string_view operation, const AttentionShape& shape, const TensorView& qkv) {
  require_matrix(operation, "qkv", qkv, qkv.dtype(), shape.sequence * shape.batch,
                 3 * shape.heads * shape.head_dim);
}

/// Where the part of row (token * heads + head) starts in qkv.
std::int64_t start_of(const AttentionShape& shape, std::int64_t row, HeadPart part) {
  return (row * 3 + (part == HeadPart::kQuery ? 0 : 1)) * shape.head_dim;
}

std::int64_t head_rows(const AttentionShape& shape) { return shape.sequence * shape.batch * shape.heads; }

void rotate(std::string_view operation, const AttentionShape& shape, const MutableTensorView& qkv,
            double direction) {
  require_qkv(operation, shape, qkv);
  AMAXSCOPE_CHECK(shape.head_dim % 2 == 0, ErrorCode::kTensor,
                  "{}: heads of {} elements; rotary positions turn pairs, so it must be even", operation,
                  shape.head_dim);
  const std::int64_t half = shape.head_dim / 2;
  with_compute_dtype(operation, "qkv", qkv.dtype(), [&]<class T>(std::type_identity<T>) {
    using A = Arithmetic<T>;
    T* values = qkv.values<T>().data();
    const std::int64_t rows_of_position = shape.batch * shape.heads;
    for (std::int64_t s = 0; s < shape.sequence; ++s) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(s) *
            std::pow(kRotaryBase, -2.0 * static_cast<double>(i) / static_cast<double>(shape.head_dim));
        const auto cosine = static_cast<A>(std::cos(angle));
        const auto sine = static_cast<A>(direction * std::sin(angle));
        for (std::int64_t row = s * rows_of_position; row < (s + 1) * rows_of_position; ++row) {
          for (const HeadPart part : {HeadPart::kQuery, HeadPart::kKey}) {
            T* const first = values + start_of(shape, row, part) + i;
            T* const second = first + half;
            const A a = widen(*first);
            const A b = widen(*second);
            *first = narrow<T>(a * cosine - b * sine);
            *second = narrow<T>(b * cosine + a * sine);
          }
        }
      }
    }
  });
}

}  // namespace

Tensor take_heads(const AttentionShape& shape, const TensorView& qkv, HeadPart part) {
  constexpr std::string_view kOperation = "take_heads";
  require_qkv(kOperation, shape, qkv);
  Tensor rows(qkv.dtype(), {head_rows(shape), shape.head_dim});
  with_compute_dtype(kOperation, "qkv", qkv.dtype(), [&]<class T>(std::type_identity<T>) {
    const T* in = qkv.values<T>().data();
    T* out = rows.values<T>().data();
    for (std::int64_t row = 0; row < rows.rows(); ++row, out += shape.head_dim) {
      std::copy_n(in + start_of(shape, row, part), shape.head_dim, out);
    }
  });
  return rows;
}

void put_heads(const AttentionShape& shape, const TensorView& rows, HeadPart part,
               const MutableTensorView& qkv) {
  constexpr std::string_view kOperation = "put_heads";
  require_qkv(kOperation, shape, qkv);
  require_matrix(kOperation, "rows", rows, qkv.dtype(), head_rows(shape), shape.head_dim);
  with_compute_dtype(kOperation, "qkv", qkv.dtype(), [&]<class T>(std::type_identity<T>) {
    const T* in = rows.values<T>().data();
    T* out = qkv.values<T>().data();
    for (std::int64_t row = 0; row < rows.rows(); ++row, in += shape.head_dim) {
      std::copy_n(in, shape.head_dim, out + start_of(shape, row, part));
    }
  });
}

void rotate_positions(const AttentionShape& shape, const MutableTensorView& qkv) {
  rotate("rotate_positions", shape, qkv, 1.0);
}

void rotate_positions_back(const AttentionShape& shape, const MutableTensorView& dqkv) {
  rotate("rotate_positions_back", shape, dqkv, -1.0);
}

}  // namespace amaxscope::megatron
