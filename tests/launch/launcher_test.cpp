#include "launch/launcher.hpp"

#include <gmock/gmock.h>

#include <map>

#include "core/error.hpp"

namespace amaxscope::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::optional<LauncherHint> hint_of(std::map<std::string, std::string> environment) {
  return launcher_hint([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launcher, NoVariableNoHint) { EXPECT_FALSE(hint_of({{"HOME", "/"}})); }

TEST(Launcher, OneRankIsNoHint) {
  EXPECT_FALSE(hint_of({{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_NTASKS", "1"}}));
}

TEST(Launcher, TheMostRanksCount) {
  const auto hint = hint_of({{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_NTASKS", "4"}});
  ASSERT_TRUE(hint);
  EXPECT_EQ(hint->variable, "SLURM_NTASKS");
  EXPECT_EQ(hint->ranks, 4);
}

TEST(Launcher, NonsenseIsIgnored) {
  EXPECT_FALSE(hint_of({{"SLURM_NTASKS", "4(x2)"}, {"WORLD_SIZE", ""}, {"PMI_SIZE", "-3"}}));
}

TEST(Launcher, SingletonIsRefusedWithTheLineToUse) {
  try {
    refuse_singleton(hint_of({{"SLURM_NTASKS", "4"}}), 1, "train");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_TRUE(error.is_bad_input());
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("singleton"), HasSubstr("SLURM_NTASKS=4"),
                      HasSubstr("mpirun -n 4 amaxscope train"), HasSubstr("srun --mpi=pmix -n 4")));
  }
}

TEST(Launcher, AJobOfSeveralRanksIsNoSingleton) {
  EXPECT_NO_THROW(refuse_singleton(hint_of({{"SLURM_NTASKS", "4"}}), 4, "train"));
  EXPECT_NO_THROW(refuse_singleton(hint_of({}), 1, "train"));
}

}  // namespace
}  // namespace amaxscope::launch
