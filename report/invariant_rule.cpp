#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <set>
#include <string_view>
#include <tuple>

#include "report/rules.hpp"
#include "report/words.hpp"

namespace amaxscope::report {

namespace {

/// A check of InvariantGuard, in the order in which one explains the others when several fail at once: a
/// scale that is wrong makes copies differ, copies that differ make weights stale, all of them make replicas
/// differ.
struct Equality {
  std::string_view check;
  const char* kind;
  const char* what;  ///< of the sentence, before the place
  const char* why;   ///< what separates it from its neighbours
  const char* action;
  const char* expect;
};

constexpr std::array kEqualities = {
    Equality{
        "I9", "state_lost", "a restart did not bring back what was saved:",
        "the fingerprints in the saved state do not match what was loaded: this is about the checkpoint, not "
        "about the arithmetic",
        "find out which state of the recipe is not saved or not loaded (histories, scales) and load it",
        "no I9 at the next restart; the loss goes on where it stopped"},
    Equality{"I5", "scale_too_large", "the scale does not map the tensor into its format:",
             "amax * scale is beyond the largest code although the scale was made from this very amax: no "
             "staleness, "
             "no data, but the arithmetic of the scale (rounding direction, the format's maximum)",
             "look at how the scale is made: a power-of-two scale must be rounded so that amax * scale stays "
             "within "
             "the format",
             "no saturated blocks; the signal-to-noise ratio of these tensors rises"},
    Equality{
        "I6", "scale_not_from_history", "the scale in use is not the one that the amax history gives:",
        "recomputed from the recorded history bit for bit: the scale was not updated, or something else "
        "wrote it",
        "look at who updates the scale of this tensor after the step, and whether it is the buffer in use",
        "no I6; overflows of this tensor stop"},
    Equality{"I2", "foreign_scale", "ranks that gather codes under one scale have different scales:",
             "codes of one rank are decoded with the scale of another: the error is a constant factor on "
             "that rank's "
             "part, whatever the values are",
             "reduce the amax of this tensor (MAX) over the tensor-parallel group before its scale is made",
             "no I2; the outputs of the layer no longer depend on the number of ranks"},
    Equality{"I3", "copies_differ", "the two copies of a quantized tensor do not stand for the same values:",
             "one copy feeds some GEMMs and the other the rest: the GEMMs of the stale copy alone are wrong",
             "refresh both copies whenever the tensor is quantized",
             "no I3; gradients of this layer are right again"},
    Equality{"I7", "stale_weight", "a weight's codes are not the cast of the weight:",
             "the codes were made from other values, or were changed after they were made: the optimizer's "
             "step does "
             "not reach the GEMM",
             "quantize the weight anew after every optimizer step, and let nothing else write to its codes",
             "no I7; the layer learns again"},
    Equality{"I1", "replicas_differ", "what all ranks should hold alike differs:",
             "the bytes of replicas were compared, no tolerance and no threshold is involved: ranks have "
             "parted and "
             "will not come together again",
             "look for a gradient of this parameter that is not reduced over the group that holds its "
             "replicas, or "
             "for something that ranks do not do alike",
             "no I1 after a restart from a state before that iteration"},
    Equality{"I4", "recompute_differs", "the recompute does not repeat the forward:",
             "the backward pass works with other values than the forward produced",
             "run the recompute under the same recipe, scales and random state as the forward",
             "no I4; gradients belong to the forward that was run"},
    Equality{"I8", "scalars_differ", "a number that all ranks should agree on differs:",
             "compared in bits over the ranks; ranks that disagree about it take different steps",
             "look for a reduction that is missing or that some ranks do not take part in", "no I8"},
};

/// Of the norms: after a step with another norm of the gradient elements near 0 differ by any factor
/// everywhere.
double relative_difference(const Found& found) {
  auto detail = found.first.details.find("relative_norm_of_difference");
  if (detail == found.first.details.end()) detail = found.first.details.find("largest_relative_difference");
  if (detail == found.first.details.end()) return 0;
  double value = 0;
  const std::string& text = detail->second;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Two groups of the same size: neither is the odd one out.
bool is_a_tie(const Found& found) {
  const auto sets = found.first.details.find("sets");
  if (sets == found.first.details.end()) return false;
  constexpr std::string_view kAgainst = " against ";
  const std::size_t at = sets->second.find(kAgainst);
  if (at == std::string::npos || sets->second.find(kAgainst, at + 1) != std::string::npos) return false;
  const auto commas = [](std::string_view text) { return std::ranges::count(text, ','); };
  return commas(sets->second.substr(0, at)) == commas(sets->second.substr(at)) &&
         sets->second.find_first_of("-.") == std::string::npos;
}

/// Where the tensor stands in the model; those without records come last.
std::size_t place_in_model(const Evidence& evidence, const Found& found) {
  const auto tensor = evidence.tensors().find({found.first.layer, found.first.tensor});
  return tensor != evidence.tensors().end() ? tensor->second.order : std::numeric_limits<std::size_t>::max();
}

/// Those of one check at its first iteration, the clearest first.
std::vector<const Found*> at_first(const Evidence& evidence, std::string_view check) {
  std::vector<const Found*> all;
  for (const auto& [key, found] : evidence.findings()) {
    if (found.first.check == check) all.push_back(&found);
  }
  if (all.empty()) return all;
  const std::int64_t first = (*std::ranges::min_element(all, {}, [](const Found* each) {
                               return each->first.iteration;
                             }))->first.iteration;
  std::erase_if(all, [&](const Found* each) { return each->first.iteration != first; });
  std::ranges::sort(all, {}, [&](const Found* each) {
    const bool precision = each->first.what.find("precision") != std::string::npos;
    return std::tuple(-relative_difference(*each), !precision, place_in_model(evidence, *each), each->order);
  });
  // One replica that is far off makes all others differ a little, through the norm of the gradient.
  if (check == "I1") {
    const double most = relative_difference(*all.front());
    std::erase_if(all, [&](const Found* each) { return relative_difference(*each) < 0.1 * most; });
  }
  return all;
}

Cause cause_of(const Equality& equality, const std::vector<const Found*>& all) {
  const Found& clearest = *all.front();
  Cause cause;
  cause.kind = equality.kind;
  cause.iteration = clearest.first.iteration;
  std::set<std::int64_t> ranks;
  for (const Found* found : all) {
    cause.places.push_back({found->first.layer, found->first.tensor});
    ranks.insert(found->ranks.begin(), found->ranks.end());
  }
  cause.ranks.assign(ranks.begin(), ranks.end());
  cause.phase = clearest.first.phase;
  const auto copy = clearest.first.details.find("copy");
  cause.gemms =
      gemms_of(clearest.first.tensor, copy != clearest.first.details.end() ? copy->second : std::string());
  cause.sentence = fmt::format("{} {}", equality.what, named(cause.places));
  cause.why = {printable(clearest.first.what), equality.why};
  cause.actions = {equality.action};
  cause.expect = equality.expect;
  return cause;
}

/// Whether one reduction is wrong for all, or one rank missed one.
void tell_group_from_rank(const Evidence& evidence, const std::vector<const Found*>& all, Cause& cause) {
  const bool missed = all.front()->first.what.find("did not take") != std::string::npos;
  const auto tensor = evidence.tensors().find({all.front()->first.layer, all.front()->first.tensor});
  const bool delayed = tensor != evidence.tensors().end() && tensor->second.recipe == "delayed";
  if (missed || all.size() < 2) {
    cause.why.emplace_back(
        "other tensors whose codes are gathered have one scale: one reduction is missing, not all");
    return;
  }
  cause.kind = "wrong_reduction_group";
  cause.ranks.clear();  // whichever of them is right, the group is wrong for all
  cause.sentence = fmt::format("scales of {} tensors differ over the ranks that gather their codes: {}",
                               all.size(), named(cause.places));
  cause.why.emplace_back(delayed ? "all of them at once, under delayed scaling: the amax history is reduced "
                                   "over a group that does not "
                                   "hold all tensor-parallel ranks"
                                 : "several of them at once: the amax reduction uses a group that does not "
                                   "hold all tensor-parallel ranks");
  cause.actions = {
      "reduce amaxes over the tensor-parallel ranks too (delayed scaling: over tp, dp and cp together)"};
}

std::string watch_closely(const Cause& cause) {
  return yaml_section(
      "verify_the_repair", cause.places,
      "    InvariantGuard:\n      enabled: True\n      tensors: [activation, weight, gradient, output]\n");
}

}  // namespace

std::vector<Cause> broken_invariants(const Evidence& evidence) {
  std::vector<Cause> causes;
  for (const Equality& equality : kEqualities) {
    const std::vector<const Found*> all = at_first(evidence, equality.check);
    if (all.empty()) continue;
    Cause cause = cause_of(equality, all);
    if (equality.check == "I2") tell_group_from_rank(evidence, all, cause);
    if (std::ranges::any_of(all, [](const Found* found) { return is_a_tie(*found); }) &&
        equality.check != "I2") {
      cause.ranks.clear();
      cause.why.emplace_back("with as many ranks on either side it cannot be said which of them are right");
    }
    cause.yaml = watch_closely(cause);
    causes.push_back(std::move(cause));
  }
  std::ranges::stable_sort(causes, {}, &Cause::iteration);
  return causes;
}

}  // namespace amaxscope::report
