#include "core/shape.hpp"

#include <fmt/ranges.h>

#include "core/error.hpp"

namespace amaxscope {

Shape::Shape(std::initializer_list<std::int64_t> extents)
    : Shape(std::span<const std::int64_t>(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const std::int64_t> extents) : rank_(static_cast<int>(extents.size())) {
  AMAXSCOPE_CHECK(extents.size() <= kMaxRank, ErrorCode::kTensor,
                  "a tensor has at most {} dimensions, got {}", kMaxRank, extents.size());
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 62;
  std::int64_t product = 1;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    AMAXSCOPE_CHECK(extents[i] >= 0, ErrorCode::kTensor, "negative extent {} in dimension {}", extents[i], i);
    extents_[i] = extents[i];
    AMAXSCOPE_CHECK(extents[i] == 0 || product <= kMaxElements / extents[i], ErrorCode::kTensor,
                    "a tensor of shape [{}] has too many elements", fmt::join(extents, ", "));
    if (extents[i] != 0) product *= extents[i];
  }
}

std::int64_t Shape::numel() const noexcept {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents()) product *= extent;
  return product;
}

std::int64_t Shape::rows() const noexcept {
  std::int64_t product = 1;
  for (int i = 0; i + 1 < rank_; ++i) product *= (*this)[i];
  return product;
}

std::int64_t Shape::cols() const noexcept { return rank_ == 0 ? 1 : (*this)[rank_ - 1]; }

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.extents(), ", ")); }

}  // namespace amaxscope
