// Since when a line's share of the energy rises: lines whose logarithm is made of straight pieces, with and
// without noise. Energies here are those of line 0 against a rest of 1.
#include "runtime/stats/energy_history.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>

#include "core/error.hpp"

namespace amaxscope {
namespace {

using Octaves = std::function<double(int)>;

/// What is said about line 0 after `steps` due iterations, which are `apart` iterations apart.
std::optional<std::int64_t> since(const Octaves& octaves, int steps, int apart = 1) {
  EnergyHistory history;
  for (int step = 0; step < steps; ++step)
    history.add(step * std::int64_t{apart}, std::array{std::exp2(octaves(step)), 1.0});
  return history.rising_since(0);
}

/// Of -0.5 to 0.5, the same on every machine.
double noise(int step) { return std::fmod(0.6180339887 * (step + 1) * (step + 3), 1.0) - 0.5; }

TEST(EnergyHistory, ALineThatBendsUpwards) {
  const auto bend = [](int step) { return step < 12 ? -8.0 : -8.0 + 0.3 * (step - 11); };
  EXPECT_EQ(since(bend, 15), std::nullopt) << "0.9 octaves";
  for (const int steps : {17, 20, 30}) EXPECT_EQ(since(bend, steps, 5), 60) << steps;
  // The rest rises with the line: only against it is anything said of a line.
  EnergyHistory both;
  for (int step = 0; step < 24; ++step)
    both.add(step, std::array{std::exp2(bend(step)), std::exp2(bend(step))});
  EXPECT_EQ(both.rising_since(0), std::nullopt);
}

TEST(EnergyHistory, UnderADriftAndNoise) {
  for (const double drift : {-0.05, 0.03}) {
    const auto octaves = [&](int step) {
      return -8 + drift * step + 0.1 * noise(step) + (step < 10 ? 0.0 : 0.3 * (step - 9));
    };
    const auto found = since(octaves, 22);
    ASSERT_TRUE(found) << drift;
    EXPECT_NEAR(static_cast<double>(*found), 10, 1) << drift;
  }
}

TEST(EnergyHistory, AStepUpwards) {
  EXPECT_EQ(since([](int step) { return step < 9 ? -8 + 0.01 * step : -6 + 0.01 * step; }, 20), 9);
}

TEST(EnergyHistory, WhatHasNoBeginning) {
  EXPECT_EQ(since([](int) { return -3.0; }, 24), std::nullopt) << "level";
  EXPECT_EQ(since([](int step) { return -9 + 0.2 * step; }, 24), std::nullopt) << "always rising";
  EXPECT_EQ(since([](int step) { return step < 12 ? -3.0 : -3 - 0.3 * step; }, 24), std::nullopt) << "falls";
  EXPECT_EQ(since([](int step) { return -8 + 4 * noise(step); }, 30), std::nullopt)
      << "noise of four octaves";
  EXPECT_EQ(since([](int step) { return step < 4 ? -8.0 : 0.0; }, 5), std::nullopt) << "too short to tell";
}

TEST(EnergyHistory, LongRunsAreRememberedMoreCoarsely) {
  const auto bend = [](int step) { return step < 600 ? -8.0 : -8.0 + 0.01 * (step - 599); };
  const auto found = since(bend, 1000);
  ASSERT_TRUE(found);
  EXPECT_NEAR(static_cast<double>(*found), 600, 64) << "between 17 and 32 points of 1000";
  // The newest counts, whatever is forgotten.
  EnergyHistory history;
  for (int step = 0; step < 1000; ++step) history.add(step, std::array{std::exp2(bend(step)), 1.0});
  EXPECT_LE(history.saved().size(), 4 + 2 * EnergyHistory::kMostPoints);
  EXPECT_EQ(history.saved()[history.saved().size() - 2], 999U);
}

TEST(EnergyHistory, SavedAndRestoredItGoesOn) {
  const auto bend = [](int step) { return step < 40 ? -8.0 : -8.0 + 0.2 * (step - 39); };
  EnergyHistory whole;
  for (int step = 0; step < 60; ++step) {
    whole.add(step, std::array{std::exp2(bend(step)), 0.5, 0.25, 0.125, 0.125});
    EnergyHistory next;
    next.restore(whole.saved());
    EXPECT_EQ(next.saved(), whole.saved());
    whole = next;
  }
  const auto found = whole.rising_since(0);
  ASSERT_TRUE(found);
  EXPECT_NEAR(static_cast<double>(*found), 40, 2);
  EXPECT_EQ(whole.rising_since(1), std::nullopt);
  EXPECT_EQ(whole.rising_since(5), std::nullopt) << "there is none";
}

TEST(EnergyHistory, AnotherNumberOfLinesOrTooManyOfThem) {
  EnergyHistory history;
  history.add(0, std::array{1.0, 2.0});
  history.add(1, std::array{1.0, 2.0, 3.0});
  EXPECT_EQ(history.saved()[3], 1U) << "begun anew";
  history.add(2, std::vector<double>(EnergyHistory::kMostShares / EnergyHistory::kLeastPoints + 1, 1.0));
  EXPECT_EQ(history.saved(), (std::vector<std::uint64_t>{0, 0, 1, 0}));
  history.restore(history.saved());
}

TEST(EnergyHistory, RefusesNumbersThatWouldOverflowLater) {
  EnergyHistory history;
  for (int step = 0; step < 4; ++step) history.add(step, std::array{1.0, 2.0});
  const std::vector<std::uint64_t> sound = history.saved();
  const auto refused = [&](std::size_t at, std::uint64_t word) {
    std::vector<std::uint64_t> wrong = sound;
    wrong.at(at) = word;
    EXPECT_THROW(history.restore(wrong), Error) << at << " " << word;
  };
  refused(1, std::uint64_t{1} << 63U);  // seen
  refused(2, std::uint64_t{1} << 63U);  // the stride, which doubles: then 0, by which is divided
  refused(4, std::uint64_t{1} << 63U);  // the first iteration: negative
  refused(4, std::uint64_t{1} << 62U);
  refused(6, 0);  // the second, after the first
}

TEST(EnergyHistory, RefusesWhatItHasNotWritten) {
  EnergyHistory history;
  history.add(0, std::array{1.0, 2.0});
  const std::vector<std::uint64_t> sound = history.saved();
  for (std::size_t i = 0; i < sound.size(); ++i)
    EXPECT_THROW(history.restore(std::span(sound).first(i)), Error) << i;
  for (const std::size_t at : {0U, 2U, 3U}) {
    for (const std::uint64_t word : {std::uint64_t{0}, ~std::uint64_t{0}}) {
      std::vector<std::uint64_t> wrong = sound;
      wrong[at] = word;
      EXPECT_THROW(history.restore(wrong), Error) << at << " " << word;
    }
  }
  EXPECT_EQ(history.saved(), sound) << "a refusal changes nothing";
}

}  // namespace
}  // namespace amaxscope
