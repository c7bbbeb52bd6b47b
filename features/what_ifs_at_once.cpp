#include "features/what_ifs_at_once.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "kernels/quantization_error.hpp"

namespace amaxscope {

namespace {

TensorView rows_of(const TensorView& x, std::int64_t first, std::int64_t count) {
  const std::size_t width = static_cast<std::size_t>(bits_per_element(x.dtype())) / 8;
  const auto* start =
      static_cast<const std::byte*>(x.data()) + static_cast<std::size_t>(first * x.row_stride()) * width;
  return {start, x.dtype(), {count, x.cols()}, x.device(), x.stream(), x.row_stride()};
}

}  // namespace

std::int64_t rows_at_once(const TensorView& x) {
  constexpr std::int64_t kBlockRows = 128;
  constexpr std::int64_t kBytes = std::int64_t{1} << 20;
  // The least multiple of kBlockRows whose elements are a multiple of kErrorBlock.
  const std::int64_t to_fill = kErrorBlock / kBlockRows;
  const std::int64_t unit = kBlockRows * (to_fill / std::gcd(to_fill, x.cols()));
  const std::int64_t bytes = unit * x.cols() * bits_per_element(x.dtype()) / 8;
  return unit * std::max<std::int64_t>(1, (kBytes + bytes - 1) / bytes);
}

std::vector<WhatIf::Result> measure_at_once(const InspectContext& context,
                                            std::span<const WhatIfRequest> requests) {
  std::vector<WhatIf::Parts> parts;
  for (const WhatIfRequest& request : requests) {
    parts.push_back(request.what_if->start(context, request.wanted));
  }
  const TensorView& x = context.x;
  const std::int64_t step = rows_at_once(x);
  for (std::int64_t first = 0; first < x.rows(); first += step) {
    const TensorView rows = rows_of(x, first, std::min(step, x.rows() - first));
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].what_if->add_rows(rows, first, context.moment, parts[i]);
    }
  }
  std::vector<WhatIf::Result> results;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    results.push_back(requests[i].what_if->finish(x, std::move(parts[i])));
  }
  return results;
}

}  // namespace amaxscope
