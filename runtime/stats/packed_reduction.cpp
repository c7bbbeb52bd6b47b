#include "runtime/stats/packed_reduction.hpp"

#include <algorithm>

namespace amaxscope {

namespace {

constexpr std::size_t kRanWord = 1;

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
  std::size_t moment_offset = 0;
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
    sum_count += slot.own->sum_words();
    moment_count += slot.own->moment_words();
  }
  std::vector<double> sums(sum_count);
  for (const Slot& slot : slots) {
    packed(*slot.entry, *slot.own).pack_sums(std::span(sums).subspan(slot.sum_offset, slot.own->sum_words()));
  }
  if (!sums.empty()) guard_.reduce_sum(sums, {.what = "statistics: sums"});

  // (3)
  std::vector<double> moments(moment_count);
  for (const Slot& slot : slots) {
    packed(*slot.entry, *slot.own)
        .pack_moments(std::span<const double>(sums).subspan(slot.sum_offset, slot.own->sum_words()),
                      std::span(moments).subspan(slot.moment_offset, slot.own->moment_words()));
  }
  if (!moments.empty()) guard_.reduce_sum(moments, {.what = "statistics: moments"});

  std::vector<StatResult> results;
  results.reserve(slots.size());
  for (const Slot& slot : slots) {
    const ReducedStat reduced{
        slot.max.subspan(kRanWord),
        std::span<const double>(sums).subspan(slot.sum_offset, slot.own->sum_words()),
        std::span<const double>(moments).subspan(slot.moment_offset, slot.own->moment_words())};
    results.push_back({slot.entry, slot.phase, slot.own->values(reduced)});
    slot.own->reset();
  }
  return results;
}

}  // namespace amaxscope
