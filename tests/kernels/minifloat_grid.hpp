// An independent statement of what a cast to a small float does: all values of the format in a table, the
// nearest one in exact double arithmetic, ties to the even code, saturation. Nothing here is shared with the
// codecs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace amaxscope::test {

class MinifloatGrid {
 public:
  /// Codes 0 .. max_code are the non-negative finite values; nan_code is what NaN becomes.
  MinifloatGrid(int mantissa_bits, int bias, std::uint8_t max_code, std::uint8_t sign_bit,
                std::uint8_t nan_code)
      : sign_bit_(sign_bit), nan_code_(nan_code) {
    const int steps = 1 << mantissa_bits;
    for (int code = 0; code <= max_code; ++code) {
      const int exponent = code / steps;
      const int mantissa = code % steps;
      values_.push_back(exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                      : std::ldexp(mantissa + steps, exponent - bias - mantissa_bits));
    }
  }
  static MinifloatGrid e4m3() { return {3, 7, 0x7E, 0x80, 0x7F}; }
  static MinifloatGrid e5m2() { return {2, 15, 0x7B, 0x80, 0x7F}; }
  static MinifloatGrid e2m1() { return {1, 1, 0x7, 0x8, 0x7}; }

  [[nodiscard]] const std::vector<double>& values() const { return values_; }

  [[nodiscard]] std::uint8_t encode(float x) const {
    if (std::isnan(x)) return nan_code_;
    const double magnitude = std::abs(static_cast<double>(x));
    const auto sign = static_cast<std::uint8_t>(std::signbit(x) ? sign_bit_ : 0);
    const auto above = std::ranges::lower_bound(values_, magnitude);  // first value that is not below
    if (above == values_.end()) return static_cast<std::uint8_t>(sign | (values_.size() - 1));
    auto code = static_cast<std::size_t>(above - values_.begin());
    if (code > 0 && *above != magnitude && rounds_down(magnitude, code - 1)) --code;
    return static_cast<std::uint8_t>(sign | code);
  }

  /// Whether a magnitude between the values of code and code + 1 goes to the former.
  [[nodiscard]] bool rounds_down(double magnitude, std::size_t code) const {
    const double middle = (values_[code] + values_[code + 1]) / 2;  // exact: a few bits each
    return magnitude < middle || (magnitude == middle && code % 2 == 0);
  }

 private:
  std::vector<double> values_;
  std::uint8_t sign_bit_;
  std::uint8_t nan_code_;
};

}  // namespace amaxscope::test
