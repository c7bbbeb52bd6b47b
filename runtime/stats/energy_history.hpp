// Which share of a tensor's energy each of its lines (columns or rows) had at past due iterations, in bounded
// memory, and since when the share of one has been rising. A value type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace amaxscope {

class EnergyHistory {
 public:
  /// Due iterations that are remembered. When they are more, every second is forgotten and from then on only
  /// every second is taken up, and so on; the newest is always there.
  static constexpr std::size_t kMostPoints = 32;
  /// Numbers of two bytes in all: tensors of more lines than a kMostPoints-th of it remember fewer points,
  /// and nothing when these would be fewer than kLeastPoints.
  static constexpr std::size_t kMostShares = 1U << 19;
  static constexpr std::size_t kLeastPoints = 8;

  /// Sums of squares of all lines of the tensor at a due iteration; iterations only grow. With another number
  /// of lines than before everything before is forgotten.
  void add(std::int64_t iteration, std::span<const double> energies);

  /// The due iteration with which a line began to rise: where the logarithm of its energy against that of
  /// all others is best described by two straight lines, one up to the iteration before and one from it on
  /// (least squares). None unless the second rises, ends an octave above the first (its amplitude has grown
  /// by 1.4), and two describe the past at least twice as well as one: noise and a steady drift have no
  /// beginning.
  [[nodiscard]] std::optional<std::int64_t> rising_since(std::size_t line) const;

  [[nodiscard]] std::vector<std::uint64_t> saved() const;
  /// Takes up what saved() gave. Throws Error(kInput) for words that are none.
  void restore(std::span<const std::uint64_t> words);

 private:
  /// Bytes matter here: a point is one number of two bytes a line.
  struct Point {
    std::int64_t iteration = 0;
    std::vector<std::int16_t> odds;  ///< log2 of energy against the rest, in 1/256
  };
  [[nodiscard]] std::size_t most_points() const noexcept;
  void thin();

  std::size_t lines_ = 0;
  std::uint64_t seen_ = 0;    ///< due iterations
  std::uint64_t stride_ = 1;  ///< of which one is kept
  std::vector<Point> points_;
};

}  // namespace amaxscope
