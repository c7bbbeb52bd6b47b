#include "features/nonfinite_guard_first.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace amaxscope {

namespace {

constexpr std::size_t kWords = 8;

}  // namespace

std::string NonFiniteGuard::Seen::text() const {
  const std::string_view what = scan.first_is_nan ? "NaN" : "Inf";
  std::string size = fmt::format("the first {} is element {}, {} element{} not finite", what, scan.first,
                                 scan.count, scan.count == 1 ? " is" : "s are");
  switch (place) {
    case Place::kRowwiseCodes:
      return "the tensor is finite, its rowwise codes are not: " + size;
    case Place::kColumnwiseCodes:
      return "the tensor is finite, its columnwise codes are not: " + size;
    case Place::kValues:
      break;
  }
  return size;
}

void FirstSeen::feed(const NonFiniteGuard::Seen& seen) {
  if (!seen_) seen_ = seen;
  mark_ran(true);
}

void FirstSeen::reset() {
  seen_.reset();
  mark_ran(false);
}

void FirstSeen::pack_max(std::span<std::uint32_t> out) const { out[0] = seen_ ? ~seen_->sequence : 0U; }

std::size_t FirstSeen::detail_words(const ReducedStat& reduced) const {
  return reduced.max[0] == 0 || reported_ ? 0 : kWords;
}

void FirstSeen::pack_details(std::span<std::uint32_t> out) const {
  if (!seen_) return;
  out[0] = ~seen_->sequence;
  out[1] = seen_->tensor;
  out[2] = static_cast<std::uint32_t>(seen_->scan.first);
  out[3] = static_cast<std::uint32_t>(seen_->scan.first >> 32);
  out[4] = static_cast<std::uint32_t>(std::min<std::uint64_t>(seen_->scan.count, 0xFFFFFFFFU));
  out[5] = static_cast<std::uint32_t>(seen_->scan.first_is_nan);
  out[6] = static_cast<std::uint32_t>(seen_->place);
  out[7] = static_cast<std::uint32_t>(seen_->moment.microbatch) |
           (static_cast<std::uint32_t>(seen_->moment.phase) << 16);
}

std::vector<Finding> FirstSeen::findings(const ReducedStat& reduced) const {
  if (reported_ || reduced.details.empty()) return {};
  Finding finding;
  finding.check = "first non-finite";
  for (std::size_t i = 0; i < reduced.ranks.size(); ++i) {
    const auto words = reduced.details.subspan(i * kWords, kWords);
    if (words[0] != reduced.max[0]) continue;
    if (!finding.ranks.empty()) {  // at the same place of the program: they share the tensor or its cause
      finding.ranks.push_back(reduced.ranks[i]);
      continue;
    }
    NonFiniteGuard::Seen seen;
    seen.scan.first = static_cast<std::int64_t>(words[2] | (std::uint64_t{words[3]} << 32));
    seen.scan.count = words[4];
    seen.scan.first_is_nan = words[5] != 0;
    seen.place = static_cast<NonFiniteGuard::Seen::Place>(words[6]);
    finding.microbatch = static_cast<int>(words[7] & 0xFFFFU);
    finding.phase = static_cast<Phase>(words[7] >> 16);
    if (words[1] < tensors_.size()) {
      finding.layer = tensors_[words[1]]->layer;
      finding.tensor = tensors_[words[1]]->name;
    }
    finding.ranks = {reduced.ranks[i]};
    finding.what = seen.text();
    finding.details = {{"index", fmt::format("{}", seen.scan.first)},
                       {"kind", seen.scan.first_is_nan ? "NaN" : "Inf"},
                       {"count", fmt::format("{}", seen.scan.count)}};
  }
  reported_ = true;
  return {std::move(finding)};
}

}  // namespace amaxscope
