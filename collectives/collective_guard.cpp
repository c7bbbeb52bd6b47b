#include "collectives/collective_guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <thread>
#include <utility>

#include "collectives/exchange.hpp"
#include "collectives/flight_text.hpp"
#include "collectives/roll_call.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr int kSpins = 200;  ///< tests before the host sleeps between them
constexpr auto kPause = std::chrono::microseconds(30);
constexpr auto kLongWait = std::chrono::seconds(1);
constexpr auto kPatience = std::chrono::milliseconds(200);  ///< beyond what a rank takes to look up
constexpr auto kLongPause = std::chrono::milliseconds(1);
constexpr int kLookShare = 20;  ///< looking takes at most this part of the waiting
constexpr int kLooksPerDeadline = 4;
constexpr std::size_t kShownEntries = 5;
constexpr std::size_t kOwnEntries = 64;

}  // namespace

CollectiveGuard::CollectiveGuard(Communicator& group, Options options)
    : group_(group),
      options_(std::move(options)),
      flight_(group.flight()),
      flight_group_(group.flight_group()) {
  if (options_.clock == nullptr) options_.clock = std::make_shared<const Clock>();
  if (flight_ != nullptr) return;
  const std::vector<int>& ranks = group.world_ranks();
  flight_ = FlightRecorder::in_memory(ranks[static_cast<std::size_t>(group.rank())],
                                      *std::ranges::max_element(ranks) + 1,
                                      {.entries = kOwnEntries, .clock = options_.clock});
  flight_group_ = flight_->add_group("group", ranks);
}

CallIdentity CollectiveGuard::identity(ReduceOp op, const CollectiveTag& tag, std::size_t used,
                                       std::size_t length) const {
  return {
      .sequence = sequence_, .op = op, .tag = tag, .used = used, .length = length, .iteration = iteration_};
}

CollectiveGuard::Call CollectiveGuard::make_call(std::shared_ptr<Tensor> buffer, ReduceOp op,
                                                 const CollectiveTag& tag, std::size_t used) const {
  FlightCall described;
  described.operation = FlightOperation::kAllReduce;
  described.op = op;
  described.dtype = buffer->dtype();
  described.count = used;
  described.what = tag.what;
  described.layer = tag.layer;
  described.tensor = tag.tensor;
  described.iteration = iteration_;
  std::string own = fmt::format("call {}: {}", sequence_, describe(described));
  AMAXSCOPE_CHECK(!broken_, ErrorCode::kInternal,
                  "{}: this group's debug traffic failed before and cannot go on", own);
  return {std::move(buffer), op, tag, used, std::move(own)};
}

void CollectiveGuard::reduce_max(std::span<std::uint32_t> payload, std::size_t used,
                                 const CollectiveTag& tag) {
  if (group_.size() == 1) return;
  auto frame = std::make_shared<Tensor>(
      DType::kU32, Shape{static_cast<std::int64_t>(kMaxSignatureWords + payload.size())});
  const std::span<std::uint32_t> words = frame->values<std::uint32_t>();
  sign_max(words, signature_of(identity(ReduceOp::kMax, tag, used, payload.size())));
  std::ranges::copy(payload, words.begin() + kMaxSignatureWords);
  const Call call = make_call(std::move(frame), ReduceOp::kMax, tag, used);
  run(call);
  if (!all_agree_max(words)) report_mismatch(call);
  std::ranges::copy(words.subspan(kMaxSignatureWords), payload.begin());
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
  auto frame = std::make_shared<Tensor>(
      DType::kF64, Shape{static_cast<std::int64_t>(kSumSignatureWords + payload.size())});
  const std::span<double> values = frame->values<double>();
  const std::uint64_t signature = signature_of(identity(ReduceOp::kSum, tag, payload.size(), payload.size()));
  sign_sum(values, signature);
  std::ranges::copy(payload, values.begin() + kSumSignatureWords);
  const Call call = make_call(std::move(frame), ReduceOp::kSum, tag, payload.size());
  run(call);
  if (!all_agree_sum(values, signature, group_.size())) report_mismatch(call);
  std::ranges::copy(values.subspan(kSumSignatureWords), payload.begin());
}

void CollectiveGuard::run(const Call& call) {
  // Whatever leaves this function by an exception leaves ranks that no longer agree on the next collective.
  broken_ = true;
  ++sequence_;
  if (const std::optional<GivenUp> given_up = complete(call)) report_given_up(call, *given_up);
  broken_ = false;
}

std::optional<CollectiveGuard::GivenUp> CollectiveGuard::complete(const Call& call) {
  const FlightRecorder::Ticket ticket =
      flight_->begin(flight_group_, {.operation = FlightOperation::kAllReduce,
                                     .tag = call.tag,
                                     .count = call.used,
                                     .dtype = call.buffer->dtype(),
                                     .op = call.op,
                                     .iteration = iteration_});
  std::optional<GivenUp> given_up;
  try {
    // Abandoned with its buffer when it is given up: the library underneath may still write to it.
    const std::unique_ptr<PendingCollective> pending =
        group_.start_all_reduce(call.buffer, call.op, call.tag);
    given_up = drive(*pending, ticket, call.own);
  } catch (const Error& error) {
    flight_->end(ticket, FlightOutcome::kFailed);
    flight_->leave(flight_group_, ticket.sequence);
    throw Error(error.code(), fmt::format("{} in debug collective {}; where the ranks of its group are:\n{}",
                                          error.what(), call.own, roll_call(ticket)));
  }
  flight_->end(ticket, given_up ? FlightOutcome::kFailed : FlightOutcome::kCompleted);
  return given_up;
}

std::optional<CollectiveGuard::GivenUp> CollectiveGuard::drive(PendingCollective& pending,
                                                               const FlightRecorder::Ticket& ticket,
                                                               const std::string& own) {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  const auto start = options_.clock->steady_now();
  const auto look_every = this->look_every();
  auto sign_of_life = start;
  auto next_look = start + look_every;
  bool first_look = true;
  RollCall others(*flight_, flight_group_, ticket.sequence);
  for (int tests = 0; !pending.test(); ++tests) {
    if (tests < kSpins) {
      std::this_thread::yield();
      continue;
    }
    const auto now = options_.clock->steady_now();
    const bool late = now - sign_of_life > options_.deadline;
    if (late || now >= next_look) {
      const RollCall::Look seen = others.look();
      // The first look has nothing to compare with: it must not be the last word when this rank itself was
      // late.
      if (seen.moved || first_look) sign_of_life = now;
      first_look = false;
      if (!seen.hopeless.empty()) {
        if (pending.test()) return std::nullopt;
        return GivenUp{ticket, duration_cast<milliseconds>(now - start), seen.hopeless};
      }
      const auto cost = options_.clock->steady_now() - now;
      next_look = now + std::max<std::chrono::steady_clock::duration>(look_every, kLookShare * cost);
    }
    if (!first_look) answer({ticket.sequence, own});
    if (now - sign_of_life > options_.deadline) {
      return GivenUp{ticket, duration_cast<milliseconds>(now - start), {}};
    }
    if (now - start > kLongWait) {
      std::this_thread::sleep_for(kLongPause);
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
  return std::nullopt;
}

std::chrono::milliseconds CollectiveGuard::look_every() const {
  return std::min(options_.look_every, options_.deadline / kLooksPerDeadline);
}

std::string CollectiveGuard::roll_call(const FlightRecorder::Ticket& ticket) const {
  return RollCall(*flight_, flight_group_, ticket.sequence).text();
}

void CollectiveGuard::answer(const Inquiry::Answer& own) {
  if (group_.size() > Inquiry::kMostRanks) return;
  if (!inquiry_) {
    std::unique_ptr<SideChannel> channel = group_.side_channel();
    if (channel == nullptr) return;
    inquiry_.emplace(std::move(channel));
  }
  inquiry_->answer(own);
}

std::string CollectiveGuard::roll_call_with_questions(const FlightRecorder::Ticket& ticket,
                                                      const std::string& own) {
  const RollCall others(*flight_, flight_group_, ticket.sequence);
  const std::vector<int> unknown = others.unknown();
  if (unknown.empty() || !inquiry_) return others.text();
  const std::vector<int>& world_ranks = group_.world_ranks();
  std::vector<int> asked;
  for (const int rank : unknown) {
    asked.push_back(static_cast<int>(std::ranges::find(world_ranks, rank) - world_ranks.begin()));
  }
  std::map<int, Inquiry::Answer> answers;
  for (const auto& [rank, answer] :
       inquiry_->ask(asked, {ticket.sequence, own}, 2 * look_every() + kPatience, *options_.clock)) {
    answers.emplace(world_ranks[static_cast<std::size_t>(rank)], answer);
  }
  return others.text(&answers);
}

std::optional<std::vector<std::string>> CollectiveGuard::gather_descriptions(const std::string& own) {
  // Not all_gather: a rank that gave up just before would be waited for without a deadline.
  constexpr CollectiveTag kTag = {.what = "report of a mismatch"};
  auto longest = std::make_shared<Tensor>(DType::kU64, Shape{1});
  longest->values<std::uint64_t>()[0] = own.size();
  if (complete({longest, ReduceOp::kMax, kTag, 1, own})) return std::nullopt;
  const std::size_t words = slot_words(longest->values<std::uint64_t>()[0]);
  auto slots = std::make_shared<Tensor>(DType::kU32, Shape{group_.size(), static_cast<std::int64_t>(words)});
  write_slot(slots->values<std::uint32_t>(), group_, own);
  if (complete({slots, ReduceOp::kMax, kTag, words, own})) return std::nullopt;
  return read_slots(slots->values<std::uint32_t>(), group_);
}

void CollectiveGuard::report_mismatch(const Call& call) {
  broken_ = true;
  // All ranks have seen the same words, so all of them come here, unless their library found the fault first.
  std::optional<std::vector<std::string>> all;
  std::string trouble;
  try {
    all = gather_descriptions(call.own);
  } catch (const Error& error) {
    trouble = fmt::format(" ({})", error.what());
  }
  leave();
  if (!all) {
    const std::uint64_t calls = flight_->status().groups[flight_group_].calls;
    throw Error(
        ErrorCode::kMismatch,
        fmt::format("ranks are in different debug collectives; this rank was in {}; the others did not "
                    "say where they were{}:\n{}",
                    call.own, trouble, roll_call({.number = 0, .sequence = calls - 1})));
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

void CollectiveGuard::report_given_up(const Call& call, const GivenUp& given_up) {
  const std::string reason =
      given_up.hopeless.empty()
          ? fmt::format("none of the missing ranks got on for {} ms", options_.deadline.count())
          : given_up.hopeless;
  std::string message = fmt::format(
      "rank {} waited {} ms for the others of its group ({}) in debug collective {}, and gave up: {}\n"
      "where the ranks of its group are:\n{}\nits own last collectives:",
      group_.world_ranks()[static_cast<std::size_t>(group_.rank())], given_up.waited.count(),
      rank_list(group_.world_ranks()), call.own, reason, roll_call_with_questions(given_up.ticket, call.own));
  flight_->leave(flight_group_, given_up.ticket.sequence);
  const FlightRecord record = flight_->record();
  const std::size_t first = record.calls.size() - std::min(record.calls.size(), kShownEntries);
  for (std::size_t i = first; i < record.calls.size(); ++i) {
    message += fmt::format("\n  {}", describe_in_group(record.calls[i], record.status));
  }
  throw Error(ErrorCode::kDeadline, message);
}

}  // namespace amaxscope
