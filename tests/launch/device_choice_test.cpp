// Case 27: ranks, what they see, and which device each uses, with made-up tables of devices.
#include "launch/device_choice.hpp"

#include <gmock/gmock.h>

#include <map>

#include "core/error.hpp"

namespace amaxscope::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// What the ranks of a job use when rank r sees the devices of row r.
std::vector<DeviceUse> uses_of(const std::vector<std::vector<std::string>>& uuids_seen, int ranks_of_a_host) {
  std::vector<DeviceUse> uses;
  for (std::size_t rank = 0; rank < uuids_seen.size(); ++rank) {
    const int local_rank = static_cast<int>(rank) % ranks_of_a_host;
    const Device device = device_of_rank(local_rank, uuids_seen[rank].size());
    const std::string host = "host" + std::to_string(static_cast<int>(rank) / ranks_of_a_host);
    const bool on_cpu = device.kind == DeviceKind::kCpu;
    uses.push_back(
        {host, to_string(device), on_cpu ? "" : uuids_seen[rank][static_cast<std::size_t>(device.index)]});
  }
  return uses;
}

std::string refusal(const std::vector<DeviceUse>& uses, DeviceSharing sharing = DeviceSharing::kRefused) {
  try {
    require_own_devices(uses, sharing);
  } catch (const Error& error) {
    EXPECT_TRUE(error.is_bad_input());
    return error.what();
  }
  return {};
}

TEST(DeviceChoice, RanksThatSeeOneDeviceEachTakeOrdinalZero) {
  const auto uses = uses_of({{"GPU-a"}, {"GPU-b"}, {"GPU-c"}, {"GPU-d"}}, 4);
  for (const DeviceUse& use : uses) EXPECT_EQ(use.device, "cuda:0");
  EXPECT_EQ(refusal(uses), "");
}

TEST(DeviceChoice, RanksThatSeeAllDevicesTakeOneEach) {
  const std::vector<std::string> all = {"GPU-a", "GPU-b", "GPU-c", "GPU-d"};
  const auto uses = uses_of({all, all, all, all}, 4);
  EXPECT_EQ(uses[3].device, "cuda:3");
  EXPECT_EQ(uses[3].uuid, "GPU-d");
  EXPECT_EQ(refusal(uses), "");
}

TEST(DeviceChoice, OneDeviceForAllIsRefusedNamingAllItsRanks) {
  const auto uses = uses_of({{"GPU-a"}, {"GPU-a"}, {"GPU-a"}, {"GPU-a"}}, 4);
  EXPECT_THAT(refusal(uses), AllOf(HasSubstr("ranks 0-3 on host host0 all use device GPU-a (cuda:0 there)"),
                                   HasSubstr("srun --gpus-per-task=1"), HasSubstr("--share-devices")));
  EXPECT_EQ(refusal(uses, DeviceSharing::kAllowed), "");
}

TEST(DeviceChoice, MoreRanksThanDevicesNameEachDeviceAndItsRanks) {
  const std::vector<std::string> two = {"GPU-a", "GPU-b"};
  EXPECT_THAT(refusal(uses_of({two, two, two}, 3)),
              AllOf(HasSubstr("ranks 0, 2 on host host0 all use device GPU-a"), Not(HasSubstr("GPU-b"))));
  EXPECT_THAT(refusal(uses_of({two, two, two, two}, 4)),
              AllOf(HasSubstr("ranks 0, 2 on"), HasSubstr("; ranks 1, 3 on")));
}

TEST(DeviceChoice, EqualOrdinalsOfDifferentHostsAreDifferentDevices) {
  const std::vector<std::string> first = {"GPU-a", "GPU-b"};
  const std::vector<std::string> second = {"GPU-c", "GPU-d"};
  EXPECT_EQ(refusal(uses_of({first, first, second, second}, 2)), "");
}

TEST(DeviceChoice, WithoutDevicesAllShareTheCpu) {
  const auto uses = uses_of({{}, {}, {}}, 3);
  for (const DeviceUse& use : uses) EXPECT_EQ(use.device, "cpu");
  EXPECT_EQ(refusal(uses), "");
}

std::string disagreement(const std::map<std::string, std::string>& environment, int local_rank) {
  return local_rank_disagreement(
      [&](const char* name) -> const char* {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
      },
      local_rank);
}

TEST(DeviceChoice, TheEnvironmentOnlyWarns) {
  EXPECT_EQ(disagreement({}, 3), "");
  EXPECT_EQ(disagreement({{"SLURM_LOCALID", "3"}}, 3), "");
  EXPECT_THAT(disagreement({{"SLURM_LOCALID", "3"}}, 0),
              AllOf(HasSubstr("SLURM_LOCALID=3"), HasSubstr("MPI finds local rank 0")));
}

TEST(DeviceChoice, TheInnermostLauncherIsTheOneAsked) {
  // mpirun in a batch script: every rank inherits the script's SLURM_LOCALID.
  EXPECT_EQ(disagreement({{"SLURM_LOCALID", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}, 2), "");
}

}  // namespace
}  // namespace amaxscope::launch
