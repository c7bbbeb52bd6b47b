#include "runtime/stats/packed_reduction.hpp"

#include <algorithm>

namespace amaxscope {

namespace {

constexpr std::size_t kRanWord = 1;
/// Enough for the first failures, which are the ones that matter: 256 KiB.
constexpr std::size_t kMostDetailWords = 65536;

std::size_t words_of(const StatEntry& entry) { return 2 * (kRanWord + entry.cell.train->max_words()); }

/// What this rank packs for an accumulator: nothing fed, and what another replica counts, is the identity.
const StatAccumulator& packed(const StatEntry& entry, const StatAccumulator& own) {
  return entry.contributes && own.ran() ? own : *entry.identity;
}

}  // namespace

/// One accumulator of a due entry on its way through the three collectives.
struct PackedReduction::Slot {
  StatEntry* entry;
  StatAccumulator* own;
  Phase phase;
  std::span<const std::uint32_t> max;
  std::size_t sum_offset = 0;
  std::size_t sum_words = 0;
  std::size_t moment_offset = 0;
  std::size_t detail_offset = 0;
  std::size_t detail_words = 0;  ///< of all ranks; 0: none were gathered
};

void PackedReduction::add(StatEntry& entry) {
  const auto place =
      std::ranges::lower_bound(entries_, entry.key, {}, [](const StatEntry* e) { return e->key; });
  entries_.insert(place, &entry);
  max_words_ += words_of(entry);
}

bool PackedReduction::due(std::int64_t iteration) const {
  return std::ranges::any_of(entries_,
                             [&](const StatEntry* entry) { return entry->schedule.due(iteration); });
}

std::optional<std::int64_t> PackedReduction::next_due(std::int64_t from) const {
  std::optional<std::int64_t> earliest;
  for (const StatEntry* entry : entries_) {
    const std::optional<std::int64_t> next = entry->schedule.next_due(from);
    if (next && (!earliest || *next < *earliest)) earliest = next;
  }
  return earliest;
}

std::vector<StatResult> PackedReduction::reduce(std::int64_t iteration) {
  guard_.set_iteration(iteration);

  // (1) Everything that is registered, due or not: the length must not depend on what this rank believes is
  // due.
  std::vector<std::uint32_t> max(max_words_);
  std::size_t offset = 0;
  std::vector<Slot> slots;
  for (StatEntry* entry : entries_) {
    const bool due = entry->schedule.due(iteration);
    for (StatAccumulator* own : {entry->cell.train.get(), entry->cell.eval.get()}) {
      max[offset] = static_cast<std::uint32_t>(due && own->ran());
      const std::size_t words = own->max_words();
      const StatAccumulator& source = due ? packed(*entry, *own) : *entry->identity;
      source.pack_max(std::span(max).subspan(offset + kRanWord, words));
      if (due) {
        const bool eval = own == entry->cell.eval.get();
        slots.push_back({entry, own, eval ? Phase::kEval : entry->tensor->training_phase,
                         std::span(max).subspan(offset, kRanWord + words)});
      }
      offset += kRanWord + words;
    }
  }
  guard_.reduce_max(max, max.size(), {.what = "statistics"});
  std::erase_if(slots, [](const Slot& slot) { return slot.max[0] == 0; });

  // (2)
  std::size_t sum_count = 0;
  std::size_t moment_count = 0;
  for (Slot& slot : slots) {
    slot.sum_offset = sum_count;
    slot.moment_offset = moment_count;
    slot.sum_words = slot.own->sum_words_for(slot.max.subspan(kRanWord));
    sum_count += slot.sum_words;
    moment_count += slot.own->moment_words();
  }
  std::vector<double> sums(sum_count);
  for (const Slot& slot : slots) {
    packed(*slot.entry, *slot.own)
        .pack_sums_for(slot.max.subspan(kRanWord), std::span(sums).subspan(slot.sum_offset, slot.sum_words));
  }
  if (!sums.empty()) guard_.reduce_sum(sums, {.what = "statistics: sums"});

  // (3)
  std::vector<double> moments(moment_count);
  for (const Slot& slot : slots) {
    packed(*slot.entry, *slot.own)
        .pack_moments(std::span<const double>(sums).subspan(slot.sum_offset, slot.sum_words),
                      std::span(moments).subspan(slot.moment_offset, slot.own->moment_words()));
  }
  if (!moments.empty()) guard_.reduce_sum(moments, {.what = "statistics: moments"});

  std::vector<ReducedStat> reduced;
  reduced.reserve(slots.size());
  for (const Slot& slot : slots) {
    reduced.push_back(
        {.max = slot.max.subspan(kRanWord),
         .sums = std::span<const double>(sums).subspan(slot.sum_offset, slot.sum_words),
         .moments = std::span<const double>(moments).subspan(slot.moment_offset, slot.own->moment_words()),
         .ranks = guard_.group().world_ranks()});
  }
  const std::vector<std::uint32_t> details = gather_details(slots, reduced);

  std::vector<StatResult> results;
  results.reserve(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    reduced[i].details = std::span(details).subspan(slots[i].detail_offset, slots[i].detail_words);
    slots[i].own->advance(reduced[i], iteration);
    results.push_back({slots[i].entry, slots[i].phase, slots[i].own->values(reduced[i]),
                       slots[i].own->findings(reduced[i]), slots[i].own->take_warnings()});
    slots[i].own->reset();
  }
  return results;
}

/// Each rank fills its own place, so that MAX puts them side by side. Checks beyond the limit go without.
std::vector<std::uint32_t> PackedReduction::gather_details(std::vector<Slot>& slots,
                                                           const std::vector<ReducedStat>& reduced) {
  const auto ranks = static_cast<std::size_t>(guard_.group().size());
  const auto own_rank = static_cast<std::size_t>(guard_.group().rank());
  std::vector<std::uint32_t> details;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Slot& slot = slots[i];
    const std::size_t words = slot.own->detail_words(reduced[i]);
    if (words == 0) continue;
    if (details.size() + words * ranks > kMostDetailWords) break;
    slot.detail_offset = details.size();
    slot.detail_words = words * ranks;
    details.resize(slot.detail_offset + slot.detail_words);
    packed(*slot.entry, *slot.own)
        .pack_details(std::span(details).subspan(slot.detail_offset + own_rank * words, words));
  }
  if (details.empty()) return details;
  details_.set_iteration(guard_.iteration());
  details_.reduce_max_in_frames(details, {.what = "details of failed checks"});
  return details;
}

}  // namespace amaxscope
