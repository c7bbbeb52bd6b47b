#include "runtime/stats/energy_history.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr double kUnit = 256.0;
constexpr double kFarthest = 127.0;                           ///< octaves that two bytes hold
constexpr std::size_t kLeastOfASide = 3;                      ///< points of a straight line
constexpr double kRise = 1.0;                                 ///< octaves of energy
constexpr double kBetter = 0.5;                               ///< of the error of one line
constexpr std::size_t kSharesOfAWord = 4;                     ///< in saved words
constexpr std::size_t kWordsOfTheHead = 4;                    ///< lines, seen, stride, points
constexpr std::uint64_t kMostSeen = std::uint64_t{1} << 53U;  ///< iterations that a saved state may speak of

std::int16_t log_odds(double energy, double rest) {
  double octaves = -kFarthest;
  if (energy > 0) octaves = rest > 0 ? std::log2(energy / rest) : kFarthest;
  return static_cast<std::int16_t>(std::lround(kUnit * std::clamp(octaves, -kFarthest, kFarthest)));
}

/// A straight line through points, by least squares.
struct Fit {
  double slope = 0;
  double offset = 0;
  double error = 0;  ///< sum of squares
  [[nodiscard]] double at(double x) const { return offset + slope * x; }
};

Fit fit(std::span<const double> xs, std::span<const double> ys) {
  const auto count = static_cast<double>(xs.size());
  const double mean_x = std::accumulate(xs.begin(), xs.end(), 0.0) / count;
  const double mean_y = std::accumulate(ys.begin(), ys.end(), 0.0) / count;
  double xx = 0;
  double xy = 0;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    xx += (xs[i] - mean_x) * (xs[i] - mean_x);
    xy += (xs[i] - mean_x) * (ys[i] - mean_y);
  }
  Fit line;
  line.slope = xx > 0 ? xy / xx : 0;
  line.offset = mean_y - line.slope * mean_x;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const double off = ys[i] - line.at(xs[i]);
    line.error += off * off;
  }
  return line;
}

}  // namespace

std::size_t EnergyHistory::most_points() const noexcept {
  return std::min(kMostPoints, kMostShares / std::max<std::size_t>(lines_, 1));
}

void EnergyHistory::add(std::int64_t iteration, std::span<const double> energies) {
  if (energies.size() != lines_) *this = {};
  if (energies.empty() || energies.size() * kLeastPoints > kMostShares) return;
  lines_ = energies.size();
  // The newest that is not one of those to be kept gives way.
  if (seen_ > 0 && (seen_ - 1) % stride_ != 0) points_.pop_back();
  ++seen_;
  const double all = std::accumulate(energies.begin(), energies.end(), 0.0);
  Point point{.iteration = iteration, .odds = {}};
  point.odds.reserve(lines_);
  for (const double energy : energies) point.odds.push_back(log_odds(energy, all - energy));
  points_.push_back(std::move(point));
  if (points_.size() > most_points()) thin();
}

void EnergyHistory::thin() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (i % 2 == 0 || i + 1 == points_.size()) std::swap(points_[kept++], points_[i]);
  }
  points_.resize(kept);
  stride_ *= 2;
}

std::optional<std::int64_t> EnergyHistory::rising_since(std::size_t line) const {
  const std::size_t count = points_.size();
  if (line >= lines_ || count < 2 * kLeastOfASide) return std::nullopt;
  std::vector<double> xs;
  std::vector<double> ys;
  for (const Point& point : points_) {
    xs.push_back(static_cast<double>(point.iteration - points_.front().iteration));
    ys.push_back(static_cast<double>(point.odds[line]) / kUnit);
  }
  const std::span<const double> x(xs);
  const std::span<const double> y(ys);
  Fit before;
  Fit after;
  std::size_t change = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t at = kLeastOfASide; at + kLeastOfASide <= count; ++at) {
    const Fit left = fit(x.first(at), y.first(at));
    const Fit right = fit(x.subspan(at), y.subspan(at));
    if (left.error + right.error >= least) continue;
    least = left.error + right.error;
    before = left;
    after = right;
    change = at;
  }
  const double level = std::max(before.at(xs.front()), before.at(xs[change - 1]));
  if (!(after.slope > 0) || after.at(xs.back()) < level + kRise) return std::nullopt;
  if (least > kBetter * fit(x, y).error) return std::nullopt;
  return points_[change].iteration;
}

std::vector<std::uint64_t> EnergyHistory::saved() const {
  std::vector<std::uint64_t> words = {lines_, seen_, stride_, points_.size()};
  for (const Point& point : points_) {
    words.push_back(std::bit_cast<std::uint64_t>(point.iteration));
    for (std::size_t at = 0; at < lines_; at += kSharesOfAWord) {
      std::uint64_t word = 0;
      for (std::size_t i = 0; i < kSharesOfAWord && at + i < lines_; ++i)
        word |= std::uint64_t{std::bit_cast<std::uint16_t>(point.odds[at + i])} << (16U * i);
      words.push_back(word);
    }
  }
  return words;
}

void EnergyHistory::restore(std::span<const std::uint64_t> words) {
  EnergyHistory history;
  std::size_t points = 0;
  if (words.size() >= kWordsOfTheHead && words[0] <= kMostShares && words[3] <= kMostPoints) {
    history.lines_ = words[0];
    history.seen_ = words[1];
    history.stride_ = words[2];
    points = words[3];
  }
  const std::size_t words_a_point = 1 + (history.lines_ + kSharesOfAWord - 1) / kSharesOfAWord;
  // Of a stride that is not bounded the double would be 0 one day.
  AMAXSCOPE_CHECK(words.size() == kWordsOfTheHead + points * words_a_point &&
                      points <= history.most_points() && std::has_single_bit(history.stride_) &&
                      history.stride_ <= kMostSeen && history.seen_ <= kMostSeen &&
                      (points == 0) == (history.seen_ == 0),
                  ErrorCode::kInput, "saved shares of energy: {} words do not hold {} points of {} lines",
                  words.size(), points, history.lines_);
  for (std::size_t p = 0; p < points; ++p) {
    const auto own = words.subspan(kWordsOfTheHead + p * words_a_point, words_a_point);
    Point point{.iteration = std::bit_cast<std::int64_t>(own[0]), .odds = {}};
    const std::int64_t before = p == 0 ? -1 : history.points_.back().iteration;
    AMAXSCOPE_CHECK(point.iteration > before && own[0] <= kMostSeen, ErrorCode::kInput,
                    "saved shares of energy: iteration {} after {}", point.iteration, before);
    for (std::size_t i = 0; i < history.lines_; ++i) {
      const std::uint64_t word = own[1 + i / kSharesOfAWord] >> (16U * (i % kSharesOfAWord));
      point.odds.push_back(std::bit_cast<std::int16_t>(static_cast<std::uint16_t>(word)));
    }
    history.points_.push_back(std::move(point));
  }
  *this = std::move(history);
}

}  // namespace amaxscope
