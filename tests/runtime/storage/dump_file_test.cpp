#include "runtime/storage/dump_file.hpp"

#include <algorithm>
#include <set>

#include "tests/runtime/storage/storage_fixture.hpp"

namespace amaxscope {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

std::string name_of(const std::string& layer, const std::string& tensor = "activation", int microbatch = 0,
                    Phase phase = Phase::kForward, int occurrence = 0) {
  return dump_name({.layer = layer,
                    .tensor = tensor,
                    .iteration = 0,
                    .microbatch = microbatch,
                    .phase = phase,
                    .occurrence = occurrence});
}

TEST(DumpName, ReadsLikeItsTensor) {
  EXPECT_EQ(name_of("decoder.layers.1.mlp.linear_fc1"),
            "decoder.layers.1.mlp.linear_fc1.activation.mb0.forward");
  EXPECT_EQ(name_of("a/b", "weight", 3, Phase::kEval), "a%2Fb.weight.mb3.eval");
  EXPECT_EQ(name_of("a b"), "a%20b.activation.mb0.forward");
  EXPECT_EQ(name_of(".."), "%2E..activation.mb0.forward");
  EXPECT_EQ(name_of("50%"), "50%25.activation.mb0.forward");
  EXPECT_EQ(name_of("\xC3\xA9"), "%C3%A9.activation.mb0.forward");
  EXPECT_EQ(name_of("x", "of.two", 0, Phase::kForward, 2), "x.of%2Etwo.mb0.forward.2");
}

TEST(DumpName, TellsApartEverythingAndLeavesNoFolder) {
  const std::vector<std::string> words = {"a/b", "a b", "a%20b", "a%2Fb", "..", ".", "../../etc/passwd", "/",
                                          "", "a", "a.b", "A", "\xC3\xA9", "e", "%", "a.activation",
                                          "a.activation.mb0.forward", std::string("a\0b", 3), "a\nb",
                                          std::string(300, 'x'), std::string(300, 'x') + "y",
                                          std::string(300, '.'), std::string(150, '/'), std::string(201, 'x'),
                                          // As long as a name that is kept, and like one that is hashed.
                                          std::string(100, 'x') + "-" + std::string(32, '0')};
  std::set<std::string> names;
  std::size_t made = 0;
  for (const std::string& layer : words) {
    for (const std::string& tensor : words) {
      for (const int microbatch : {0, 1, 11}) {
        for (const Phase phase : {Phase::kForward, Phase::kRecompute, Phase::kBackward, Phase::kEval}) {
          for (const int occurrence : {0, 1}) {
            const std::string name = name_of(layer, tensor, microbatch, phase, occurrence);
            ++made;
            names.insert(name);
            EXPECT_LE(name.size() + std::string(".safetensors").size(), 255U);
            EXPECT_NE(name.front(), '.');
            EXPECT_TRUE(std::ranges::all_of(name, [](char c) {
              return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                     std::string("._-%").find(c) != std::string::npos;
            })) << name;
          }
        }
      }
    }
  }
  EXPECT_EQ(names.size(), made);
}

TEST(DumpMetadata, ComesBackAsItWas) {
  DumpMetadata dump;
  dump.identity = {"a b", "gradient", 12, 3, Phase::kBackward, 1};
  dump.rank = 2;
  dump.layout = Layout::kShard1;
  dump.tp_ranks = {2, 3};
  dump.dp_ranks = {0, 2};
  dump.stage_ranks = {0, 1, 2, 3};
  dump.recipe = "delayed";
  dump.format = "e5m2";
  dump.shape = "4,32";
  dump.directions = {{"rowwise_format", "e5m2"}};
  dump.layer_number = 7;
  dump.parallel = ParallelMode::kColumn;
  dump.sequence_parallel = true;
  dump.gathers_before_quantizing = true;
  dump.compute_dtype = DType::kBF16;
  const std::map<std::string, std::string> metadata = to_metadata(dump);
  EXPECT_EQ(metadata.at("tp_ranks"), "2,3");
  EXPECT_EQ(metadata.at("layout"), "shard1");
  EXPECT_EQ(metadata.at("rowwise_format"), "e5m2");
  const DumpMetadata back = parse_dump_metadata(metadata, 2, "file");
  EXPECT_EQ(back.identity, dump.identity);
  EXPECT_THAT(back.tp_ranks, ElementsAre(2, 3));
  EXPECT_THAT(back.dp_ranks, ElementsAre(0, 2));
  EXPECT_THAT(back.stage_ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(back.layout, Layout::kShard1);
  EXPECT_EQ(back.recipe, "delayed");
  EXPECT_EQ(back.layer_number, 7);
  EXPECT_EQ(back.parallel, ParallelMode::kColumn);
  EXPECT_TRUE(back.sequence_parallel);
  EXPECT_TRUE(back.gathers_before_quantizing);
  EXPECT_EQ(back.compute_dtype, DType::kBF16);
  EXPECT_FALSE(back.observed);
}

TEST(DumpMetadata, OfAnotherToolNeedsThreeKeys) {
  const DumpMetadata dump =
      parse_dump_metadata({{"layer", "fc1"}, {"tensor", "activation"}, {"iteration", "5"}}, 3, "file");
  EXPECT_EQ(dump.identity, (DumpIdentity{"fc1", "activation", 5, 0, Phase::kForward, 0}));
  EXPECT_EQ(dump.layout, Layout::kReplicated);
  EXPECT_THAT(dump.tp_ranks, ElementsAre(3));
  EXPECT_THAT(dump.stage_ranks, ElementsAre(3));
  EXPECT_FALSE(dump.parallel.has_value());
  EXPECT_TRUE(
      parse_dump_metadata({{"layer", "x"}, {"tensor", "residual"}, {"iteration", "0"}}, 0, "f").observed);
}

TEST(DumpMetadata, SaysWhatIsWrong) {
  const auto refusal = [](const std::string& key, const std::string& value) {
    std::map<std::string, std::string> metadata = {{"layer", "a"}, {"tensor", "weight"}, {"iteration", "0"}};
    if (value == "-") {
      metadata.erase(key);
    } else {
      metadata[key] = value;
    }
    return error_of([&] { static_cast<void>(parse_dump_metadata(metadata, 1, "x.safetensors")); });
  };
  EXPECT_THAT(refusal("layer", "-"), HasSubstr("input: x.safetensors: its metadata has no \"layer\""));
  EXPECT_THAT(refusal("iteration", "-"), HasSubstr("no \"iteration\""));
  EXPECT_THAT(refusal("iteration", "-5"), HasSubstr("iteration \"-5\", a number from 0"));
  EXPECT_THAT(refusal("iteration", "1x"), HasSubstr("iteration \"1x\""));
  EXPECT_THAT(refusal("iteration", ""), HasSubstr("iteration \"\""));
  EXPECT_THAT(refusal("microbatch", "4294967296"),
              HasSubstr("microbatch \"4294967296\", a number from 0 to 2147483647"));
  EXPECT_THAT(refusal("phase", "sideways"), HasSubstr("allowed are forward, recompute, backward, eval"));
  EXPECT_THAT(refusal("layout", "shard2"), HasSubstr("allowed are replicated, shard0, shard1, partial"));
  EXPECT_THAT(refusal("parallel", "diagonal"), HasSubstr("allowed are none, column, row"));
  EXPECT_THAT(refusal("rank", "0"), HasSubstr("says that it is of rank 0, but lies in the folder of rank 1"));
  for (const char* ranks : {"", "0", "1,0", "1,1", "1,", ",1", "1;2", "a", "-1,1"}) {
    EXPECT_THAT(refusal("tp_ranks", ranks),
                HasSubstr("ascending ranks with commas between them are needed, rank 1"))
        << ranks;
  }
}

}  // namespace
}  // namespace amaxscope
