// Somebody else's collectives (torch.distributed, a trainer's own layer) as a Communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "collectives/communicator.hpp"

namespace amaxscope {

/// Each callback blocks until done and throws on failure; they are called on the thread that uses the
/// communicator. `split` may be empty: then split() throws Error(kUsage) and groups come ready-made.
struct CollectiveCallbacks {
  int rank = 0;
  int size = 1;
  std::vector<int> world_ranks;  ///< empty: 0 .. size-1
  std::function<void(void* io, std::int64_t count, DType dtype, ReduceOp op)> all_reduce;
  std::function<void(const void* in, void* out, std::size_t bytes_per_rank)> all_gather;
  std::function<void(void* io, std::size_t bytes, int root)> broadcast;
  std::function<void()> barrier;
  std::function<void(int status, std::string_view reason)> abort;
  /// Between two ranks of the group; both may be empty: then send() and receive() throw Error(kUsage).
  std::function<void(const void* in, std::size_t bytes, int to)> send;
  std::function<void(void* out, std::size_t bytes, int from)> receive;
  /// all_reduce that does not wait; the tensor is kept alive by what is returned. May be empty.
  std::function<std::unique_ptr<PendingCollective>(std::shared_ptr<Tensor> io, ReduceOp op)> start_all_reduce;
  /// The callbacks of the group of this color, ordered by key, then by rank here; null for a negative color.
  std::function<std::unique_ptr<CollectiveCallbacks>(int color, int key)> split;
};

/// Throws Error(kUsage) when a callback other than send, receive, start_all_reduce and split is missing, or
/// rank, size and world_ranks do not fit. reduce_scatter is built from all_reduce. Without its callback
/// start_all_reduce completes before it returns (so a deadline cannot cut it: the callbacks' owner has one).
std::unique_ptr<Communicator> make_callback_communicator(CollectiveCallbacks callbacks);

}  // namespace amaxscope
