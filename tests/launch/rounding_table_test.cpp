// The table of report/rounding_table.inc against what it was made of: a small training and the same
// perturbed twice, made here and now.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "report/rounding_noise.hpp"
#include "tests/launch/train_fixture.hpp"

namespace amaxscope::test {
namespace {

using report::Arithmetic;
using report::Measure;
using report::Precision;

struct Seen {
  std::string tensor;
  std::string stat;
  double live = 0;   ///< largest distance of the two trainings
  double table = 0;  ///< what the table has for it, up to the same iteration
};

class RoundingTable : public TrainFixture,
                      public ::testing::WithParamInterface<std::tuple<const char*, Arithmetic>> {
 protected:
  void train(const std::string& log_dir, const char* seed) const {
    // The sizes of bench/rounding/table.
    std::vector<std::string> arguments = {"train", "--data",    "data.txt", "--log-dir",
                                          log_dir, "--perturb", seed};
    for (const char* word : {"--config", AMAXSCOPE_SOURCE_DIR "/bench/rounding/config.yaml", "--steps", "4",
                             "--layers", "2", "--hidden", "64", "--heads", "4", "--seq", "64", "--batch", "8",
                             "--recipe", std::get<0>(GetParam())}) {
      arguments.emplace_back(word);
    }
    const ProgramResult result = amaxscope(arguments);
    ASSERT_EQ(result.status, 0) << result.err;
  }
  [[nodiscard]] std::vector<Seen> compared() const {
    Precision precision;
    precision.used[static_cast<std::size_t>(std::get<1>(GetParam()))] = true;
    train("reference", "0");
    train("perturbed", "7");
    train("again", "8");
    const ProgramResult result = amaxscope(
        {"diff", "reference", "reference", "--perturbed", "perturbed", "--perturbed", "again", "--json"});
    const nlohmann::json json = nlohmann::json::parse(result.out);
    std::vector<Seen> all;
    for (const auto& each : json.at("noise")) {
      const std::string stat = each.at("stat");
      const Measure measure = report::measure_of(stat);
      if (measure == Measure::kExact || measure == Measure::kNone) continue;
      const std::string tensor = each.at("tensor");
      all.push_back(
          {tensor, stat, each.at("distance"), tabulated_noise(precision, tensor, stat, measure, 3)});
    }
    return all;
  }
};

// What rounding does in a training on another text, under other perturbations, is within the tolerance that
// comes from the table, but for a few of its rare events; and the table is no wild overestimate.
TEST_P(RoundingTable, IsWhatALiveDerivationGives) {
  Precision precision;
  precision.used[static_cast<std::size_t>(std::get<1>(GetParam()))] = true;
  const report::RoundingNoise noise(precision);
  std::vector<double> ratios;  // log2 of table over live
  std::size_t beyond = 0;
  std::string which;
  const std::vector<Seen> all = compared();
  for (const Seen& each : all) {
    if (each.live > noise.tolerance(each.tensor, each.stat, report::measure_of(each.stat), 3)) {
      ++beyond;
      which += each.tensor + " " + each.stat + "; ";
    }
    if (each.live > 0 && each.table > 0) ratios.push_back(std::log2(each.table / each.live));
  }
  ASSERT_GT(all.size(), 150U);
  ASSERT_GT(ratios.size(), 80U);
  EXPECT_LE(beyond, all.size() / 50) << which;
  std::ranges::sort(ratios);
  const double middle = ratios[ratios.size() / 2];
  EXPECT_GT(middle, -1.0) << "half of what is seen here, or less";
  EXPECT_LT(middle, 4.0) << "16 times what is seen here, or more";
}

INSTANTIATE_TEST_SUITE_P(Recipes, RoundingTable,
                         ::testing::Values(std::tuple{"delayed", Arithmetic::kTensorScales},
                                           std::tuple{"mxfp8", Arithmetic::kBlockScales}),
                         [](const auto& made) { return std::string(std::get<0>(made.param)); });

}  // namespace
}  // namespace amaxscope::test
