// Extents of a row-major tensor, up to six dimensions. A value type that never allocates.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace amaxscope {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;  ///< a scalar
  /// Throws Error(kTensor) for a negative extent, more than kMaxRank of them, or more than 2^62 elements.
  Shape(std::initializer_list<std::int64_t> extents);
  explicit Shape(std::span<const std::int64_t> extents);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] std::int64_t operator[](int axis) const noexcept {
    return extents_[static_cast<std::size_t>(axis)];
  }
  [[nodiscard]] std::span<const std::int64_t> extents() const noexcept {
    return {extents_.data(), static_cast<std::size_t>(rank_)};
  }
  [[nodiscard]] std::int64_t numel() const noexcept;
  /// The matrix a kernel sees: rows() is the product of all leading extents, cols() the last one.
  /// A scalar is 1 x 1, a vector 1 x n.
  [[nodiscard]] std::int64_t rows() const noexcept;
  [[nodiscard]] std::int64_t cols() const noexcept;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

/// "[4, 32]"
std::string to_string(const Shape& shape);

}  // namespace amaxscope
