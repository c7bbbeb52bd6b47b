#include "launch/train_device.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <sstream>

#include "collectives/exchange.hpp"
#include "core/error.hpp"
#include "launch/compute_module.hpp"
#include "launch/device_choice.hpp"
#include "launch/machine.hpp"

namespace amaxscope::launch {

namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

/// One device for each rank of a tensor-parallel group, which NCCL connects. Collective.
void require_own_devices(Job& job, const DeviceUse& own) {
  const std::vector<std::string> texts =
      all_gather_text(job.world(), fmt::format("{}\n{}\n{}\n", own.host, own.device, own.uuid),
                      {.traffic = Traffic::kTrainer, .what = "devices of the ranks"});
  std::vector<DeviceUse> by_rank;
  for (const std::string& text : texts) {
    std::istringstream lines(text);
    DeviceUse& use = by_rank.emplace_back();
    std::getline(lines, use.host);
    std::getline(lines, use.device);
    std::getline(lines, use.uuid);
  }
  job.agree([&] { launch::require_own_devices(by_rank, DeviceSharing::kRefused); });
}

}  // namespace

TrainDevice::TrainDevice(Job& job, const TrainOptions& options) : deadline_(options.deadline) {
  if (options.device == "cuda") open(job, options);
}

void TrainDevice::open(Job& job, const TrainOptions& options) {
  const int local_rank = job.machine().rank;
  const ComputeModule* module = nullptr;
  Device device;
  job.agree([&] {
    module = &load_compute_module();
    const DevicesSeen seen = module->devices();
    AMAXSCOPE_CHECK(
        seen.count > 0, ErrorCode::kUsage,
        "--device cuda: no CUDA device: {}; start it on a machine with one, and `amaxscope doctor` says what "
        "it finds, or train with --device cpu",
        seen.why_none);
    device = device_of_rank(local_rank, static_cast<std::size_t>(seen.count));
  });
  const DriverProbe driver = cuda_driver();
  const auto ordinal = static_cast<std::size_t>(device.index);
  const VisibleDevice visible = ordinal < driver.devices.size()
                                    ? driver.devices[ordinal]
                                    : VisibleDevice{.uuid = {}, .name = "unnamed"};
  if (options.tp > 1) require_own_devices(job, {host_name(), to_string(device), visible.uuid});
  job.agree([&] {
    ComputeDeviceOptions wanted;
    wanted.ordinal = device.index;
    wanted.refuse_unsupported_products = options.unsupported_gemm == "refuse";
    if (job.is_leader()) {
      wanted.warn = [](const std::string& text) {
        std::fputs(fmt::format("amaxscope: {}\n", text).c_str(), stderr);
      };
    }
    device_ = module->open(std::move(wanted));
  });
  name_ = fmt::format("{} ({})", to_string(device), visible.name);
}

std::string TrainDevice::description() const {
  if (is_cpu()) return {};
  return fmt::format(
      "linear layers on {}: quantization, statistics, amax reduction and GEMMs; attention, norms, embedding, "
      "loss "
      "and Adam on the host, with a copy of every operand and result; statistics that only the host computes "
      "get a "
      "copy when they are due",
      name_);
}

void TrainDevice::connect(const ProcessGroups& groups) {
  if (is_cpu() || groups.tp().size() == 1) return;
  tp_ = device_->connect(groups.tp(), deadline_);
  tp_->record_into(groups.tp().flight(), "tp over NCCL");
}

}  // namespace amaxscope::launch
