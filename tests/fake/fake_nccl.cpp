// The functions of NCCL that host code here uses.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "tests/fake/fake_comm.hpp"
#include "tests/fake/fake_state.hpp"
#include "tests/fake/fake_stream.hpp"

using amaxscope::fake::CallKind;
using amaxscope::fake::FakeComm;
using amaxscope::fake::NcclCall;
using amaxscope::fake::State;

struct ncclComm {
  std::shared_ptr<FakeComm> comm;
};

namespace amaxscope::fake {

namespace {

class Comms {
 public:
  static Comms& get() {
    static Comms& comms = *new Comms;
    return comms;
  }
  ncclComm_t add(std::shared_ptr<FakeComm> comm) {
    const std::scoped_lock lock(mutex_);
    auto* const handle = new ncclComm{std::move(comm)};
    handles_[handle] = handle->comm;
    return handle;
  }
  /// Null when there is none.
  std::shared_ptr<FakeComm> find(ncclComm_t handle) {
    const std::scoped_lock lock(mutex_);
    const auto found = handles_.find(handle);
    return found == handles_.end() ? nullptr : found->second;
  }
  void remove(ncclComm_t handle) {
    const std::scoped_lock lock(mutex_);
    handles_.erase(handle);
    delete handle;
  }
  std::size_t size() {
    const std::scoped_lock lock(mutex_);
    return handles_.size();
  }
  void break_all(ncclResult_t error) {
    const std::scoped_lock lock(mutex_);
    for (const auto& [handle, comm] : handles_) comm->set_state(error);
  }

 private:
  std::mutex mutex_;
  std::map<ncclComm_t, std::shared_ptr<FakeComm>> handles_;
};

std::optional<ncclResult_t> enter(const char* function) {
  const std::optional<int> error = State::get().enter(function);
  return error ? std::optional(static_cast<ncclResult_t>(*error)) : std::nullopt;
}

/// The communicator, or an answer: what is not there or in progress takes no call.
struct Found {
  std::shared_ptr<FakeComm> comm;
  ncclResult_t answer = ncclSuccess;
};
Found usable(ncclComm_t handle, const char* function) {
  auto comm = Comms::get().find(handle);
  if (comm == nullptr) {
    if (handle != nullptr) add_violation(fmt::format("{} of a communicator that is gone", function));
    return {nullptr, ncclInvalidArgument};
  }
  if (comm->state() == ncclInProgress) {
    add_violation(fmt::format("{} of a communicator that is in progress", function));
    return {nullptr, ncclInvalidUsage};
  }
  return {std::move(comm), ncclSuccess};
}

struct GroupedCall {
  std::shared_ptr<FakeComm> comm;
  cudaStream_t stream;
  NcclCall call;
};
thread_local int group_depth = 0;
thread_local std::vector<GroupedCall> grouped_calls;

/// Now, or at the end of the group.
ncclResult_t issue(ncclComm_t handle, cudaStream_t stream, const char* function, NcclCall call,
                   std::size_t out) {
  if (const auto error = enter(function)) return *error;
  const Found found = usable(handle, function);
  if (found.comm == nullptr) return found.answer;
  const bool in_fine = call.kind == CallKind::kReceive || is_device_memory(call.in, call.bytes);
  const bool out_fine = call.kind == CallKind::kSend || is_device_memory(call.out, out);
  if (!in_fine || !out_fine) return ncclInvalidArgument;
  const bool has_peer =
      call.kind == CallKind::kSend || call.kind == CallKind::kReceive || call.kind == CallKind::kBroadcast;
  if (has_peer && (call.peer < 0 || call.peer >= found.comm->ranks())) return ncclInvalidArgument;
  if (queue_of(stream) == nullptr) return ncclInvalidArgument;
  if (group_depth > 0) {
    grouped_calls.push_back({found.comm, stream, call});
    return ncclSuccess;
  }
  return found.comm->launch({call}, stream);
}

bool valid(const ncclConfig_t* config) {
  constexpr unsigned kMagic = 0xcafebeef;
  return config == nullptr || (config->magic == kMagic && config->size == sizeof(ncclConfig_t));
}

bool blocking(const ncclConfig_t* config, bool inherited) {
  return config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT ? inherited : config->blocking != 0;
}

/// A communicator that was just made; blocking ones wait here.
ncclResult_t attach_new(const std::shared_ptr<FakeComm>& comm, ncclComm_t* handle) {
  *handle = Comms::get().add(comm);
  const ncclResult_t result = comm->run([comm = comm.get()] { return comm->attach(); });
  if (result == ncclSuccess || result == ncclInProgress) return result;
  Comms::get().remove(*handle);
  *handle = nullptr;
  return result;
}

}  // namespace

std::size_t live_communicators() { return Comms::get().size(); }
void break_communicators(ncclResult_t error) { Comms::get().break_all(error); }

int operations(ncclComm_t comm) {
  const auto found = Comms::get().find(comm);
  return found == nullptr ? 0 : found->calls();
}

}  // namespace amaxscope::fake

using namespace amaxscope::fake;  // NOLINT(google-build-using-namespace): this file is the C library

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  if (const auto error = enter(__func__)) return *error;
  *version = State::get().with_settings([](auto& settings) { return settings.nccl_version; });
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "NCCL operation in progress";
  }
}

const char* ncclGetLastError(ncclComm_t /*comm*/) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const auto error = enter(__func__)) return *error;
  std::random_device random;
  std::memset(id, 0, sizeof *id);
  const std::string name = fmt::format("/amaxscope_fake_nccl.{}.{:08x}{:08x}", getpid(), random(), random());
  std::memcpy(id->internal, name.c_str(), name.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (const auto error = enter(__func__)) return *error;
  if (ranks < 1 || ranks > SharedSegment::kMaxRanks || rank < 0 || rank >= ranks || !valid(config)) {
    return ncclInvalidArgument;
  }
  return attach_new(std::make_shared<FakeComm>(id.internal, ranks, rank, blocking(config, true)), handle);
}

ncclResult_t ncclCommInitRank(ncclComm_t* handle, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(handle, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* child, ncclConfig_t* config) {
  if (const auto error = enter(__func__)) return *error;
  const Found found = usable(parent, __func__);
  if (found.comm == nullptr) return found.answer;
  if ((color < 0 && color != NCCL_SPLIT_NOCOLOR) || !valid(config)) return ncclInvalidArgument;
  const std::string name = found.comm->child_name(color);
  const bool child_blocks = blocking(config, found.comm->blocking());
  // The child's handle is there when the parent is no longer in progress, and not earlier.
  const ncclResult_t result =
      found.comm->run([comm = found.comm.get(), color, key, name, child, child_blocks] {
        std::vector<FakeComm::Choice> choices;
        const ncclResult_t gathered = comm->gather_choices({color, key}, choices);
        *child = nullptr;
        if (gathered != ncclSuccess || color == NCCL_SPLIT_NOCOLOR) return gathered;
        std::vector<std::pair<int, int>> members;  // key, rank
        for (std::size_t rank = 0; rank < choices.size(); ++rank) {
          if (choices[rank].color == color) members.emplace_back(choices[rank].key, static_cast<int>(rank));
        }
        std::ranges::sort(members);
        const auto own = std::ranges::find(members, std::pair(key, comm->rank())) - members.begin();
        const ncclResult_t attached =
            attach_new(std::make_shared<FakeComm>(name, static_cast<int>(members.size()),
                                                  static_cast<int>(own), child_blocks),
                       child);
        return attached == ncclInProgress ? ncclSuccess : attached;
      });
  if (result != ncclSuccess || *child == nullptr) return result;
  return Comms::get().find(*child)->state();
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  if (const auto error = enter(__func__)) return *error;
  const Found found = usable(comm, __func__);
  if (found.comm != nullptr) *count = found.comm->ranks();
  return found.answer;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  if (const auto error = enter(__func__)) return *error;
  const Found found = usable(comm, __func__);
  if (found.comm != nullptr) *rank = found.comm->rank();
  return found.answer;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  if (const auto error = enter(__func__)) return *error;
  const Found found = usable(comm, __func__);
  if (found.comm != nullptr) *device = 0;
  return found.answer;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  if (const auto error = enter(__func__)) return *error;
  const auto comm = Comms::get().find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  *state = comm->state();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  if (const auto error = enter(__func__)) return *error;
  const Found found = usable(handle, __func__);
  if (found.comm == nullptr) return found.answer;
  return found.comm->run([comm = found.comm.get()] { return comm->finalize(); });
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (const auto error = enter(__func__)) return *error;
  if (handle == nullptr) return ncclSuccess;
  const Found found = usable(handle, __func__);
  if (found.comm == nullptr) return found.answer;
  if (const int pending = found.comm->pending(); pending != 0) {
    add_violation(fmt::format("ncclCommDestroy with {} operations pending, for which it waits", pending));
    found.comm->abort();
  } else if (!found.comm->blocking() && !found.comm->finalized()) {
    add_violation("ncclCommDestroy before ncclCommFinalize has ended waits for the other ranks");
    found.comm->abort();
  }
  found.comm->join();
  Comms::get().remove(handle);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (const auto error = enter(__func__)) return *error;
  if (handle == nullptr) return ncclSuccess;
  const auto comm = Comms::get().find(handle);
  if (comm == nullptr) {
    add_violation("ncclCommAbort of a communicator that is gone");
    return ncclInvalidArgument;
  }
  comm->abort();
  Comms::get().remove(handle);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  if (const auto error = enter(__func__)) return *error;
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidUsage;
  const auto error = enter(__func__);
  if (--group_depth > 0) return error.value_or(ncclSuccess);
  const std::vector<GroupedCall> calls = std::exchange(grouped_calls, {});
  if (error) return *error;
  ncclResult_t result = ncclSuccess;
  for (std::size_t first = 0; first < calls.size();) {
    // A run of calls of one communicator and stream.
    std::vector<NcclCall> together;
    std::size_t next = first;
    for (; next < calls.size() && calls[next].comm == calls[first].comm &&
           calls[next].stream == calls[first].stream;
         ++next) {
      together.push_back(calls[next].call);
    }
    const ncclResult_t launched = calls[first].comm->launch(together, calls[first].stream);
    if (launched != ncclSuccess) result = launched;
    first = next;
  }
  return result;
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return issue(comm, stream, __func__,
               {.kind = CallKind::kAllReduce,
                .in = static_cast<const std::byte*>(in),
                .out = static_cast<std::byte*>(out),
                .bytes = bytes,
                .type = type,
                .op = op},
               bytes);
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  const auto found = Comms::get().find(comm);
  const auto ranks = static_cast<std::size_t>(found == nullptr ? 1 : found->ranks());
  return issue(comm, stream, __func__,
               {.kind = CallKind::kAllGather,
                .in = static_cast<const std::byte*>(in),
                .out = static_cast<std::byte*>(out),
                .bytes = bytes},
               bytes * ranks);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  const auto found = Comms::get().find(comm);
  const auto ranks = static_cast<std::size_t>(found == nullptr ? 1 : found->ranks());
  return issue(comm, stream, __func__,
               {.kind = CallKind::kReduceScatter,
                .in = static_cast<const std::byte*>(in),
                .out = static_cast<std::byte*>(out),
                .bytes = bytes * ranks,
                .type = type,
                .op = op},
               bytes);
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return issue(comm, stream, __func__,
               {.kind = CallKind::kBroadcast,
                .in = static_cast<const std::byte*>(in),
                .out = static_cast<std::byte*>(out),
                .bytes = bytes,
                .peer = root},
               bytes);
}

ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return issue(comm, stream, __func__,
               {.kind = CallKind::kSend,
                .in = static_cast<const std::byte*>(in),
                .bytes = count * size_of(type),
                .peer = peer},
               0);
}

ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return issue(
      comm, stream, __func__,
      {.kind = CallKind::kReceive, .out = static_cast<std::byte*>(out), .bytes = bytes, .peer = peer}, bytes);
}

}  // extern "C"
