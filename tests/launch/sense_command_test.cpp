// `amaxscope sense` on the built-in trainer, whose steps have a fault planted.
#include "tests/launch/train_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::HasSubstr;

class SenseCommand : public TrainFixture {
 protected:
  ProgramResult sense(int ranks, const std::vector<std::string>& changes) const {
    std::vector<std::string> arguments = small({"--steps", "8"});
    arguments[0] = "sense";
    arguments.insert(arguments.end(), changes.begin(), changes.end());
    return amaxscope_job(ranks, arguments);
  }
};

TEST_F(SenseCommand, NamesTheLayerWithThePlantedScaleWhateverTheSplit) {
  for (const std::vector<std::string>& split :
       {std::vector<std::string>{"--tp", "2", "--sequence-parallel"}, {"--pp", "2", "--layers", "2"}}) {
    std::vector<std::string> changes = {
        "--at",    "4",        "--recipe",
        "current", "--inject", "scale_off@layer=decoder.layers.1.mlp.linear_fc2,tensor=weight,k=8",
        "--json"};
    changes.insert(changes.end(), split.begin(), split.end());
    const ProgramResult result = sense(2, changes);
    ASSERT_EQ(result.status, 0) << result.err;
    const nlohmann::json json = nlohmann::json::parse(result.out);
    const auto& ranked = json.at("ranked");
    const auto layer =
        std::ranges::find_if(ranked, [](const auto& row) { return row.at("kind") == "layer"; });
    ASSERT_NE(layer, ranked.end());
    EXPECT_EQ(layer->at("what"), "decoder.layers.1.mlp.linear_fc2") << result.out;
    EXPECT_GT(layer->at("gradient_goes"), 0.5);
    EXPECT_GT(layer->at("gradient_alone"), 0.5);
    const auto tensor =
        std::ranges::find_if(ranked, [](const auto& row) { return row.at("kind") == "tensor"; });
    ASSERT_NE(tensor, ranked.end());
    EXPECT_TRUE(lines_of(result.err).empty()) << result.err;
  }
}

TEST_F(SenseCommand, SaysWhatItCannotDo) {
  const auto refused = [&](const std::vector<std::string>& changes) {
    const ProgramResult result = sense(1, changes);
    EXPECT_EQ(result.status, 2) << result.err;
    return result.err;
  };
  EXPECT_THAT(refused({"--at", "8"}), HasSubstr("--at 8: the training has iterations 0 to 7 (--steps 8)"));
  EXPECT_THAT(refused({"--at", "1", "--config", "observe.yaml"}),
              HasSubstr("leave --config, --preset and --plugin out"));
  EXPECT_THAT(refused({"--at", "1", "--recipe", "none"}), HasSubstr("nothing is quantized"));
}

TEST_F(SenseCommand, BeginsWithASavedStateAndGivesTheSameNumbers) {
  const std::vector<std::string> at = {"--at", "4", "--recipe", "delayed", "--json"};
  const ProgramResult direct = sense(1, at);
  ASSERT_EQ(direct.status, 0) << direct.err;
  const ProgramResult train = amaxscope_job(
      1, small({"--steps", "8", "--recipe", "delayed", "--save-every", "3", "--save-dir", "states"}));
  ASSERT_EQ(train.status, 0) << train.err;
  std::vector<std::string> resumed = at;
  resumed.insert(resumed.end(), {"--resume", "states/iter_000003"});
  const ProgramResult from_state = sense(1, resumed);
  ASSERT_EQ(from_state.status, 0) << from_state.err;
  EXPECT_EQ(from_state.out, direct.out);
}

}  // namespace
}  // namespace amaxscope::test
