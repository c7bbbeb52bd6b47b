// Two files against each other: what training did to a checkpoint, and whether replicas are equal. Pieces of
// bounded size are in memory at a time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/analyze_rows.hpp"
#include "runtime/storage/tensor_file.hpp"

namespace amaxscope::launch {

/// What happened to the weights between two checkpoints. update = now - before; an update is lost when it is
/// not zero and a weight stored in the dtype stays the same when it is added (kernels/update_stats.hpp). Rows
/// are those of the matrix [M, K].
struct UpdateHealth {
  std::uint64_t elements = 0;  ///< of which both values are finite
  std::uint64_t nonfinite = 0;
  std::uint64_t changed = 0;  ///< update is not zero
  std::uint64_t lost = 0;
  std::uint64_t rows = 0;
  std::uint64_t zero_rows = 0;       ///< all zero in `now`
  std::uint64_t unchanged_rows = 0;  ///< no element changed
  double update_squares = 0;
  double weight_squares = 0;  ///< of `before`
};

/// Tensors of the same shape in f64, f32, f16 or bf16. stored: f32, f16 or bf16. Throws Error(kInput) when
/// they cannot be compared.
UpdateHealth update_health(const TensorFile& now, const StoredTensor& tensor, const TensorFile& before,
                           const StoredTensor& other, DType stored);
/// update_ratio (rms over rms), lost_updates% (of the changed elements), unchanged%, zero_rows,
/// unchanged_rows, nonfinite.
std::vector<AnalyzeRow> rows_of(const UpdateHealth& health, const std::string& file,
                                const std::string& tensor);

/// Where two replicas of a tensor differ, bit for bit.
struct ReplicaDifference {
  std::uint64_t elements = 0;
  std::uint64_t differing = 0;
  std::int64_t first = -1;  ///< index of the first element that differs
  double largest = 0;       ///< largest difference of finite values
};
/// Tensors of the same shape and type. Throws Error(kInput).
ReplicaDifference replica_difference(const TensorFile& file, const StoredTensor& tensor,
                                     const TensorFile& replica, const StoredTensor& other);
/// differing, differing%, and where something differs first_difference and largest_difference.
std::vector<AnalyzeRow> rows_of(const ReplicaDifference& difference, const std::string& file,
                                const std::string& tensor);

}  // namespace amaxscope::launch
