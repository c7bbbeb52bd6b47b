#include "collectives/collective_guard.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <thread>

#include "collectives/exchange.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr int kSpins = 200;  ///< tests before the host sleeps between them
constexpr auto kPause = std::chrono::microseconds(30);
constexpr std::size_t kShownEntries = 5;

std::uint64_t fnv1a(std::string_view text) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

std::string describe(ReduceOp op, std::size_t used, std::string_view type, const CollectiveTag& tag,
                     std::int64_t iteration) {
  std::string text = fmt::format("{} of {} ({} x {}", to_string(op), tag.what, used, type);
  if (!tag.layer.empty()) text += fmt::format(", {}", tag.layer);
  if (!tag.tensor.empty()) text += fmt::format(" {}", tag.tensor);
  return text + fmt::format("), iteration {}", iteration);
}

}  // namespace

CollectiveGuard::CollectiveGuard(Communicator& group, Options options) : group_(group), options_(std::move(options)) {
  if (options_.clock == nullptr) options_.clock = std::make_shared<const Clock>();
}

void CollectiveGuard::reduce_max(std::span<std::uint32_t> payload, std::size_t used, const CollectiveTag& tag) {
  if (group_.size() == 1) return;
  const std::string own = describe(ReduceOp::kMax, used, "u32", tag, iteration_);
  auto frame = std::make_shared<Tensor>(
      DType::kU32, Shape{static_cast<std::int64_t>(kSignatureWords + payload.size())});
  const std::span<std::uint32_t> words = frame->values<std::uint32_t>();
  const std::uint64_t signature = fnv1a(fmt::format("{} {} {}", sequence_, payload.size(), own));
  words[0] = static_cast<std::uint32_t>(signature);
  words[1] = static_cast<std::uint32_t>(signature >> 32U);
  words[2] = ~words[0];
  words[3] = ~words[1];
  std::ranges::copy(payload, words.begin() + kSignatureWords);

  run(frame, ReduceOp::kMax, tag, own);
  if (words[0] != ~words[2] || words[1] != ~words[3]) report_mismatch(own);
  std::ranges::copy(words.subspan(kSignatureWords), payload.begin());
}

void CollectiveGuard::reduce_sum(std::span<double> payload, const CollectiveTag& tag) {
  if (group_.size() == 1) return;
  auto buffer = std::make_shared<Tensor>(DType::kF64, Shape{static_cast<std::int64_t>(payload.size())});
  std::ranges::copy(payload, buffer->values<double>().begin());
  run(buffer, ReduceOp::kSum, tag, describe(ReduceOp::kSum, payload.size(), "f64", tag, iteration_));
  std::ranges::copy(buffer->values<double>(), payload.begin());
}

void CollectiveGuard::run(const std::shared_ptr<Tensor>& buffer, ReduceOp op, const CollectiveTag& tag,
                          const std::string& description) {
  AMAXSCOPE_CHECK(!broken_, ErrorCode::kInternal, "{}: the group failed before and cannot be used again",
                  description);
  if (flight_record_.size() == options_.flight_record_length) flight_record_.pop_front();
  flight_record_.push_back({sequence_++, description, iteration_, /*completed=*/false});

  const auto start = options_.clock->steady_now();
  // Abandoned with its buffer when the deadline passes: the library underneath may still write to it.
  const std::unique_ptr<PendingCollective> pending = group_.start_all_reduce(buffer, op, tag);
  for (int spins = 0; !pending->test(); ++spins) {
    if (spins < kSpins) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(kPause);
    if (options_.clock->steady_now() - start > options_.deadline) report_deadline(description);
  }
  flight_record_.back().completed = true;
}

void CollectiveGuard::report_mismatch(const std::string& own) {
  broken_ = true;
  // All ranks have seen the same words, so all of them come here.
  const std::vector<std::string> all = all_gather_text(group_, own, {.what = "mismatch report"});
  std::map<std::string, std::vector<int>> ranks_of;
  for (std::size_t rank = 0; rank < all.size(); ++rank) ranks_of[all[rank]].push_back(group_.world_ranks()[rank]);
  std::string message = "ranks are in different debug collectives:";
  for (const auto& [operation, ranks] : ranks_of) {
    message += fmt::format("\n  rank{} {}: {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), operation);
  }
  if (ranks_of.size() == 1) message += " - the same call, but not the same number of calls before it";
  throw Error(ErrorCode::kMismatch, message);
}

void CollectiveGuard::report_deadline(const std::string& description) {
  broken_ = true;
  std::string message = fmt::format(
      "rank {} waited {} ms for the other ranks ({}) in the debug collective \"{}\"; the last of this rank were:",
      group_.world_ranks()[static_cast<std::size_t>(group_.rank())], options_.deadline.count(),
      fmt::join(group_.world_ranks(), ", "), description);
  const std::size_t first = flight_record_.size() - std::min(flight_record_.size(), kShownEntries);
  for (std::size_t i = first; i < flight_record_.size(); ++i) {
    const FlightEntry& entry = flight_record_[i];
    message += fmt::format("\n  #{} {}: {}", entry.sequence, entry.description,
                           entry.completed ? "completed" : "not completed");
  }
  throw Error(ErrorCode::kDeadline, message);
}

}  // namespace amaxscope
