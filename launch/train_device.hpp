// The device of `amaxscope train --device cuda`: which one each rank uses, and who talks over NCCL.
#pragma once

#include <memory>
#include <string>

#include "collectives/process_groups.hpp"
#include "launch/compute_device.hpp"
#include "launch/job.hpp"
#include "launch/train_options.hpp"

namespace amaxscope::launch {

class TrainDevice {
 public:
  /// The CPU, or the device of this rank: by its place among the ranks of its machine. Collective; ends the
  /// job with one message where a rank has no device, where the build has none, and where ranks share one and
  /// tp is greater than 1.
  TrainDevice(Job& job, const TrainOptions& options);

  [[nodiscard]] bool is_cpu() const noexcept { return device_ == nullptr; }
  /// For TrainerOptions::device; without a backend on the CPU.
  [[nodiscard]] Stream stream() const noexcept { return is_cpu() ? Stream{} : device_->stream(); }
  /// What a training on it does where, for people; empty on the CPU.
  [[nodiscard]] std::string description() const;

  /// Connects the tensor-parallel ranks over NCCL, where there is a device and more than one rank. Collective
  /// over tp. groups must outlive this.
  void connect(const ProcessGroups& groups);
  /// What the training and its session get as tp: takes tensors of the device after connect().
  [[nodiscard]] Communicator& tp(const ProcessGroups& groups) const {
    return tp_ == nullptr ? groups.tp() : *tp_;
  }
  /// Null where tp is the host's.
  [[nodiscard]] const Communicator* nccl() const noexcept { return tp_.get(); }

 private:
  void open(Job& job, const TrainOptions& options);

  std::chrono::seconds deadline_;
  std::string name_;  ///< "cuda:0 (NVIDIA H200)"; empty on the CPU
  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<Communicator> tp_;
};

}  // namespace amaxscope::launch
