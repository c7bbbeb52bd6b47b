#include "megatron/ops/attention.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "megatron/ops/compute.hpp"

namespace amaxscope::megatron {

namespace {

std::size_t extent(std::int64_t count) { return static_cast<std::size_t>(count); }

void require_attention_shape(std::string_view operation, const AttentionShape& shape) {
  AMAXSCOPE_CHECK(
      shape.sequence >= 0 && shape.batch >= 0 && shape.heads >= 0 && shape.head_dim >= 1, ErrorCode::kTensor,
      "{}: sequence {}, batch {}, heads {}, head_dim {}; none may be negative and head_dim must be 1 or more",
      operation, shape.sequence, shape.batch, shape.heads, shape.head_dim);
}

/// sums[j] += sum over d of factors[d] * rows[d * stride + j], d ascending for every j. Four rows at a time,
/// so that the sums are read and written a quarter as often; the order of additions is that of one at a time.
template <class A>
void accumulate_rows(const A* __restrict factors, const A* __restrict rows, std::size_t depth,
                     std::size_t stride, std::size_t width, A* __restrict sums) {
  std::size_t d = 0;
  for (; d + 4 <= depth; d += 4) {
    const A f0 = factors[d], f1 = factors[d + 1], f2 = factors[d + 2], f3 = factors[d + 3];
    const A *r0 = rows + d * stride, *r1 = r0 + stride, *r2 = r1 + stride, *r3 = r2 + stride;
    for (std::size_t j = 0; j < width; ++j) {
      sums[j] = sums[j] + f0 * r0[j] + f1 * r1[j] + f2 * r2[j] + f3 * r3[j];
    }
  }
  for (; d < depth; ++d) {
    const A factor = factors[d];
    const A* row = rows + d * stride;
    for (std::size_t j = 0; j < width; ++j) sums[j] += factor * row[j];
  }
}

/// row of scores -> row of probabilities, in double.
template <class A>
void softmax(const A* scores, std::size_t count, std::vector<double>& scratch, A* probabilities) {
  const auto largest = static_cast<double>(*std::max_element(scores, scores + count));
  double sum = 0;
  for (std::size_t j = 0; j < count; ++j) {
    scratch[j] = std::exp(static_cast<double>(scores[j]) - largest);
    sum += scratch[j];
  }
  for (std::size_t j = 0; j < count; ++j) probabilities[j] = static_cast<A>(scratch[j] / sum);
}

/// Where the values of one head of one sequence lie in a [S*B, columns] matrix: a row apart for each token.
struct Slice {
  std::int64_t first = 0;
  std::int64_t step = 0;
};

/// The arithmetic of one head of one sequence, on copies that lie close together.
template <class T>
class Head {
 public:
  using A = Arithmetic<T>;

  explicit Head(const AttentionShape& shape)
      : length_(extent(shape.sequence)),
        depth_(extent(shape.head_dim)),
        score_factor_(A{1} / std::sqrt(static_cast<A>(shape.head_dim))),
        scratch_(length_) {
    for (auto* rows : {&query_, &key_, &value_, &transposed_, &d_query_, &d_key_, &d_value_, &d_context_}) {
      rows->resize(length_ * depth_);
    }
    scores_.resize(length_);
  }

  void forward(const T* qkv, Slice in, A* probabilities, T* context, Slice out) {
    load(qkv, in, 0, query_);
    load(qkv, in, 1, key_);
    load(qkv, in, 2, value_);
    transpose(key_);
    for (A& q : query_) q *= score_factor_;
    std::vector<A>& sums = d_context_;
    std::fill(sums.begin(), sums.end(), A{0});
    for (std::size_t i = 0; i < length_; ++i) {
      A* row = probabilities + i * length_;
      std::fill(scores_.begin(), scores_.end(), A{0});
      accumulate_rows(&query_[i * depth_], transposed_.data(), depth_, length_, i + 1, scores_.data());
      softmax(scores_.data(), i + 1, scratch_, row);
      accumulate_rows(row, value_.data(), i + 1, depth_, depth_, &sums[i * depth_]);
    }
    store(sums, context, out, 0);
  }

  void backward(const T* qkv, Slice in, const A* probabilities, const T* d_context, Slice out, T* d_qkv) {
    load(qkv, in, 0, query_);
    load(qkv, in, 1, key_);
    load(qkv, in, 2, value_);
    load(d_context, out, 0, d_context_);
    transpose(value_);
    for (auto* sums : {&d_query_, &d_key_, &d_value_}) std::fill(sums->begin(), sums->end(), A{0});
    for (std::size_t i = 0; i < length_; ++i) backward_row(i, probabilities + i * length_);
    store(d_query_, d_qkv, in, 0);
    store(d_key_, d_qkv, in, 1);
    store(d_value_, d_qkv, in, 2);
  }

 private:
  /// With P the probabilities, dP = dC V^T and dS = P * (dP - rowsum(P * dP)) / sqrt(D):
  /// dQ = dS K, dK = dS^T Q, dV = P^T dC. One row of them at a time.
  void backward_row(std::size_t i, const A* row) {
    const A* gradient = &d_context_[i * depth_];
    std::fill(scores_.begin(), scores_.end(), A{0});
    accumulate_rows(gradient, transposed_.data(), depth_, length_, i + 1, scores_.data());
    double weighted = 0;
    for (std::size_t j = 0; j <= i; ++j) {
      weighted += static_cast<double>(row[j]) * static_cast<double>(scores_[j]);
    }
    const auto mean = static_cast<A>(weighted);
    for (std::size_t j = 0; j <= i; ++j) scores_[j] = row[j] * (scores_[j] - mean) * score_factor_;
    accumulate_rows(scores_.data(), key_.data(), i + 1, depth_, depth_, &d_query_[i * depth_]);
    const A* query = &query_[i * depth_];
    for (std::size_t j = 0; j <= i; ++j) {
      A* d_key = &d_key_[j * depth_];
      A* d_value = &d_value_[j * depth_];
      const A score = scores_[j];
      const A probability = row[j];
      for (std::size_t d = 0; d < depth_; ++d) {
        d_key[d] += score * query[d];
        d_value[d] += probability * gradient[d];
      }
    }
  }

  /// The part-th run of depth_ values of every token (q, k, v are parts 0, 1, 2).
  void load(const T* matrix, Slice slice, std::size_t part, std::vector<A>& rows) const {
    const T* token = matrix + slice.first + static_cast<std::int64_t>(part * depth_);
    for (std::size_t i = 0; i < length_; ++i, token += slice.step) {
      for (std::size_t d = 0; d < depth_; ++d) rows[i * depth_ + d] = widen(token[d]);
    }
  }
  void store(const std::vector<A>& rows, T* matrix, Slice slice, std::size_t part) const {
    T* token = matrix + slice.first + static_cast<std::int64_t>(part * depth_);
    for (std::size_t i = 0; i < length_; ++i, token += slice.step) {
      for (std::size_t d = 0; d < depth_; ++d) token[d] = narrow<T>(rows[i * depth_ + d]);
    }
  }
  void transpose(const std::vector<A>& rows) {
    for (std::size_t i = 0; i < length_; ++i) {
      for (std::size_t d = 0; d < depth_; ++d) transposed_[d * length_ + i] = rows[i * depth_ + d];
    }
  }

  std::size_t length_;
  std::size_t depth_;
  A score_factor_;
  std::vector<A> query_, key_, value_;  ///< [S, D]
  std::vector<A> transposed_;           ///< [D, S], of the keys (forward) or the values (backward)
  std::vector<A> d_query_, d_key_, d_value_, d_context_;
  std::vector<A> scores_;
  std::vector<double> scratch_;
};

/// action(slice of qkv, slice of context, first element of the probabilities) for every head of every
/// sequence.
template <class Action>
void for_each_head(const AttentionShape& shape, Action&& action) {
  const std::int64_t width = shape.heads * shape.head_dim;
  for (std::int64_t sequence = 0; sequence < shape.batch; ++sequence) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const std::int64_t column = head * shape.head_dim;
      action(Slice{sequence * 3 * width + 3 * column, shape.batch * 3 * width},
             Slice{sequence * width + column, shape.batch * width},
             (sequence * shape.heads + head) * shape.sequence * shape.sequence);
    }
  }
}

}  // namespace

Tensor attention_forward(const AttentionShape& shape, const TensorView& qkv,
                         const MutableTensorView& context) {
  constexpr std::string_view kOperation = "attention_forward";
  require_attention_shape(kOperation, shape);
  const std::int64_t tokens = shape.sequence * shape.batch;
  const std::int64_t width = shape.heads * shape.head_dim;
  require_matrix(kOperation, "qkv", qkv, qkv.dtype(), tokens, 3 * width);
  require_matrix(kOperation, "context", context, qkv.dtype(), tokens, width);
  return with_compute_dtype(kOperation, "qkv", qkv.dtype(), [&]<class T>(std::type_identity<T>) {
    Tensor probabilities(accumulation_dtype(qkv.dtype()),
                         {shape.batch, shape.heads, shape.sequence, shape.sequence});
    const T* in = qkv.values<T>().data();
    T* out = context.values<T>().data();
    Arithmetic<T>* saved = probabilities.values<Arithmetic<T>>().data();
    Head<T> head(shape);
    for_each_head(shape, [&](Slice of_qkv, Slice of_context, std::int64_t first) {
      head.forward(in, of_qkv, saved + first, out, of_context);
    });
    return probabilities;
  });
}

void attention_backward(const AttentionShape& shape, const TensorView& qkv, const TensorView& probabilities,
                        const TensorView& dcontext, const MutableTensorView& dqkv) {
  constexpr std::string_view kOperation = "attention_backward";
  require_attention_shape(kOperation, shape);
  const std::int64_t tokens = shape.sequence * shape.batch;
  const std::int64_t width = shape.heads * shape.head_dim;
  require_matrix(kOperation, "qkv", qkv, qkv.dtype(), tokens, 3 * width);
  require_tensor(kOperation, "probabilities", probabilities, accumulation_dtype(qkv.dtype()),
                 {shape.batch, shape.heads, shape.sequence, shape.sequence});
  require_matrix(kOperation, "dcontext", dcontext, qkv.dtype(), tokens, width);
  require_matrix(kOperation, "dqkv", dqkv, qkv.dtype(), tokens, 3 * width);
  with_compute_dtype(kOperation, "qkv", qkv.dtype(), [&]<class T>(std::type_identity<T>) {
    const T* in = qkv.values<T>().data();
    const T* gradient = dcontext.values<T>().data();
    const Arithmetic<T>* saved = probabilities.values<Arithmetic<T>>().data();
    T* out = dqkv.values<T>().data();
    Head<T> head(shape);
    for_each_head(shape, [&](Slice of_qkv, Slice of_context, std::int64_t first) {
      head.backward(in, of_qkv, saved + first, gradient, of_context, out);
    });
  });
}

}  // namespace amaxscope::megatron
