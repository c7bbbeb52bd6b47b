#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <random>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "megatron/ops/loss.hpp"
#include "tests/megatron/tensors.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::HasSubstr;
using namespace amaxscope::megatron::testing;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<std::int32_t> random_targets(std::int64_t count, std::int32_t vocabulary) {
  std::mt19937 generator(5);
  std::vector<std::int32_t> targets;
  for (std::int64_t m = 0; m < count; ++m) {
    targets.push_back(static_cast<std::int32_t>(generator() % static_cast<std::uint32_t>(vocabulary)));
  }
  return targets;
}

struct Outcome {
  std::vector<double> losses;  ///< by rank
  Tensor dlogits;              ///< of the whole vocabulary
};

Outcome over_ranks(int ranks, const Tensor& logits, const std::vector<std::int32_t>& targets, double scale) {
  const std::int64_t width = logits.cols() / ranks;
  Outcome outcome{std::vector<double>(static_cast<std::size_t>(ranks)), {}};
  std::vector<Tensor> parts(static_cast<std::size_t>(ranks));
  run_loopback_ranks(ranks, [&](Communicator& group) {
    const Tensor own = block(logits.view(), 0, logits.rows(), group.rank() * width, width);
    LossResult result = cross_entropy(own.view(), targets, scale, &group);
    outcome.losses[static_cast<std::size_t>(group.rank())] = result.mean_loss;
    parts[static_cast<std::size_t>(group.rank())] = std::move(result.dlogits);
  });
  outcome.dlogits = beside(parts);
  return outcome;
}

TEST(CrossEntropy, HandWorkedRow) {
  // exp of the logits is 1, 2, 5: probabilities 1/8, 2/8, 5/8, and the loss of the second is ln 4.
  const Tensor logits = Tensor::of<double>({0, std::log(2.0), std::log(5.0)}, {1, 3});
  const std::vector<std::int32_t> targets = {1};
  const LossResult result = cross_entropy(logits.view(), targets, 16, nullptr);
  EXPECT_NEAR(result.mean_loss, std::log(4.0), 1e-15);
  const auto dlogits = to_doubles(result.dlogits.view());
  EXPECT_NEAR(dlogits[0], 2, 1e-14);
  EXPECT_NEAR(dlogits[1], -12, 1e-14);
  EXPECT_NEAR(dlogits[2], 10, 1e-14);
}

TEST(CrossEntropy, EqualLogitsCostTheLogarithmOfTheVocabulary) {
  for (const float level : {0.0F, 1e4F, -1e4F}) {
    Tensor logits(DType::kF32, {3, 256});
    for (float& value : logits.values<float>()) value = level;
    const std::vector<std::int32_t> targets = {0, 100, 255};
    EXPECT_NEAR(cross_entropy(logits.view(), targets, 1, nullptr).mean_loss, std::log(256.0), 1e-14);
  }
}

TEST(CrossEntropy, MeanIsOverTokens) {
  // The first token's loss is ln 2, the second's 0 in double.
  const Tensor logits = Tensor::of<double>({1, 1, 2000, -2000}, {2, 2});
  const std::vector<std::int32_t> targets = {1, 0};
  EXPECT_NEAR(cross_entropy(logits.view(), targets, 1, nullptr).mean_loss, std::log(2.0) / 2, 1e-15);
}

TEST(CrossEntropy, GradientAgreesWithFiniteDifferencesOfTheMean) {
  Tensor logits = random_tensor(DType::kF64, {5, 12}, 31, 3.0);
  const auto targets = random_targets(5, 12);
  const LossResult result = cross_entropy(logits.view(), targets, 1.0 / 5, nullptr);
  EXPECT_LT(gradient_error(logits, result.dlogits,
                           [&] { return cross_entropy(logits.view(), targets, 1, nullptr).mean_loss; }),
            1e-6);
}

TEST(CrossEntropy, AgreesWithLongDouble) {
  const Tensor logits = random_tensor(DType::kF32, {20, 256}, 32, 8.0);
  const auto targets = random_targets(20, 256);
  long double wanted = 0;
  for (std::size_t m = 0; m < 20; ++m) {
    long double sum = 0;
    for (std::size_t v = 0; v < 256; ++v) {
      sum += std::exp(static_cast<long double>(logits.values<float>()[m * 256 + v]));
    }
    const auto target = static_cast<std::size_t>(targets[m]);
    wanted += std::log(sum) - static_cast<long double>(logits.values<float>()[m * 256 + target]);
  }
  EXPECT_NEAR(cross_entropy(logits.view(), targets, 1, nullptr).mean_loss, static_cast<double>(wanted / 20),
              1e-14);
}

TEST(CrossEntropy, IsTheSameBitsForEverySplitOfTheVocabulary) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (const std::int64_t vocabulary : {4, 12, 256}) {
      const Tensor logits = random_tensor(dtype, {33, vocabulary}, 33, 10.0);
      const auto targets = random_targets(33, static_cast<std::int32_t>(vocabulary));
      const LossResult whole = cross_entropy(logits.view(), targets, 1.0 / 33, nullptr);
      for (const int ranks : {1, 2, 4}) {
        const Outcome split = over_ranks(ranks, logits, targets, 1.0 / 33);
        for (const double loss : split.losses)
          EXPECT_EQ(loss, whole.mean_loss) << to_string(dtype) << ' ' << ranks;
        EXPECT_EQ(bits(split.dlogits.view()), bits(whole.dlogits.view())) << to_string(dtype) << ' ' << ranks;
      }
    }
  }
}

TEST(CrossEntropy, GradientIsRoundedOnce) {
  const Tensor logits = random_tensor(DType::kBF16, {9, 16}, 34, 4.0);
  const auto targets = random_targets(9, 16);
  const Tensor wide = converted(logits.view(), DType::kF64);
  const Tensor exact = cross_entropy(wide.view(), targets, 1.0 / 9, nullptr).dlogits;
  EXPECT_EQ(bits(cross_entropy(logits.view(), targets, 1.0 / 9, nullptr).dlogits.view()),
            bits(converted(exact.view(), DType::kBF16).view()));
}

TEST(CrossEntropy, MakesTwoCollectivesOfTheTrainer) {
  const Tensor logits = random_tensor(DType::kF32, {10, 8}, 35);
  const auto targets = random_targets(10, 8);
  run_loopback_ranks(2, [&](Communicator& group) {
    const Tensor own = block(logits.view(), 0, 10, group.rank() * 4, 4);
    const std::uint64_t before = group.counters().calls(Traffic::kTrainer);
    (void)cross_entropy(own.view(), targets, 1, &group);
    group.barrier({Traffic::kDebug, "test"});
    // Counters are shared by the ranks of one process or not; either way each rank adds two.
    EXPECT_EQ((group.counters().calls(Traffic::kTrainer) - before) % 2, 0U);
    EXPECT_GE(group.counters().calls(Traffic::kTrainer) - before, 2U);
    EXPECT_EQ(group.counters().calls(Traffic::kRecipe), 0U);
  });
}

TEST(CrossEntropy, LogitsThatAreNoNumbersMakeTheLossNan) {
  const std::vector<std::int32_t> targets = {3, 0};
  for (const double bad : {kNan, kInfinity}) {
    for (const std::size_t where : {0U, 3U, 7U}) {
      Tensor logits = random_tensor(DType::kF64, {2, 8}, 36);
      logits.values<double>()[where] = bad;
      for (const int ranks : {1, 2, 4}) {
        const Outcome outcome = over_ranks(ranks, logits, targets, 1);
        for (const double loss : outcome.losses) EXPECT_TRUE(std::isnan(loss)) << bad << " at " << where;
        const auto dlogits = to_doubles(outcome.dlogits.view());
        for (std::size_t i = 0; i < 16; ++i)
          EXPECT_EQ(std::isnan(dlogits[i]), i < 8) << bad << ": element " << i;
      }
    }
  }
}

TEST(CrossEntropy, ImpossibleClassesHaveNoProbability) {
  Tensor logits = Tensor::of<double>({-kInfinity, 0, 0, -kInfinity}, {1, 4});
  const std::vector<std::int32_t> possible = {1};
  const std::vector<std::int32_t> impossible = {3};
  const Outcome outcome = over_ranks(2, logits, possible, 1);
  EXPECT_NEAR(outcome.losses[0], std::log(2.0), 1e-15);
  EXPECT_EQ(to_doubles(outcome.dlogits.view()), (std::vector<double>{0, -0.5, 0.5, 0}));
  EXPECT_EQ(over_ranks(2, logits, impossible, 1).losses[1], kInfinity);
  for (double& value : logits.values<double>()) value = -kInfinity;
  EXPECT_TRUE(std::isnan(over_ranks(2, logits, possible, 1).losses[0]));
}

TEST(CrossEntropy, OneClassCostsNothing) {
  const Tensor logits = Tensor::of<double>({5, -3}, {2, 1});
  const std::vector<std::int32_t> targets = {0, 0};
  const LossResult result = cross_entropy(logits.view(), targets, 1, nullptr);
  EXPECT_EQ(result.mean_loss, 0);
  EXPECT_EQ(to_doubles(result.dlogits.view()), (std::vector<double>{0, 0}));
}

TEST(CrossEntropy, RefusesTargetsThatDoNotFit) {
  const Tensor logits(DType::kF32, {2, 4});
  const auto message = [&](const std::vector<std::int32_t>& targets) -> std::string {
    try {
      (void)cross_entropy(logits.view(), targets, 1, nullptr);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTensor);
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message({0, 4}), AllOf(HasSubstr("target 4 of row 1"), HasSubstr("vocabulary of 4")));
  EXPECT_THAT(message({-1, 0}), HasSubstr("target -1 of row 0"));
  EXPECT_THAT(message({0}), HasSubstr("1 targets for 2 rows"));
  const std::vector<std::int32_t> none;
  EXPECT_THROW((void)cross_entropy(Tensor(DType::kF32, {0, 4}).view(), none, 1, nullptr), Error);
  // Within the group's vocabulary of 8 this target is allowed, on the rank that holds it and on the other.
  run_loopback_ranks(2, [&](Communicator& group) {
    EXPECT_NO_THROW((void)cross_entropy(logits.view(), std::vector<std::int32_t>{0, 7}, 1, &group));
    EXPECT_THROW((void)cross_entropy(logits.view(), std::vector<std::int32_t>{0, 8}, 1, &group), Error);
  });
}

}  // namespace
}  // namespace amaxscope::megatron
