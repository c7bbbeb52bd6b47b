#include "tests/fake/shared_segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "tests/fake/fake_state.hpp"

namespace amaxscope::fake {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");

struct SharedSegment::Layout {
  std::atomic<std::uint64_t> rolls[static_cast<int>(Roll::kCount)];
  std::atomic<std::uint8_t> contacts[kMaxRanks][kMaxRanks];
};

namespace {

constexpr std::size_t kHeader = 4096;
static_assert(std::atomic<std::uint8_t>::is_always_lock_free, "shared between processes");
constexpr int kLanes = static_cast<int>(SharedSegment::Lane::kCount);

}  // namespace

std::shared_ptr<SharedSegment> SharedSegment::open(const std::string& name, int ranks, int rank) {
  const auto boxes = static_cast<std::size_t>(kLanes * ranks + ranks * ranks);
  const std::size_t size = kHeader + boxes * sizeof(Box);
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT, S_IRUSR | S_IWUSR);
  if (file < 0) return nullptr;
  // All zero, and the same size whoever is first.
  void* const memory = ftruncate(file, static_cast<off_t>(size)) == 0
                           ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                           : MAP_FAILED;
  close(file);
  if (memory == MAP_FAILED) return nullptr;
  return std::shared_ptr<SharedSegment>(new SharedSegment(name, memory, size, ranks, rank));
}

SharedSegment::SharedSegment(std::string name, void* memory, std::size_t size, int ranks, int rank)
    : name_(std::move(name)), memory_(memory), size_(size), ranks_(ranks), rank_(rank) {}

SharedSegment::~SharedSegment() {
  shm_unlink(name_.c_str());  // whoever comes first; the others keep their mapping
  munmap(memory_, size_);
}

Box& SharedSegment::box(Lane lane, int rank) const {
  auto* boxes = reinterpret_cast<Box*>(static_cast<std::byte*>(memory_) + kHeader);
  return boxes[static_cast<int>(lane) * ranks_ + rank];
}

Box& SharedSegment::box_between(int from, int to) const {
  auto* boxes = reinterpret_cast<Box*>(static_cast<std::byte*>(memory_) + kHeader);
  return boxes[kLanes * ranks_ + from * ranks_ + to];
}

bool SharedSegment::call_roll(Roll roll, const GivenUp& given_up) {
  auto& count = static_cast<Layout*>(memory_)->rolls[static_cast<int>(roll)];
  count.fetch_add(1);
  return wait_for([&] { return count.load() == static_cast<std::uint64_t>(ranks_); }, given_up);
}

bool SharedSegment::contact(int peer, const GivenUp& given_up) {
  auto& contacts = static_cast<Layout*>(memory_)->contacts;
  contacts[rank_][peer] = 1;
  return wait_for([&] { return contacts[peer][rank_].load() == 1; }, given_up);
}

SharedSegment::Exchanged SharedSegment::exchange(Lane lane, std::uint64_t round, std::uint64_t call,
                                                 const std::byte* said, std::size_t bytes,
                                                 const std::function<void(int, const std::byte*)>& heard,
                                                 const GivenUp& given_up) {
  const auto readers = static_cast<std::uint64_t>(ranks_);
  Box& own = box(lane, rank_);
  if (!wait_for([&] { return own.read.load() == readers * (round - 1); }, given_up))
    return Exchanged::kGivenUp;
  own.call = call;
  if (bytes != 0) std::memcpy(own.bytes, said, bytes);
  own.written.store(round);
  for (int rank = 0; rank < ranks_; ++rank) {
    Box& other = box(lane, rank);
    if (!wait_for([&] { return other.written.load() >= round; }, given_up)) return Exchanged::kGivenUp;
    if (other.call != call) return Exchanged::kDifferentCalls;
    heard(rank, other.bytes);
  }
  // Only now: a rank that said something else must be seen by all.
  for (int rank = 0; rank < ranks_; ++rank) box(lane, rank).read.fetch_add(1);
  return Exchanged::kDone;
}

bool SharedSegment::try_send(int to, const std::byte* from, std::size_t bytes) {
  Box& mine = box_between(rank_, to);
  if (mine.written.load() != mine.read.load()) return false;
  std::memcpy(mine.bytes, from, bytes);
  mine.written.fetch_add(1);
  return true;
}

bool SharedSegment::try_receive(int from, std::byte* to, std::size_t bytes) {
  Box& theirs = box_between(from, rank_);
  if (theirs.written.load() == theirs.read.load()) return false;
  std::memcpy(to, theirs.bytes, bytes);
  theirs.read.fetch_add(1);
  return true;
}

}  // namespace amaxscope::fake
