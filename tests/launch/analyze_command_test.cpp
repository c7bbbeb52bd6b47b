// `amaxscope analyze`: numbers worked out by hand from small files.
#include "launch/analyze_pairs.hpp"

#include <cmath>

#include "tests/launch/tensor_files_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class AnalyzeCommand : public TensorFilesTest {};

TEST_F(AnalyzeCommand, StatisticsAndErrorsOfATensor) {
  // Scale 448 / 448 = 1: 1.0625 lies between 1 and 1.125, a tie that goes to 1; the others are exact.
  tensors("x.safetensors", {{"w", Tensor::of<float>({448, 1.0625F, -2, 0}, Shape{2, 2})}});
  const nlohmann::json output = json_of({"analyze", "x.safetensors", "--json"});
  EXPECT_EQ(row_value(output, "w", "none", "cur_amax"), 448);
  EXPECT_EQ(row_value(output, "w", "none", "numel"), 4);
  EXPECT_EQ(row_value(output, "w", "none", "nonzero"), 3);
  EXPECT_EQ(row_value(output, "w", "none", "min"), -2);
  EXPECT_EQ(row_value(output, "w", "none", "l1_norm"), 451.0625);
  EXPECT_EQ(row_value(output, "w", "none", "dynamic_range"), std::log2(448 / 1.0625));
  EXPECT_EQ(row_value(output, "w", "current", "mse"), 0.0625 * 0.0625 / 4);
  EXPECT_EQ(row_value(output, "w", "current", "max_error"), 0.0625);
  EXPECT_EQ(row_value(output, "w", "current", "scale_inv_max"), 1);
  EXPECT_EQ(output.at("rows").at(0).at("file"), "x.safetensors");
}

TEST_F(AnalyzeCommand, SelectsTensorsRecipesAndStatistics) {
  tensors("x.safetensors", {{"layers.1.w", Tensor::of<float>({1, 2}, Shape{1, 2})},
                            {"layers.2.w", Tensor::of<float>({3, 4}, Shape{1, 2})},
                            {"norm", Tensor::of<float>({5}, Shape{1})}});
  const nlohmann::json output = json_of({"analyze", "x.safetensors", "--json", "--tensor", R"(layers\.\d\.w)",
                                         "--recipe", "current", "--stats", "mse,cur_amax"});
  std::vector<std::string> rows;
  for (const nlohmann::json& row : output.at("rows")) {
    rows.push_back(row.at("tensor").get<std::string>() + " " + row.at("recipe").get<std::string>() + " " +
                   row.at("stat").get<std::string>());
  }
  EXPECT_THAT(rows, ::testing::UnorderedElementsAre("layers.1.w none cur_amax", "layers.1.w current mse",
                                                    "layers.2.w none cur_amax", "layers.2.w current mse"));
  EXPECT_EQ(row_value(output, "layers.2.w", "none", "cur_amax"), 4);
}

TEST_F(AnalyzeCommand, ReadsEveryKindOfFile) {
  npy("n.npy", Tensor::of<BF16>({BF16{0x4040}}, Shape{1, 1}));  // 3
  tensors("part.safetensors", {{"w", Tensor::of<double>({7}, Shape{1})}});
  write("model.safetensors.index.json", R"({"weight_map":{"w":"part.safetensors"}})");
  const ProgramResult result =
      amaxscope({"analyze", "n.npy", "model.safetensors.index.json", "--json", "--stats", "cur_amax"});
  EXPECT_EQ(result.status, 0) << result.err;
  const nlohmann::json output = nlohmann::json::parse(result.out);
  EXPECT_EQ(row_value(output, "n", "none", "cur_amax"), 3);
  EXPECT_EQ(row_value(output, "w", "none", "cur_amax"), 7);
  EXPECT_THAT(result.err, HasSubstr("f64 tensors are rounded to f32 first"));
}

TEST_F(AnalyzeCommand, WhatHasNoNumbersIsSkippedWithALine) {
  tensors("x.safetensors", {{"ids", Tensor::of<std::int64_t>({1, 2}, Shape{2})},
                            {"codes", Tensor(DType::kE4M3, Shape{2})},
                            {"w", Tensor::of<float>({1}, Shape{1})},
                            {"none", Tensor(DType::kF32, Shape{0, 4})},
                            {"scalar", Tensor::of<float>({6}, Shape{})}});
  const ProgramResult result = amaxscope({"analyze", "x.safetensors", "--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("x.safetensors: tensor ids is skipped: it holds integers (I64)"),
                                HasSubstr("tensor codes is skipped: it holds codes (F8_E4M3)")));
  const nlohmann::json output = nlohmann::json::parse(result.out);
  EXPECT_EQ(output.at("skipped").size(), 2U);
  EXPECT_EQ(row_value(output, "none", "none", "numel"), 0);
  EXPECT_EQ(row_value(output, "scalar", "none", "cur_amax"), 6);
}

TEST_F(AnalyzeCommand, NanAndInfinityAreStringsInJson) {
  npy("x.npy", Tensor::of<float>({NAN, INFINITY, 1}, Shape{1, 3}));
  const nlohmann::json output = json_of({"analyze", "x.npy", "--json", "--recipe", "none"});
  EXPECT_EQ(row_value(output, "x", "none", "max"), "NaN");
  EXPECT_EQ(row_value(output, "x", "none", "nan"), 1);
}

TEST_F(AnalyzeCommand, ATableForPeople) {
  npy("x.npy", Tensor::of<float>({448, 2}, Shape{1, 2}));
  const ProgramResult result =
      amaxscope({"analyze", "x.npy", "--recipe", "current", "--stats", "cur_amax,mse"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "x.npy: x  <f4 [1, 2]\n  cur_amax 448\n  recipe   mse\n  current  0\n\n");
  EXPECT_EQ(result.err, "");
}

TEST_F(AnalyzeCommand, WrongUseEndsWithTwo) {
  npy("x.npy", Tensor::of<float>({1}, Shape{1}));
  const auto refusal = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"analyze"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ProgramResult result = amaxscope(all);
    EXPECT_EQ(result.status, 2) << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal({"absent.npy"}), HasSubstr("absent.npy: there is no such file"));
  EXPECT_THAT(refusal({"x.npy", "--stats", "mean,mes"}),
              AllOf(HasSubstr("--stats mes: unknown statistic"), HasSubstr("mse")));
  EXPECT_THAT(refusal({"x.npy", "--recipe", "curent"}), HasSubstr("--recipe curent: unknown"));
  EXPECT_THAT(refusal({"x.npy", "--tensor", "("}), HasSubstr("--tensor (:"));
  EXPECT_THAT(refusal({"x.npy", "--tensor", "nowhere"}),
              HasSubstr("no tensor of a name in which --tensor is found"));
  EXPECT_THAT(refusal({"x.npy", "--stored-dtype", "bf16"}), HasSubstr("only together with --against"));
  EXPECT_THAT(refusal({"x.npy", "--against", "x.npy", "--replicas", "x.npy"}), HasSubstr("give one of them"));
  EXPECT_THAT(refusal({"x.npy", "x.npy", "--replicas", "x.npy"}), HasSubstr("compares one file with others"));
  write("hostile.safetensors", std::string(8, '\xFF'));
  EXPECT_THAT(refusal({"hostile.safetensors"}), HasSubstr("hostile.safetensors: says that its header has"));
}

// Before [[1, 2], [0, 0], [4, 8]], after [[1.001, 2], [0, 0], [4.5, 8]]: two changes. In bf16 half an ulp of
// 1 is 2^-8: 0.001 is lost, 0.5 is not.
TEST_F(AnalyzeCommand, WhatUpdatesDidToACheckpoint) {
  tensors("before.safetensors", {{"w", Tensor::of<float>({1, 2, 0, 0, 4, 8}, Shape{3, 2})},
                                 {"gone", Tensor(DType::kF32, Shape{1})}});
  tensors("after.safetensors", {{"w", Tensor::of<float>({1.001F, 2, 0, 0, 4.5F, 8}, Shape{3, 2})},
                                {"fresh", Tensor(DType::kF32, Shape{1})}});
  const ProgramResult result = amaxscope({"analyze", "after.safetensors", "--against", "before.safetensors",
                                          "--stored-dtype", "bf16", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const nlohmann::json output = nlohmann::json::parse(result.out);
  const double small = static_cast<double>(1.001F) - 1.0;
  EXPECT_DOUBLE_EQ(row_value(output, "w", "none", "update_ratio").get<double>(),
                   std::sqrt((small * small + 0.25) / (1 + 4 + 16 + 64)));
  EXPECT_EQ(row_value(output, "w", "none", "lost_updates%"), 50);
  EXPECT_NEAR(row_value(output, "w", "none", "unchanged%").get<double>(), 100.0 * 4 / 6, 1e-12);
  EXPECT_EQ(row_value(output, "w", "none", "zero_rows"), 1);
  EXPECT_EQ(row_value(output, "w", "none", "unchanged_rows"), 1);
  EXPECT_EQ(output.at("skipped").at(0).at("tensor"), "fresh");
  const nlohmann::json as_stored =
      json_of({"analyze", "after.safetensors", "--against", "before.safetensors", "--json"});
  EXPECT_EQ(row_value(as_stored, "w", "none", "lost_updates%"), 0);
}

// bf16 has 1 and 1 + 2^-7; half way between them the even one, 1, is taken. Below 1 the grid is twice as
// fine.
TEST_F(AnalyzeCommand, AnUpdateIsLostExactlyWhenTheSumRoundsBack) {
  const Tensor before = Tensor::of<float>({1, 1, 1, 1, 1.0078125F, 1.001F}, Shape{6});
  const Tensor after = Tensor::of<float>(
      {1 + 0x1p-8F, 1 + 0x1.01p-8F, 1 - 0x1p-9F, 1 - 0x1.01p-9F, 1.0078125F + 0x1p-8F, 1.0012F}, Shape{6});
  const auto lost = [&](const Tensor& from, const Tensor& to) {
    tensors("before.safetensors", {{"w", from}});
    tensors("after.safetensors", {{"w", to}});
    return row_value(json_of({"analyze", "after.safetensors", "--against", "before.safetensors",
                              "--stored-dtype", "bf16", "--json"}),
                     "w", "none", "lost_updates%")
        .get<double>();
  };
  for (std::size_t i = 0; i < 6; ++i) {
    const bool expected = i == 0 || i == 2 || i == 5;  // the tie at an even one, the same below, a small one
    EXPECT_EQ(lost(Tensor::of<float>({before.values<float>()[i]}, Shape{1}),
                   Tensor::of<float>({after.values<float>()[i]}, Shape{1})),
              expected ? 100 : 0)
        << i;
  }
  EXPECT_EQ(lost(before, after), 50);
}

TEST_F(AnalyzeCommand, ReplicasThatDifferAreNamedAndExitOne) {
  const Tensor norm = Tensor::of<float>({1, 2, 3, 4}, Shape{4});
  const Tensor other = Tensor::of<float>({1, 2, 3.5F, -4}, Shape{4});
  tensors("r0.safetensors", {{"norm", norm}, {"split", Tensor(DType::kF32, Shape{2, 2})}});
  tensors("r1.safetensors", {{"norm", norm}, {"split", Tensor(DType::kF32, Shape{3, 2})}});
  tensors("r2.safetensors", {{"norm", other}});
  const nlohmann::json equal =
      json_of({"analyze", "r0.safetensors", "--replicas", "r1.safetensors", "--json"});
  EXPECT_EQ(row_value(equal, "norm", "none", "differing"), 0);
  EXPECT_THAT(equal.at("skipped").at(0).at("why").get<std::string>(),
              HasSubstr("it is [2, 2] here and [3, 2] in r1"));
  const nlohmann::json apart = json_of({"analyze", "r0.safetensors", "--replicas", "r1.safetensors",
                                        "--replicas", "r2.safetensors", "--tensor", "norm", "--json"},
                                       1);
  EXPECT_EQ(apart.at("rows").back().at("file"), "r2.safetensors");
  std::map<std::string, double> last;
  for (const nlohmann::json& row : apart.at("rows")) {
    if (row.at("file") == "r2.safetensors") last[row.at("stat")] = row.at("value");
  }
  EXPECT_EQ(last.at("differing"), 2);
  EXPECT_EQ(last.at("differing%"), 50);
  EXPECT_EQ(last.at("first_difference"), 2);
  EXPECT_EQ(last.at("largest_difference"), 8);
}

}  // namespace
}  // namespace amaxscope::test
