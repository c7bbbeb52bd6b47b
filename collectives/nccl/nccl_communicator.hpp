// Communicator over NCCL, for tensors on one CUDA device and on the host. nccl.h is included in this folder
// only, and by programs.
//
// Tensors of the device are handed to NCCL as they are: an operation is enqueued on the view's stream, and
// the host does not wait for it (it may wait for NCCL to connect the ranks when they first talk). Tensors on
// the host go through page-locked memory and a stream of the group's own, which waits for no stream of the
// program; these operations block until done, or until the deadline. All operations of a group run in the
// order in which they were called, on whichever stream.
//
// Sums of f16 and bf16 host tensors gather the values and add them in fp32 in the order of the ranks. On the
// device NCCL would round after each addition: Error(kTensor) there; maxima and minima are exact and work.
//
// Errors: NcclError and CudaError (both Error(kInternal)) with the library's text; Error(kDeadline). After
// either the group was aborted and cannot be used again. An operation of the device that does not complete is
// noticed by the next one that waits, and by destruction.
#pragma once

#include <nccl.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.hpp"

namespace amaxscope {

struct NcclOptions {
  /// This rank's device, by its ordinal in this process. No two ranks of a group have the same physical one.
  int device = 0;
  /// How long the host waits for other ranks, in every operation that waits for them and while a group is
  /// made.
  std::chrono::milliseconds deadline = std::chrono::minutes(10);
  /// How long destruction lets the ranks of a group end together. Then it is aborted.
  std::chrono::milliseconds teardown = std::chrono::seconds(5);
};

/// Why this process cannot use NCCL on that device (no driver, no device, NCCL older than 2.18); empty when
/// it can.
std::string why_no_nccl(int device);

/// A group with the ranks of `bootstrap`, which hands out NCCL's identifier and says who failed; it must
/// outlive the group, whose abort() is its. Collective over bootstrap. Blocks. Throws Error(kUsage) on every
/// rank, naming ranks and reasons, when some rank cannot use NCCL; Error(kInternal) on every rank when NCCL
/// could not connect them.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& bootstrap, const NcclOptions& options);

/// What is known of a communicator that the program has made itself.
struct ExistingNccl {
  ncclComm_t comm = nullptr;
  /// The rank in the job of each of its ranks; empty: the same.
  std::vector<int> world_ranks = {};
  /// Ends the job and does not return; empty: prints the reason and ends this process with the status.
  std::function<void(int status, std::string_view reason)> abort = {};
};

/// A group with the ranks of a communicator of the program's, split off it: nothing else ever happens on the
/// program's own, so that its order of operations stays its own. Collective over it, and not while another
/// operation is being called on it; when it is one that blocks, so does this, without a deadline.
/// options.device is not looked at: it is the communicator's. Throws Error(kUsage) when NCCL is older
/// than 2.18, which cannot split, or when world_ranks do not fit.
std::unique_ptr<Communicator> make_nccl_communicator(const ExistingNccl& existing,
                                                     const NcclOptions& options);

}  // namespace amaxscope
