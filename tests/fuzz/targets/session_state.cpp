// What statistics remember across a restart, from a state that may be anybody's: the file's digest keeps
// accidents out, not strangers. The first byte says whose words follow.
#include <cstring>

#include "runtime/stats/channel_accumulator.hpp"
#include "runtime/stats/energy_history.hpp"
#include "runtime/stats/trend_series.hpp"
#include "tests/fuzz/target.hpp"

namespace amaxscope::fuzz {

namespace {

constexpr std::size_t kWindow = 6;
constexpr std::int64_t kAfter = std::int64_t{1} << 54;  ///< any iteration that a state may speak of

template <class T>
std::string seed_of(char kind, const std::vector<T>& words) {
  std::string bytes(1, kind);
  bytes.append(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(T));
  return bytes;
}

template <class T>
std::vector<T> words_of(std::string_view bytes) {
  std::vector<T> words(bytes.size() / sizeof(T));
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), words.size() * sizeof(T));
  return words;
}

std::vector<double> energies_at(std::int64_t step) {
  return {1.0, 2.0, 4.0 + static_cast<double>(step), 0.0};
}

void go_on(EnergyHistory& history) {
  for (std::int64_t step = 0; step < 2 * static_cast<std::int64_t>(EnergyHistory::kMostPoints); ++step) {
    history.add(kAfter + step, energies_at(step));
    (void)history.rising_since(2);
  }
  (void)history.saved();
}

void go_on(TrendSeries& series) {
  for (std::int64_t step = 0; step < 3 * static_cast<std::int64_t>(kWindow); ++step) {
    series.add(kAfter + step, static_cast<double>(step % 4));
    (void)series.slope();
    (void)series.jump();
    (void)series.span();
    (void)series.reversals();
  }
  (void)series.saved();
}

void go_on(ChannelAccumulator& channels) {
  const std::vector<std::uint32_t> widths = {5};
  for (std::int64_t step = 0; step < 4; ++step) {
    const std::vector<double> sums = energies_at(step);
    channels.advance({.max = widths, .sums = sums, .moments = {}}, kAfter + step);
    (void)channels.values({.max = widths, .sums = sums, .moments = {}});
  }
  (void)channels.saved();
}

}  // namespace

std::vector<std::string> seeds() {
  EnergyHistory history;
  for (std::int64_t step = 0; step < 80; ++step) history.add(step, energies_at(step));
  TrendSeries series(kWindow);
  for (std::int64_t step = 0; step < 40; ++step) series.add(step, step < 20 ? 1.0 : 9.0);
  ChannelAccumulator channels(Lines::kColumns, 2, {});
  const std::vector<std::uint32_t> widths = {5};
  for (std::int64_t step = 0; step < 20; ++step) {
    const std::vector<double> sums = energies_at(step);
    channels.advance({.max = widths, .sums = sums, .moments = {}}, step);
  }
  return {seed_of('e', history.saved()),
          seed_of('e', std::vector<std::uint64_t>{4, 0, 1, 0}),
          seed_of('t', series.saved()),
          seed_of('t', TrendSeries(kWindow).saved()),
          seed_of('c', channels.saved()),
          "e",
          "t",
          "c"};
}

void read(std::string_view bytes) {
  if (bytes.empty()) return;
  const std::string_view rest = bytes.substr(1);
  may_refuse([&] {
    if (bytes.front() == 't') {
      TrendSeries series(kWindow);
      series.restore(words_of<double>(rest));
      go_on(series);
    } else if (bytes.front() == 'c') {
      ChannelAccumulator channels(Lines::kColumns, 2, {});
      channels.restore(words_of<std::uint64_t>(rest));
      go_on(channels);
    } else {
      EnergyHistory history;
      history.restore(words_of<std::uint64_t>(rest));
      go_on(history);
    }
  });
}

}  // namespace amaxscope::fuzz
