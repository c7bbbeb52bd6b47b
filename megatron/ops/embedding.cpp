#include <algorithm>
#include <vector>

#include "megatron/ops/compute.hpp"
#include "megatron/ops/loss.hpp"

namespace amaxscope::megatron {

namespace {

/// Ranks of the group, and the rows of the table that this one holds.
struct Part {
  int ranks = 1;
  std::int64_t first = 0;
  std::int64_t rows = 0;
};

Part part_of(const TensorView& weight, const Communicator* group) {
  if (group == nullptr) return {1, 0, weight.rows()};
  return {group->size(), group->rank() * weight.rows(), weight.rows()};
}

void require_ids(std::string_view operation, std::span<const std::int32_t> ids, const Part& part) {
  const std::int64_t vocabulary = part.ranks * part.rows;
  for (std::size_t m = 0; m < ids.size(); ++m) {
    AMAXSCOPE_CHECK(ids[m] >= 0 && ids[m] < vocabulary, ErrorCode::kTensor,
                    "{}: id {} at position {} is outside the vocabulary of {}", operation, ids[m], m,
                    vocabulary);
  }
}

/// The number of rows of `out` or `dout`: all tokens, or this rank's share of them.
std::int64_t local_tokens(std::string_view operation, std::size_t tokens, const Part& part,
                          bool sequence_parallel) {
  const auto count = static_cast<std::int64_t>(tokens);
  if (!sequence_parallel) return count;
  AMAXSCOPE_CHECK(count % part.ranks == 0, ErrorCode::kTensor,
                  "{}: {} tokens cannot be split evenly over the {} ranks of the tensor-parallel group",
                  operation, count, part.ranks);
  return count / part.ranks;
}

}  // namespace

void embedding_forward(const TensorView& weight, std::span<const std::int32_t> ids, Communicator* tp_group,
                       bool sequence_parallel, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "embedding_forward";
  constexpr CollectiveTag kTag = {Traffic::kTrainer, "embedding"};
  const Part part = part_of(weight, tp_group);
  const std::int64_t width = weight.cols();
  require_contiguous(kOperation, "weight", weight);
  require_matrix(kOperation, "out", out, weight.dtype(),
                 local_tokens(kOperation, ids.size(), part, sequence_parallel), width);
  require_ids(kOperation, ids, part);
  const bool scatters = sequence_parallel && part.ranks > 1;
  Tensor summands;
  if (scatters) summands = Tensor(weight.dtype(), {static_cast<std::int64_t>(ids.size()), width});
  const MutableTensorView rows = scatters ? summands.mutable_view() : out;
  with_compute_dtype(kOperation, "weight", weight.dtype(), [&]<class T>(std::type_identity<T>) {
    const T* table = weight.values<T>().data();
    T* row = rows.values<T>().data();
    for (const std::int32_t id : ids) {
      const std::int64_t local = id - part.first;
      if (local < 0 || local >= part.rows) {
        std::fill_n(row, width, T{});
      } else {
        // + 0 turns -0 into +0, as the sum with other ranks' zeros does.
        std::transform(table + local * width, table + (local + 1) * width, row,
                       [](T x) { return narrow<T>(widen(x) + Arithmetic<T>{0}); });
      }
      row += width;
    }
  });
  if (scatters) {
    tp_group->reduce_scatter(rows, out, ReduceOp::kSum, kTag);
  } else if (part.ranks > 1) {
    tp_group->all_reduce(rows, ReduceOp::kSum, kTag);
  }
}

void embedding_backward(const TensorView& dout, std::span<const std::int32_t> ids, Communicator* tp_group,
                        bool sequence_parallel, const MutableTensorView& dweight) {
  constexpr std::string_view kOperation = "embedding_backward";
  const Part part = part_of(dweight, tp_group);
  const std::int64_t width = dweight.cols();
  require_contiguous(kOperation, "dout", dout);
  require_contiguous(kOperation, "dweight", dweight);
  require_matrix(kOperation, "dout", dout, dout.dtype(),
                 local_tokens(kOperation, ids.size(), part, sequence_parallel), width);
  AMAXSCOPE_CHECK(dweight.dtype() == accumulation_dtype(dout.dtype()), ErrorCode::kTensor,
                  "{}: dweight is {} for a {} dout, wanted {}", kOperation, to_string(dweight.dtype()),
                  to_string(dout.dtype()), to_string(accumulation_dtype(dout.dtype())));
  require_ids(kOperation, ids, part);
  Tensor gathered;
  TensorView gradient = dout;
  if (sequence_parallel && part.ranks > 1) {
    gathered = Tensor(dout.dtype(), {static_cast<std::int64_t>(ids.size()), width});
    tp_group->all_gather(dout, gathered, {Traffic::kTrainer, "embedding gradient"});
    gradient = gathered.view();
  }
  with_compute_dtype(kOperation, "dout", dout.dtype(), [&]<class T>(std::type_identity<T>) {
    using A = Arithmetic<T>;
    const auto total = dweight.values<A>();
    // A frequent byte meets thousands of summands, so they are summed in double and rounded once.
    std::vector<double> sums(total.size());
    const T* row = gradient.values<T>().data();
    for (const std::int32_t id : ids) {
      const std::int64_t local = id - part.first;
      if (local >= 0 && local < part.rows) {
        double* sum = sums.data() + local * width;
        for (std::int64_t i = 0; i < width; ++i) sum[i] += widen_to_double(row[i]);
      }
      row += width;
    }
    for (std::size_t i = 0; i < total.size(); ++i)
      total[i] = static_cast<A>(static_cast<double>(total[i]) + sums[i]);
  });
}

}  // namespace amaxscope::megatron
