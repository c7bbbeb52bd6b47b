#include "launch/analyze_pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "kernels/update_stats.hpp"

namespace amaxscope::launch {

namespace {

constexpr std::int64_t kPieceElements = 1 << 20;

/// Elements first .. first + count of a tensor, in double.
Tensor read_doubles(const TensorFile& file, const StoredTensor& tensor, std::int64_t first,
                    std::int64_t count) {
  Tensor piece(*tensor.dtype, Shape{count});
  file.read_elements(tensor, first, piece);
  if (piece.dtype() == DType::kF64) return piece;
  Tensor wide(DType::kF64, Shape{count});
  convert(piece.view(), wide);
  return wide;
}

void require_alike(const TensorFile& file, const StoredTensor& tensor, const TensorFile& other_file,
                   const StoredTensor& other) {
  AMAXSCOPE_CHECK(tensor.extents == other.extents, ErrorCode::kInput,
                  "tensor {} has another shape in {} than in {}; they cannot be compared", tensor.name,
                  other_file.path().string(), file.path().string());
}

/// Updates that a weight stored in this dtype does not take up.
std::uint64_t lost_updates(const Tensor& now, const Tensor& before, DType stored) {
  Tensor update(DType::kF64, before.shape());
  for (std::size_t i = 0; i < update.values<double>().size(); ++i) {
    update.values<double>()[i] = now.values<double>()[i] - before.values<double>()[i];
  }
  Tensor weight(stored, before.shape());
  convert(before.view(), weight);
  return update_stats(weight, update).lost;
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

UpdateHealth update_health(const TensorFile& now, const StoredTensor& tensor, const TensorFile& before,
                           const StoredTensor& other, DType stored) {
  require_alike(now, tensor, before, other);
  const Shape shape = tensor.shape();
  const std::int64_t columns = std::max<std::int64_t>(1, shape.cols());
  UpdateHealth health;
  bool row_zero = true;
  bool row_unchanged = true;
  for (std::int64_t first = 0; first < shape.numel(); first += kPieceElements) {
    const std::int64_t count = std::min(kPieceElements, shape.numel() - first);
    const Tensor new_values = read_doubles(now, tensor, first, count);
    const Tensor old_values = read_doubles(before, other, first, count);
    health.lost += lost_updates(new_values, old_values, stored);
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = new_values.values<double>()[static_cast<std::size_t>(i)];
      const double weight = old_values.values<double>()[static_cast<std::size_t>(i)];
      row_zero = row_zero && value == 0.0;
      row_unchanged = row_unchanged && value == weight;
      if (std::isfinite(value) && std::isfinite(weight)) {
        const double update = value - weight;
        ++health.elements;
        health.changed += static_cast<std::uint64_t>(update != 0.0);
        health.update_squares += update * update;
        health.weight_squares += weight * weight;
      } else {
        ++health.nonfinite;
      }
      if ((first + i + 1) % columns != 0) continue;
      ++health.rows;
      health.zero_rows += static_cast<std::uint64_t>(std::exchange(row_zero, true));
      health.unchanged_rows += static_cast<std::uint64_t>(std::exchange(row_unchanged, true));
    }
  }
  return health;
}

std::vector<AnalyzeRow> rows_of(const UpdateHealth& health, const std::string& file,
                                const std::string& tensor) {
  std::vector<AnalyzeRow> rows;
  const auto add = [&](const char* stat, double value) {
    rows.push_back({file, tensor, "none", stat, value});
  };
  if (health.weight_squares > 0)
    add("update_ratio", std::sqrt(health.update_squares / health.weight_squares));
  if (health.changed > 0) add("lost_updates%", percent(health.lost, health.changed));
  add("unchanged%", percent(health.elements - health.changed, health.elements));
  add("rows", static_cast<double>(health.rows));
  add("zero_rows", static_cast<double>(health.zero_rows));
  add("unchanged_rows", static_cast<double>(health.unchanged_rows));
  add("nonfinite", static_cast<double>(health.nonfinite));
  return rows;
}

ReplicaDifference replica_difference(const TensorFile& file, const StoredTensor& tensor,
                                     const TensorFile& replica, const StoredTensor& other) {
  require_alike(file, tensor, replica, other);
  AMAXSCOPE_CHECK(tensor.dtype == other.dtype, ErrorCode::kInput, "tensor {} is {} in {} and {} in {}",
                  tensor.name, tensor.type, file.path().string(), other.type, replica.path().string());
  const std::int64_t numel = tensor.shape().numel();
  const auto width = static_cast<std::size_t>(bits_per_element(*tensor.dtype)) / 8;
  ReplicaDifference result;
  for (std::int64_t first = 0; first < numel; first += kPieceElements) {
    const std::int64_t count = std::min(kPieceElements, numel - first);
    Tensor a(*tensor.dtype, Shape{count});
    Tensor b(*tensor.dtype, Shape{count});
    file.read_elements(tensor, first, a);
    replica.read_elements(other, first, b);
    result.elements += static_cast<std::uint64_t>(count);
    const auto* const left = static_cast<const std::byte*>(a.view().data());
    const auto* const right = static_cast<const std::byte*>(b.view().data());
    if (std::memcmp(left, right, a.bytes()) == 0) continue;
    const bool numbers = is_high_precision(*tensor.dtype);
    const Tensor left_values = numbers ? read_doubles(file, tensor, first, count) : Tensor();
    const Tensor right_values = numbers ? read_doubles(replica, other, first, count) : Tensor();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * width;
      if (std::memcmp(left + at, right + at, width) == 0) continue;
      ++result.differing;
      if (result.first < 0) result.first = first + i;
      if (!numbers) continue;
      const double difference = std::abs(left_values.values<double>()[static_cast<std::size_t>(i)] -
                                         right_values.values<double>()[static_cast<std::size_t>(i)]);
      if (std::isfinite(difference)) result.largest = std::max(result.largest, difference);
    }
  }
  return result;
}

std::vector<AnalyzeRow> rows_of(const ReplicaDifference& difference, const std::string& file,
                                const std::string& tensor) {
  std::vector<AnalyzeRow> rows;
  const auto add = [&](const char* stat, double value) {
    rows.push_back({file, tensor, "none", stat, value});
  };
  add("differing", static_cast<double>(difference.differing));
  add("differing%", percent(difference.differing, difference.elements));
  if (difference.differing == 0) return rows;
  add("first_difference", static_cast<double>(difference.first));
  add("largest_difference", difference.largest);
  return rows;
}

}  // namespace amaxscope::launch
