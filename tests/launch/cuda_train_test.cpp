// `amaxscope train --device cuda` under mpirun, with a libamaxscope_train_cuda.so of imitations beside the
// program: the losses, weights and records of the CPU, and what is said when a call fails on one rank.
#include <gmock/gmock.h>

#include "tests/launch/train_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CudaTrain : public TrainFixture {
 protected:
  /// The arguments of a training that the emulator is quick with.
  static std::vector<std::string> tiny(const std::vector<std::string>& changes) {
    std::vector<std::string> arguments =
        small({"--tp", "2", "--sequence-parallel", "--steps", "2", "--json"});
    arguments.insert(arguments.end(), changes.begin(), changes.end());
    return arguments;
  }
  ProgramResult run(const std::vector<std::string>& changes, const ProgramOptions& options = {}) const {
    return amaxscope_job(2, tiny(changes), options);
  }
};

TEST_F(CudaTrain, GivesTheLossesAndRecordsOfTheCpu) {
  const ProgramResult cpu = run({"--config", "observe.yaml", "--log-dir", "on_cpu"});
  const ProgramResult cuda = run({"--config", "observe.yaml", "--log-dir", "on_cuda", "--device", "cuda"});
  ASSERT_EQ(cpu.status, 0) << cpu.err;
  ASSERT_EQ(cuda.status, 0) << cuda.err;
  const nlohmann::json expected = nlohmann::json::parse(cpu.out);
  const nlohmann::json actual = nlohmann::json::parse(cuda.out);
  EXPECT_EQ(actual["losses"], expected["losses"]);
  EXPECT_EQ(actual["weights_digest"], expected["weights_digest"]);
  EXPECT_EQ(actual["collectives"]["recipe"], expected["collectives"]["recipe"]);
  EXPECT_THAT(cuda.err, AllOf(HasSubstr("device: linear layers on cuda:0"), HasSubstr("imitated CUDA: "),
                              Not(HasSubstr("imitated CUDA: 0 kernels")), Not(HasSubstr("VIOLATION"))));
  EXPECT_THAT(cpu.err, Not(HasSubstr("imitated CUDA")));
  const nlohmann::json run = nlohmann::json::parse(read("on_cuda/run.json"));
  EXPECT_THAT(run.dump(), AllOf(HasSubstr("linear layers on cuda:0"), HasSubstr("\"device\":\"cuda\"")));
  EXPECT_EQ(lines_of(read("on_cuda/metrics/rank_0.jsonl")).size(),
            lines_of(read("on_cpu/metrics/rank_0.jsonl")).size());
}

TEST_F(CudaTrain, AFailureOnOneRankEndsTheJobWithItsWords) {
  ProgramOptions options;
  options.environment = {{"IMITATED_FAILURE", "1 cublasLtMatmul 5"}};
  const ProgramResult result = run({"--device", "cuda"}, options);
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank 1: "), HasSubstr("cublasLtMatmul")));
}

TEST_F(CudaTrain, ProductsThatTheDeviceDoesNotHaveAreSaidOrRefused) {
  const ProgramResult decoded = run({"--device", "cuda", "--recipe", "mxfp8", "--hidden", "64", "--heads",
                                     "2", "--seq", "64", "--steps", "1"});
  EXPECT_EQ(decoded.status, 0) << decoded.err;
  EXPECT_THAT(decoded.err, AllOf(HasSubstr("f32"), Not(HasSubstr("VIOLATION"))));
  if (decoded.status == 0) {
    EXPECT_EQ(nlohmann::json::parse(decoded.out)["collectives"]["debug"], 0) << "nothing is debugged";
  }
  const ProgramResult refused = run({"--device", "cuda", "--recipe", "mxfp8", "--hidden", "64", "--heads",
                                     "2", "--seq", "64", "--steps", "1", "--unsupported-gemm", "refuse"});
  EXPECT_NE(refused.status, 0);
}

}  // namespace
}  // namespace amaxscope::test
