#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "megatron/ops/compute.hpp"
#include "megatron/ops/loss.hpp"

namespace amaxscope::megatron {

namespace {

constexpr std::string_view kOperation = "cross_entropy";
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The vocabulary of the whole group and where this rank's slice lies in it.
struct Slice {
  std::int64_t first = 0;
  std::int64_t width = 0;
  std::int64_t vocabulary = 0;
};

/// The largest logit of a row; +inf also when one is NaN, so that a MAX over ranks cannot lose it.
template <class T>
double row_peak(const T* row, std::int64_t width) {
  double peak = -kInfinity;
  for (std::int64_t i = 0; i < width; ++i) {
    const double logit = widen_to_double(row[i]);
    if (!(logit <= peak)) peak = std::isnan(logit) ? kInfinity : logit;
  }
  return peak;
}

/// Exponentials are summed as integers of 1/units: integer addition gives the same sum for every split and
/// order. The largest power of two with vocabulary * units <= 2^62 (each term is 1 at most), so that no sum
/// overflows.
std::int64_t units_of_one(std::int64_t vocabulary) {
  return std::int64_t{1} << (62 - std::bit_width(static_cast<std::uint64_t>(vocabulary - 1)));
}

/// Sum of exp(logit - peak) in units. Terms of a row with a NaN or an infinite peak are not numbers; they are
/// left out here, and finish_row makes that row NaN.
template <class T>
std::int64_t row_sum(const T* row, std::int64_t width, double peak, double units) {
  if (!std::isfinite(peak)) return 0;
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    sum += static_cast<std::int64_t>(std::exp(widen_to_double(row[i]) - peak) * units + 0.5);
  }
  return sum;
}

void require_targets(std::span<const std::int32_t> targets, std::int64_t rows, std::int64_t vocabulary) {
  AMAXSCOPE_CHECK(rows >= 1 && static_cast<std::int64_t>(targets.size()) == rows, ErrorCode::kTensor,
                  "{}: {} targets for {} rows of logits; there must be as many, and one at least", kOperation,
                  targets.size(), rows);
  for (std::size_t m = 0; m < targets.size(); ++m) {
    AMAXSCOPE_CHECK(targets[m] >= 0 && targets[m] < vocabulary, ErrorCode::kTensor,
                    "{}: target {} of row {} is outside the vocabulary of {}", kOperation, targets[m], m,
                    vocabulary);
  }
}

Tensor reduce_peaks(Tensor peaks, Communicator* group) {
  if (group != nullptr) {
    group->all_reduce(peaks, ReduceOp::kMax, {Traffic::kTrainer, "cross entropy: largest logit"});
  }
  return peaks;
}

/// [2, M]: the sums, and the bits of the target's logit minus the peak, which only the rank that holds it
/// gives.
template <class T>
Tensor reduce_sums(const T* logits, const Slice& slice, std::span<const std::int32_t> targets,
                   std::span<const double> peaks, double units, Communicator* group) {
  const std::size_t rows = peaks.size();
  Tensor packed(DType::kI64, {2, static_cast<std::int64_t>(rows)});
  const auto words = packed.values<std::int64_t>();
  for (std::size_t m = 0; m < rows; ++m) {
    const T* row = logits + static_cast<std::int64_t>(m) * slice.width;
    words[m] = row_sum(row, slice.width, peaks[m], units);
    const std::int64_t local = targets[m] - slice.first;
    if (local < 0 || local >= slice.width) continue;
    words[rows + m] = std::bit_cast<std::int64_t>(widen_to_double(row[local]) - peaks[m]);
  }
  if (group != nullptr) {
    group->all_reduce(packed, ReduceOp::kSum, {Traffic::kTrainer, "cross entropy: sums of exponentials"});
  }
  return packed;
}

/// (softmax - onehot) * scale, NaN throughout when the peak is no finite number.
template <class T>
void row_gradient(const T* logits, const Slice& slice, std::int64_t target, double peak, double sum,
                  double scale, T* out) {
  const double factor = std::isfinite(peak) ? 1.0 / sum : std::numeric_limits<double>::quiet_NaN();
  for (std::int64_t i = 0; i < slice.width; ++i) {
    const double probability = std::exp(widen_to_double(logits[i]) - peak) * factor;
    const double onehot = slice.first + i == target ? 1.0 : 0.0;
    out[i] = narrow<T>((probability - onehot) * scale);
  }
}

}  // namespace

LossResult cross_entropy(const TensorView& logits, std::span<const std::int32_t> targets, double scale,
                         Communicator* tp_group) {
  require_contiguous(kOperation, "logits", logits);
  const int ranks = tp_group == nullptr ? 1 : tp_group->size();
  const int rank = tp_group == nullptr ? 0 : tp_group->rank();
  if (ranks == 1) tp_group = nullptr;
  const std::int64_t width = logits.cols();
  AMAXSCOPE_CHECK(width >= 1, ErrorCode::kTensor, "{}: logits of shape {} have no column", kOperation,
                  to_string(logits.shape()));
  const Slice slice{rank * width, width, ranks * width};
  require_targets(targets, logits.rows(), slice.vocabulary);
  const auto units = static_cast<double>(units_of_one(slice.vocabulary));

  return with_compute_dtype(kOperation, "logits", logits.dtype(), [&]<class T>(std::type_identity<T>) {
    const T* in = logits.values<T>().data();
    Tensor own_peaks(DType::kF64, {logits.rows()});
    for (std::int64_t m = 0; m < logits.rows(); ++m) {
      own_peaks.values<double>()[static_cast<std::size_t>(m)] = row_peak(in + m * width, width);
    }
    const Tensor peaks = reduce_peaks(std::move(own_peaks), tp_group);
    const auto peak_of = peaks.values<double>();
    const Tensor packed = reduce_sums(in, slice, targets, peak_of, units, tp_group);
    const auto words = packed.values<std::int64_t>();

    LossResult result{0, Tensor(logits.dtype(), logits.shape())};
    T* out = result.dlogits.values<T>().data();
    for (std::size_t m = 0; m < targets.size(); ++m) {
      const double sum = static_cast<double>(words[m]) / units;
      const std::int64_t offset = static_cast<std::int64_t>(m) * width;
      row_gradient(in + offset, slice, targets[m], peak_of[m], sum, scale, out + offset);
      const double shifted_target = std::bit_cast<double>(words[targets.size() + m]);
      result.mean_loss += std::isfinite(peak_of[m]) ? std::log(sum) - shifted_target
                                                    : std::numeric_limits<double>::quiet_NaN();
    }
    result.mean_loss /= static_cast<double>(targets.size());
    return result;
  });
}

}  // namespace amaxscope::megatron
