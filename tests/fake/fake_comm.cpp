#include "tests/fake/fake_comm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/fake/fake_state.hpp"
#include "tests/fake/fake_stream.hpp"

namespace amaxscope::fake {

namespace {

bool is_message(const NcclCall& call) {
  return call.kind == CallKind::kSend || call.kind == CallKind::kReceive;
}

/// What ranks of one collective have in common.
std::uint64_t identity_of(const NcclCall& call) {
  std::uint64_t identity = static_cast<std::uint64_t>(call.kind) + 1;
  for (const std::uint64_t part :
       {std::uint64_t{call.bytes}, static_cast<std::uint64_t>(call.type), static_cast<std::uint64_t>(call.op),
        static_cast<std::uint64_t>(call.peer + 1)}) {
    identity = identity * 1'000'003 + part;
  }
  return identity;
}

std::size_t out_bytes(const NcclCall& call, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  if (call.kind == CallKind::kAllGather) return call.bytes * count;
  return call.kind == CallKind::kReduceScatter ? call.bytes / count : call.bytes;
}

}  // namespace

FakeComm::~FakeComm() {
  if (job_.joinable()) job_.join();
}

GivenUp FakeComm::given_up() const {
  return [this] { return aborted_.load(); };
}

void FakeComm::join() {
  if (job_.joinable()) job_.join();
}

ncclResult_t FakeComm::run(std::function<ncclResult_t()> job) {
  join();
  if (blocking_) return job();
  set_state(ncclInProgress);
  job_ = std::thread([this, job = std::move(job)] {
    // What it enqueued may have failed on its stream before it comes back here: that error stays.
    int in_progress = ncclInProgress;
    state_.compare_exchange_strong(in_progress, job());
  });
  return ncclInProgress;
}

ncclResult_t FakeComm::attach() {
  segment_ = SharedSegment::open(name_, ranks_, rank_);
  if (segment_ == nullptr) return ncclSystemError;
  return segment_->call_roll(SharedSegment::Roll::kAttached, given_up()) ? ncclSuccess : ncclInternalError;
}

ncclResult_t FakeComm::finalize() {
  const bool at_rest = wait_for([&] { return pending_ == 0; }, given_up());
  if (!at_rest || !segment_->call_roll(SharedSegment::Roll::kFinalized, given_up())) return ncclInternalError;
  finalized_ = true;
  return ncclSuccess;
}

ncclResult_t FakeComm::gather_choices(const Choice& own, std::vector<Choice>& choices) {
  choices.resize(static_cast<std::size_t>(ranks_));
  constexpr std::uint64_t kSplit = ~std::uint64_t{0};
  const auto result = segment_->exchange(
      SharedSegment::Lane::kHost, ++host_round_, kSplit, reinterpret_cast<const std::byte*>(&own), sizeof own,
      [&](int rank, const std::byte* said) {
        std::memcpy(&choices[static_cast<std::size_t>(rank)], said, sizeof own);
      },
      given_up());
  return result == SharedSegment::Exchanged::kDone ? ncclSuccess : ncclInternalError;
}

std::string FakeComm::child_name(int color) { return fmt::format("{}.{}c{}", name_, splits_++, color); }

ncclResult_t FakeComm::launch(const std::vector<NcclCall>& calls, cudaStream_t stream) {
  calls_ += static_cast<int>(calls.size());
  ++pending_;
  // Counted while it is on its way to the stream, and each time that it is in its queue.
  const auto put = [self = shared_from_this(), calls, stream] {
    enqueue(
        stream,
        [self, calls] {
          self->execute(calls);
          --self->pending_;
        },
        [self] { ++self->pending_; });
    --self->pending_;
  };
  const std::set<int> contacts = new_contacts(calls);
  if (const auto queue = queue_of(stream);
      !contacts.empty() && queue != nullptr && queue->capture() != nullptr)
    add_violation("ranks that have not talked yet connect while a stream is captured");
  if (contacts.empty()) {
    put();
    return ncclSuccess;
  }
  // Who talks for the first time connects, which needs the others, and what was called is enqueued only then.
  return run([this, put, contacts] {
    for (const int peer : contacts) {
      const bool connected = peer < 0 ? segment_->call_roll(SharedSegment::Roll::kConnected, given_up())
                                      : segment_->contact(peer, given_up());
      if (connected) continue;
      --pending_;
      return ncclInternalError;
    }
    put();
    return ncclSuccess;
  });
}

std::set<int> FakeComm::new_contacts(const std::vector<NcclCall>& calls) {
  std::set<int> contacts;
  for (const NcclCall& call : calls) {
    const int peer = is_message(call) ? call.peer : -1;
    if (peer != rank_ && contacts_.insert(peer).second) contacts.insert(peer);
  }
  return contacts;
}

void FakeComm::abort() {
  aborted_ = true;
  join();
}

void FakeComm::execute(const std::vector<NcclCall>& calls) {
  std::vector<NcclCall> between_two;
  for (const NcclCall& call : calls) {
    if (aborted_) return;
    const std::size_t out = out_bytes(call, ranks_);
    // Memory that was given back in the order of a stream is there until the stream has come so far.
    const auto inside = [](const void* address, std::size_t bytes) {
      return State::get().inside(address, bytes, MemoryKind::kDevice, true);
    };
    const bool there = (call.kind == CallKind::kReceive || inside(call.in, call.bytes)) &&
                       (call.kind == CallKind::kSend || inside(call.out, out));
    if (!there) {
      add_violation("an NCCL operation runs on memory that was freed after it was called");
      return;
    }
    if (is_message(call)) {
      between_two.push_back(call);
    } else if (!collective(call)) {
      return;
    }
  }
  messages(between_two);
}

bool FakeComm::collective(const NcclCall& call) {
  const auto ranks = static_cast<std::size_t>(ranks_);
  const bool reduces = call.kind == CallKind::kAllReduce || call.kind == CallKind::kReduceScatter;
  // What a reduction scatters is the slice of the whole.
  std::vector<std::byte> sum(call.kind == CallKind::kReduceScatter ? call.bytes : 0);
  std::byte* const result = call.kind == CallKind::kReduceScatter ? sum.data() : call.out;
  for (std::size_t at = 0; at < call.bytes; at += Box::kBytes) {
    const std::size_t part = std::min(Box::kBytes, call.bytes - at);
    const auto heard = [&](int rank, const std::byte* said) {
      if (reduces) {
        // In place: this rank's own part was said before it is written over.
        if (rank == 0) {
          std::memcpy(result + at, said, part);
        } else {
          combine(result + at, said, part, call.type, call.op);
        }
      } else if (call.kind == CallKind::kAllGather) {
        std::memcpy(call.out + static_cast<std::size_t>(rank) * call.bytes + at, said, part);
      } else if (rank == call.peer) {
        std::memcpy(call.out + at, said, part);
      }
    };
    const auto outcome = segment_->exchange(SharedSegment::Lane::kStreams, ++stream_round_, identity_of(call),
                                            call.in + at, part, heard, given_up());
    if (outcome == SharedSegment::Exchanged::kDifferentCalls) set_state(ncclInternalError);
    if (outcome != SharedSegment::Exchanged::kDone) {
      // As a kernel that another rank has left alone, or that was told of the error: until the abort.
      wait_for([&] { return aborted_.load(); }, [] { return false; });
      return false;
    }
  }
  if (call.kind == CallKind::kReduceScatter) {
    const std::size_t slice = call.bytes / ranks;
    std::memcpy(call.out, sum.data() + static_cast<std::size_t>(rank_) * slice, slice);
  }
  return true;
}

bool FakeComm::messages(const std::vector<NcclCall>& calls) {
  std::vector<std::size_t> done(calls.size(), 0);
  const auto all_done = [&] {
    bool complete = true;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const NcclCall& call = calls[i];
      if (done[i] == call.bytes) continue;
      // Messages to and from one rank keep their order.
      bool first = true;
      for (std::size_t earlier = 0; earlier < i; ++earlier) {
        first = first && (calls[earlier].kind != call.kind || calls[earlier].peer != call.peer ||
                          done[earlier] == calls[earlier].bytes);
      }
      const std::size_t part = std::min(Box::kBytes, call.bytes - done[i]);
      const bool moved = first && (call.kind == CallKind::kSend
                                       ? segment_->try_send(call.peer, call.in + done[i], part)
                                       : segment_->try_receive(call.peer, call.out + done[i], part));
      if (moved) done[i] += part;
      complete = complete && done[i] == call.bytes;
    }
    return complete;
  };
  return wait_for(all_done, given_up());
}

}  // namespace amaxscope::fake
