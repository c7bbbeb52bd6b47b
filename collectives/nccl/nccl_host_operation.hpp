// One NCCL operation on host memory: into pinned memory, to the device, through NCCL, and back.
// Internal to the NCCL backend.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "collectives/nccl/nccl_group.hpp"

namespace amaxscope {

class NcclHostOperation {
 public:
  /// How many bytes go in and come out; in place, they are the same memory.
  struct Sizes {
    std::size_t in = 0;
    std::size_t out = 0;
    bool in_place = false;
  };
  /// The NCCL calls, on device memory.
  using Call = std::function<ncclResult_t(ncclComm_t comm, void* in, void* out, cudaStream_t stream)>;

  /// `name` is a literal, for errors.
  NcclHostOperation(std::shared_ptr<NcclGroup> group, std::string_view name, Sizes sizes);
  /// Gives the memory back to the group, which keeps it for as long as the device may use it.
  ~NcclHostOperation();
  NcclHostOperation(const NcclHostOperation&) = delete;
  NcclHostOperation& operator=(const NcclHostOperation&) = delete;

  /// What goes in, to be filled before start().
  [[nodiscard]] std::span<std::byte> in() const;
  /// Waits until NCCL takes calls, which it does unless it connects ranks for an operation before; not for
  /// others.
  void start(const Call& call);
  /// True when out() is there. Never blocks.
  bool test();
  /// Until test(). Throws Error(kDeadline) after the group's deadline and aborts the group.
  void wait();
  [[nodiscard]] std::span<const std::byte> out() const;

 private:
  std::shared_ptr<NcclGroup> group_;
  std::string_view name_;
  Sizes sizes_;
  std::size_t out_at_;
  std::unique_ptr<NcclStaging> staging_;
  bool started_ = false;
  bool on_its_way_back_ = false;
  bool done_ = false;
};

}  // namespace amaxscope
