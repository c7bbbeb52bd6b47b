#include "megatron/layers/grouped_linear.hpp"

#include <fmt/format.h>

#include <cstring>

#include "core/error.hpp"
#include "kernels/block_scale.hpp"

namespace amaxscope::megatron {

namespace {

/// The rows of one expert, and rows of zeros below them up to a multiple.
Tensor filled_rows(const TensorView& matrix, std::int64_t first, std::int64_t count, std::int64_t multiple) {
  Tensor rows(matrix.dtype(), {BlockLayout::up(count, multiple), matrix.cols()});  // zeroed
  if (count == 0) return rows;
  const auto* const data = static_cast<const std::byte*>(matrix.data());
  std::memcpy(rows.mutable_view().data(), data + size_bytes(matrix.dtype(), first * matrix.cols()),
              size_bytes(matrix.dtype(), count * matrix.cols()));
  return rows;
}

/// The rows that the experts were given, one below the other: as many of each part as `rows` says.
Tensor joined(const std::vector<Tensor>& parts, std::span<const std::int64_t> rows, std::int64_t total) {
  Tensor all(parts.front().dtype(), {total, parts.front().cols()});
  auto* out = static_cast<std::byte*>(all.mutable_view().data());
  for (std::size_t expert = 0; expert < parts.size(); ++expert) {
    const std::size_t bytes = size_bytes(all.dtype(), rows[expert] * all.cols());
    if (bytes == 0) continue;
    std::memcpy(out, parts[expert].view().data(), bytes);
    out += bytes;
  }
  return all;
}

/// action(expert, its rows, filled up to a multiple) for each; the given rows of what they return.
template <class Action>
Tensor for_each_expert(const TensorView& x, std::span<const std::int64_t> rows, std::int64_t multiple,
                       Action&& action) {
  std::int64_t total = 0;
  for (const std::int64_t count : rows) total += count;
  AMAXSCOPE_CHECK(total == x.rows(), ErrorCode::kTensor, "{} rows for experts that have {} in all", x.rows(),
                  total);
  std::vector<Tensor> parts;
  std::int64_t first = 0;
  for (std::size_t expert = 0; expert < rows.size(); ++expert) {
    parts.push_back(action(expert, filled_rows(x, first, rows[expert], multiple)));
    first += rows[expert];
  }
  return joined(parts, rows, total);
}

}  // namespace

std::string expert_gemm_name(std::string_view group, int expert) {
  return fmt::format("{}.gemm_{}", group, expert);
}

GroupedLinear::GroupedLinear(const LayerContext& context, ParallelMode mode, const LinearOptions& options,
                             int experts)
    : row_multiple_(required_multiple(context.recipe)) {
  AMAXSCOPE_CHECK(experts >= 1, ErrorCode::kUsage, "layer {}: {} experts, at least 1 is needed", options.name,
                  experts);
  AMAXSCOPE_CHECK(!context.splits_sequence(), ErrorCode::kUsage,
                  "layer {}: the rows of an expert cannot be split over tp", options.name);
  for (int expert = 0; expert < experts; ++expert) {
    LinearOptions own = options;
    own.name = expert_gemm_name(options.name, expert);
    own.expert = expert;
    experts_.push_back(std::make_unique<Linear>(context, mode, std::move(own)));
  }
}

Tensor GroupedLinear::forward(const TensorView& x, std::span<const std::int64_t> rows,
                              const TensorMoment& moment, Saved* saved) {
  if (saved != nullptr) saved->experts.resize(experts_.size());
  return for_each_expert(x, rows, row_multiple_, [&](std::size_t expert, Tensor own) {
    return experts_[expert]->forward(std::move(own), moment,
                                     saved != nullptr ? &saved->experts[expert] : nullptr);
  });
}

Tensor GroupedLinear::backward(const TensorView& dy, std::span<const std::int64_t> rows,
                               const TensorMoment& moment, Saved& saved) {
  return for_each_expert(dy, rows, row_multiple_, [&](std::size_t expert, const Tensor& own) {
    return experts_[expert]->backward(own.view(), moment, saved.experts.at(expert));
  });
}

void GroupedLinear::collect(std::vector<Parameter*>& parameters) {
  for (const std::unique_ptr<Linear>& expert : experts_) expert->collect(parameters);
}

}  // namespace amaxscope::megatron
