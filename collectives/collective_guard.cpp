#include "collectives/collective_guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "collectives/exchange.hpp"
#include "core/error.hpp"
#include "core/fnv.hpp"

namespace amaxscope {

namespace {

constexpr int kSpins = 200;  ///< tests before the host sleeps between them
constexpr auto kPause = std::chrono::microseconds(30);
constexpr std::size_t kShownEntries = 5;

/// FNV-1a over 64-bit words; each text is preceded by its length, so that no two lists of fields read alike.
class Signature {
 public:
  Signature& add(std::uint64_t word) noexcept {
    for (int shift = 0; shift < 64; shift += 8) hash_.add(static_cast<unsigned char>(word >> shift));
    return *this;
  }
  Signature& add(std::string_view text) noexcept {
    add(text.size());
    hash_.add(text);
    return *this;
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return hash_.value(); }

 private:
  Fnv1a hash_;
};

std::string describe(ReduceOp op, std::size_t used, std::string_view type, const CollectiveTag& tag,
                     std::int64_t iteration) {
  std::string text = fmt::format("{} {} {} x {}", to_string(op), tag.what, used, type);
  if (!tag.layer.empty()) text += fmt::format(", {}", tag.layer);
  if (!tag.tensor.empty()) text += fmt::format("{}{}", tag.layer.empty() ? ", " : " ", tag.tensor);
  return text + fmt::format(", iteration {}", iteration);
}

}  // namespace

CollectiveGuard::CollectiveGuard(Communicator& group, Options options)
    : group_(group), options_(std::move(options)) {
  options_.flight_record_length =
      std::max<std::size_t>(options_.flight_record_length, 1);  // errors show the last
  if (options_.clock == nullptr) options_.clock = std::make_shared<const Clock>();
}

void CollectiveGuard::reduce_max(std::span<std::uint32_t> payload, std::size_t used,
                                 const CollectiveTag& tag) {
  if (group_.size() == 1) return;
  const std::uint64_t signature = Signature()
                                      .add(sequence_)
                                      .add(static_cast<std::uint64_t>(ReduceOp::kMax))
                                      .add(tag.what)
                                      .add(tag.layer)
                                      .add(tag.tensor)
                                      .add(used)
                                      .add(payload.size())
                                      .add(static_cast<std::uint64_t>(iteration_))
                                      .value();
  auto frame = std::make_shared<Tensor>(DType::kU32,
                                        Shape{static_cast<std::int64_t>(kSignatureWords + payload.size())});
  const std::span<std::uint32_t> words = frame->values<std::uint32_t>();
  words[0] = static_cast<std::uint32_t>(signature);
  words[1] = static_cast<std::uint32_t>(signature >> 32U);
  words[2] = ~words[0];
  words[3] = ~words[1];
  std::ranges::copy(payload, words.begin() + kSignatureWords);

  record(describe(ReduceOp::kMax, used, "u32", tag, iteration_));
  run(frame, ReduceOp::kMax, tag);
  if (words[0] != ~words[2] || words[1] != ~words[3]) report_mismatch();
  std::ranges::copy(words.subspan(kSignatureWords), payload.begin());
}

void CollectiveGuard::reduce_max_in_frames(std::span<std::uint32_t> words, const CollectiveTag& tag) {
  std::size_t done = 0;
  do {
    std::array<std::uint32_t, kFramePayload> frame{};
    const auto part = words.subspan(done, std::min(frame.size(), words.size() - done));
    std::ranges::copy(part, frame.begin());
    reduce_max(frame, words.size(), tag);
    std::copy_n(frame.begin(), part.size(), part.begin());
    done += part.size();
  } while (done < words.size());
}

void CollectiveGuard::reduce_sum(std::span<double> payload, const CollectiveTag& tag) {
  if (group_.size() == 1) return;
  auto buffer = std::make_shared<Tensor>(DType::kF64, Shape{static_cast<std::int64_t>(payload.size())});
  std::ranges::copy(payload, buffer->values<double>().begin());
  record(describe(ReduceOp::kSum, payload.size(), "f64", tag, iteration_));
  run(buffer, ReduceOp::kSum, tag);
  std::ranges::copy(buffer->values<double>(), payload.begin());
}

void CollectiveGuard::record(std::string description) {
  AMAXSCOPE_CHECK(!broken_, ErrorCode::kInternal,
                  "{}: this group's debug traffic failed before and cannot go on", description);
  if (flight_record_.size() >= options_.flight_record_length) flight_record_.pop_front();
  flight_record_.push_back({sequence_++, std::move(description), iteration_, /*completed=*/false});
}

void CollectiveGuard::run(const std::shared_ptr<Tensor>& buffer, ReduceOp op, const CollectiveTag& tag) {
  // Whatever leaves this function by an exception leaves ranks that no longer agree on the next collective.
  broken_ = true;
  if (!complete(buffer, op, tag)) report_deadline();
  broken_ = false;
  flight_record_.back().completed = true;
}

bool CollectiveGuard::complete(const std::shared_ptr<Tensor>& buffer, ReduceOp op, const CollectiveTag& tag) {
  const auto start = options_.clock->steady_now();
  // Abandoned with its buffer when the deadline passes: the library underneath may still write to it.
  const std::unique_ptr<PendingCollective> pending = group_.start_all_reduce(buffer, op, tag);
  for (int tests = 0; !pending->test(); ++tests) {
    if (tests < kSpins) {
      std::this_thread::yield();
      continue;
    }
    if (options_.clock->steady_now() - start > options_.deadline) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

std::optional<std::vector<std::string>> CollectiveGuard::gather_descriptions(const std::string& own) {
  // Not all_gather: a rank that gave up at its deadline just before would be waited for without one.
  constexpr CollectiveTag kTag = {.what = "report of a mismatch"};
  auto longest = std::make_shared<Tensor>(DType::kU64, Shape{1});
  longest->values<std::uint64_t>()[0] = own.size();
  if (!complete(longest, ReduceOp::kMax, kTag)) return std::nullopt;
  const std::size_t words =
      (longest->values<std::uint64_t>()[0] + sizeof(std::uint32_t)) / sizeof(std::uint32_t);

  // Each rank writes into its own zeroed slot, so that MAX is the list of all. A slot ends with a zero byte.
  auto slots = std::make_shared<Tensor>(DType::kU32, Shape{group_.size(), static_cast<std::int64_t>(words)});
  const std::span<std::uint32_t> all = slots->values<std::uint32_t>();
  std::memcpy(all.subspan(static_cast<std::size_t>(group_.rank()) * words, words).data(), own.data(),
              own.size());
  if (!complete(slots, ReduceOp::kMax, kTag)) return std::nullopt;
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(group_.size()); ++rank) {
    texts.emplace_back(reinterpret_cast<const char*>(all.subspan(rank * words, words).data()));
  }
  return texts;
}

void CollectiveGuard::report_mismatch() {
  broken_ = true;
  const FlightEntry& entry = flight_record_.back();
  const std::string own = fmt::format("call {}: {}", entry.sequence, entry.description);
  // All ranks have seen the same words, so all of them come here.
  const std::optional<std::vector<std::string>> all = gather_descriptions(own);
  if (!all) {
    throw Error(
        ErrorCode::kMismatch,
        fmt::format("ranks are in different debug collectives; this rank was in {}; the others did not "
                    "say within {} ms where they were",
                    own, options_.deadline.count()));
  }
  std::map<std::string, std::vector<int>> ranks_of;
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    ranks_of[(*all)[rank]].push_back(group_.world_ranks()[rank]);
  }
  std::vector<std::pair<std::vector<int>, std::string>> operations;  // in the order of their lowest rank
  for (const auto& [operation, ranks] : ranks_of) operations.emplace_back(ranks, operation);
  std::ranges::sort(operations);
  std::string message = "ranks are in different debug collectives: ";
  for (const auto& [ranks, operation] : operations) {
    message +=
        fmt::format("{}{}: {}", ranks == operations.front().first ? "" : "; ", rank_list(ranks), operation);
  }
  if (operations.size() == 1) message += " (they differ in the length of their messages only)";
  throw Error(ErrorCode::kMismatch, message);
}

void CollectiveGuard::report_deadline() {
  std::string message = fmt::format(
      "rank {} waited {} ms for the others of its group ({}) in \"{}\"; its last debug collectives:",
      group_.world_ranks()[static_cast<std::size_t>(group_.rank())], options_.deadline.count(),
      rank_list(group_.world_ranks()), flight_record_.back().description);
  const std::size_t first = flight_record_.size() - std::min(flight_record_.size(), kShownEntries);
  for (std::size_t i = first; i < flight_record_.size(); ++i) {
    const FlightEntry& entry = flight_record_[i];
    message += fmt::format("\n  call {}: {} - {}", entry.sequence, entry.description,
                           entry.completed ? "completed" : "not completed");
  }
  throw Error(ErrorCode::kDeadline, message);
}

}  // namespace amaxscope
