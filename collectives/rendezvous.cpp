#include "collectives/rendezvous.hpp"

#include <algorithm>
#include <utility>

#include "collectives/rank_order_reduction.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {

std::string describe(const Rendezvous::Call& call) {
  using Kind = Rendezvous::Kind;
  switch (call.kind) {
    case Kind::kBarrier:
      return "barrier";
    case Kind::kSplit:
      return "split";
    case Kind::kAllGather:
      return fmt::format("all_gather of {} bytes", call.bytes);
    case Kind::kBroadcast:
      return fmt::format("broadcast of {} bytes from rank {}", call.bytes, call.root);
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
      break;
  }
  return fmt::format("{} {} of {} bytes {}", call.kind == Kind::kAllReduce ? "all_reduce" : "reduce_scatter",
                     to_string(call.reduction->second), call.bytes, to_string(call.reduction->first));
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace

void LoopbackJob::fail_locked(std::exception_ptr error) {
  if (failure_ == nullptr) {
    failure_text_ = text_of(error);
    failure_ = std::move(error);
  }
  changed_.notify_all();
}

void LoopbackJob::fail(std::exception_ptr error) {
  const std::scoped_lock lock(mutex_);
  fail_locked(std::move(error));
}

void LoopbackJob::end(int world_rank) {
  const std::scoped_lock lock(mutex_);
  ended_[static_cast<std::size_t>(world_rank)] = true;
  changed_.notify_all();
}

std::exception_ptr LoopbackJob::first_failure() {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

void LoopbackJob::require_no_failure() const {
  AMAXSCOPE_CHECK(failure_ == nullptr, ErrorCode::kInternal, "another rank has failed: {}", failure_text_);
}

std::uint64_t Rendezvous::arrive(int rank, const Call& call, Bytes part) {
  const std::scoped_lock lock(job_->mutex_);
  job_->require_no_failure();
  const auto own = static_cast<std::size_t>(rank);
  const std::uint64_t number = next_[own]++;
  Operation& operation = operations_[number];
  if (operation.arrivals == 0) {
    operation.call = call;
    operation.first = rank;
    operation.arrived.resize(world_ranks_.size(), false);
    operation.outcome = std::make_shared<Outcome>();
    operation.outcome->parts.resize(world_ranks_.size());
  }
  if (operation.call != call) {
    Error error(ErrorCode::kInternal,
                fmt::format("ranks are in different collectives: rank {} in {}, rank {} in {}",
                            world_ranks_[static_cast<std::size_t>(operation.first)], describe(operation.call),
                            world_ranks_[own], describe(call)));
    job_->fail_locked(std::make_exception_ptr(error));
    throw error;
  }
  operation.outcome->parts[own] = std::move(part);
  operation.arrived[own] = true;
  if (++operation.arrivals == world_ranks_.size()) {
    finish(operation);
    job_->changed_.notify_all();
  }
  return number;
}

void Rendezvous::finish(Operation& operation) const {
  operation.done = true;
  if (!operation.call.reduction) return;
  const auto [dtype, op] = *operation.call.reduction;
  Outcome& outcome = *operation.outcome;
  outcome.reduced.resize(operation.call.bytes);
  std::vector<const void*> inputs;
  for (const Bytes& part : outcome.parts) inputs.push_back(part.data());
  const auto count = static_cast<std::int64_t>(operation.call.bytes * 8) / bits_per_element(dtype);
  reduce_in_order(inputs, outcome.reduced.data(), count, dtype, op);
  outcome.parts.clear();
}

std::optional<int> Rendezvous::missing_for_good(const Operation& operation) const {
  for (std::size_t rank = 0; rank < world_ranks_.size(); ++rank) {
    const int world_rank = world_ranks_[rank];
    if (!operation.arrived[rank] && job_->ended_[static_cast<std::size_t>(world_rank)]) return world_rank;
  }
  return std::nullopt;
}

std::shared_ptr<const Rendezvous::Outcome> Rendezvous::poll(std::uint64_t number) {
  const std::scoped_lock lock(job_->mutex_);
  const Operation& operation = operations_.at(number);
  if (operation.done) return operation.outcome;
  job_->require_no_failure();
  return nullptr;
}

std::shared_ptr<const Rendezvous::Outcome> Rendezvous::wait(std::uint64_t number) {
  std::unique_lock lock(job_->mutex_);
  const Operation& operation = operations_.at(number);
  std::optional<int> missing;
  job_->changed_.wait(lock, [&] {
    if (operation.done || job_->failure_ != nullptr) return true;
    missing = missing_for_good(operation);
    return missing.has_value();
  });
  if (operation.done) return operation.outcome;
  job_->require_no_failure();
  throw Error(ErrorCode::kInternal,
              fmt::format("{}: rank {} has ended and will never come", describe(operation.call), *missing));
}

bool Rendezvous::has_ended(int rank) const {
  return job_->ended_[static_cast<std::size_t>(world_ranks_[static_cast<std::size_t>(rank)])];
}

void Rendezvous::fail(const std::string& text) const {
  const Error error(ErrorCode::kInternal, text);
  job_->fail_locked(std::make_exception_ptr(error));
  throw error;
}

void Rendezvous::send(int from, int to, Bytes message) {
  const auto world_rank = [this](int rank) { return world_ranks_[static_cast<std::size_t>(rank)]; };
  std::unique_lock lock(job_->mutex_);
  job_->require_no_failure();
  if (sent_.contains({to, from})) {
    fail(fmt::format("rank {} and rank {} both send to each other and wait; one has to receive first",
                     world_rank(to), world_rank(from)));
  }
  const std::pair key(from, to);
  const std::size_t bytes = message.size();
  sent_.emplace(key, std::move(message));
  job_->changed_.notify_all();
  job_->changed_.wait(lock,
                      [&] { return !sent_.contains(key) || job_->failure_ != nullptr || has_ended(to); });
  if (!sent_.contains(key)) return;
  sent_.erase(key);
  job_->require_no_failure();
  throw Error(ErrorCode::kInternal,
              fmt::format("send of {} bytes: rank {} has ended and will never come", bytes, world_rank(to)));
}

Rendezvous::Bytes Rendezvous::receive(int to, int from, std::size_t bytes) {
  const auto world_rank = [this](int rank) { return world_ranks_[static_cast<std::size_t>(rank)]; };
  std::unique_lock lock(job_->mutex_);
  job_->require_no_failure();
  const std::pair key(from, to);
  job_->changed_.wait(lock,
                      [&] { return sent_.contains(key) || job_->failure_ != nullptr || has_ended(from); });
  job_->require_no_failure();
  const auto found = sent_.find(key);
  AMAXSCOPE_CHECK(found != sent_.end(), ErrorCode::kInternal,
                  "receive of {} bytes: rank {} has ended and will never come", bytes, world_rank(from));
  if (found->second.size() != bytes) {
    fail(fmt::format("rank {} sends {} bytes and rank {} receives {}", world_rank(from), found->second.size(),
                     world_rank(to), bytes));
  }
  Bytes message = std::move(found->second);
  sent_.erase(found);
  job_->changed_.notify_all();
  return message;
}

void Rendezvous::post(int from, int to, std::string text) {
  const std::scoped_lock lock(job_->mutex_);
  posted_[to].push_back({from, std::move(text)});
}

std::optional<SideMessage> Rendezvous::take(int to) {
  const std::scoped_lock lock(job_->mutex_);
  std::deque<SideMessage>& waiting = posted_[to];
  if (waiting.empty()) return std::nullopt;
  SideMessage first = std::move(waiting.front());
  waiting.pop_front();
  return first;
}

void Rendezvous::leave(std::uint64_t number) {
  const std::scoped_lock lock(job_->mutex_);
  if (++operations_.at(number).departures == world_ranks_.size()) operations_.erase(number);
}

std::shared_ptr<Rendezvous> Rendezvous::child(std::uint64_t number, int color,
                                              const std::vector<int>& child_world_ranks) {
  const std::scoped_lock lock(job_->mutex_);
  const auto key = std::make_pair(number, color);
  Child& known = children_[key];
  if (known.group == nullptr) known.group = std::make_shared<Rendezvous>(job_, child_world_ranks);
  std::shared_ptr<Rendezvous> result = known.group;
  if (++known.asked == child_world_ranks.size()) children_.erase(key);
  return result;
}

}  // namespace amaxscope
