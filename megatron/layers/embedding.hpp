// Byte and position embedding: the first layer of the model. The token table is split over tp by vocabulary,
// the position table, if there is one, is replicated. Under sequence parallelism the result is this rank's
// slice of the rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "megatron/context.hpp"
#include "megatron/parameter.hpp"

namespace amaxscope::megatron {

struct EmbeddingOptions {
  std::int64_t vocabulary = 0;
  std::int64_t sequence = 0;
  std::int64_t hidden = 0;
  double initial_std = 0.02;
  bool learned_positions = true;
};

/// The word table of this rank: [V/tp, H]. The same numbers wherever it is made from the same options, so
/// that the last pipeline stage's output layer starts as a copy of the first's.
Parameter make_embedding_table(const LayerContext& context, std::int64_t vocabulary, std::int64_t hidden,
                               double initial_std);

class Embedding {
 public:
  /// Throws Error(kUsage) when the vocabulary, or with sequence parallelism the sequence, is not divisible by
  /// tp.
  Embedding(const LayerContext& context, const EmbeddingOptions& options);
  Embedding(const Embedding&) = delete;
  Embedding& operator=(const Embedding&) = delete;

  /// ids [S*B] in [s, b] order; returns [S*B, H], or [S*B/t, H] under sequence parallelism.
  Tensor forward(std::span<const std::int32_t> ids) const;
  /// Adds to the gradient of the positions, and that of the table to `table_gradient`, of its shape.
  void backward(const TensorView& dy, std::span<const std::int32_t> ids,
                const MutableTensorView& table_gradient);
  /// [V/t, H], shared with the output layer.
  [[nodiscard]] Parameter& table() noexcept { return table_; }
  void collect(std::vector<Parameter*>& parameters);

 private:
  /// Rows [B, H] of one position in a [.., H] matrix that starts at this rank's first position.
  struct Positions {
    std::int64_t first;
    std::int64_t count;
    std::int64_t batch;
  };
  [[nodiscard]] Positions local_positions(std::int64_t tokens) const;

  LayerContext context_;
  EmbeddingOptions options_;
  Parameter table_;
  Parameter positions_;
};

}  // namespace amaxscope::megatron
