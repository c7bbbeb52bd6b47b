#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/sensitivity.hpp"
#include "report/words.hpp"

namespace amaxscope::report {

namespace {

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f} %", 100.0 * share) : "not finite";
}

constexpr std::string_view kRow = "{:<55} {:>10} {:>10} {:>10} {:>10} {:>10}\n";

void add_kind(std::string& text, const std::string& kind, std::span<const Sensed> rows, std::size_t most) {
  text += fmt::format(fmt::runtime(kRow), fmt::format("one {}", kind), "grad. goes", "alone", "upd. goes",
                      "alone", "loss");
  for (const Sensed& row : rows.first(std::min(most, rows.size()))) {
    text += fmt::format(fmt::runtime(kRow), "  " + printable(row.trial.what, 53), percent(row.gradient_goes),
                        percent(row.gradient_alone), percent(row.update_goes), percent(row.update_alone),
                        std::isfinite(row.loss_change) ? fmt::format("{:+.2e}", row.loss_change) : "-");
  }
  if (rows.size() > most) text += fmt::format("  and {} more, each with less\n", rows.size() - most);
  text += '\n';
}

/// The rows of a kind, which stand together.
std::span<const Sensed> of_kind(const Sensitivity& sensitivity, const std::string& kind) {
  const auto first =
      std::ranges::find_if(sensitivity.ranked, [&](const Sensed& row) { return row.trial.kind == kind; });
  const auto last = std::find_if(first, sensitivity.ranked.end(),
                                 [&](const Sensed& row) { return row.trial.kind != kind; });
  return {first, last};
}

std::string sentence(const Sensitivity& sensitivity) {
  if (sensitivity.gradient_error == 0.0) {
    return "the gradient of this step is the same with and without quantization\n";
  }
  const auto layers = of_kind(sensitivity, "layer");
  if (layers.empty()) return {};
  const double expected = 1.0 / static_cast<double>(layers.size());
  const Sensed& worst = layers.front();
  const double enough = layers.size() == 1 ? expected : std::min(2.0 * expected, 0.9);
  if (worst.gradient_goes < enough || worst.gradient_alone < enough) {
    return fmt::format(
        "no layer stands out: an even share of the error is {} with {} layers, and none has twice that both "
        "in "
        "what\ngoes away with it and in what it does alone\n",
        percent(expected), layers.size());
  }
  return fmt::format(
      "most sensitive: {}\n{} of the gradient's error goes away when it alone is in high precision, {} is "
      "there "
      "when it alone is\nquantized; an even share would be {}. To keep it in high precision "
      "(--config):\n\n{}",
      printable(worst.trial.what), percent(worst.gradient_goes), percent(worst.gradient_alone),
      percent(expected), worst.trial.in_high_precision);
}

}  // namespace

std::string as_text(const Sensitivity& sensitivity, std::size_t rows_of_a_kind) {
  std::string text = fmt::format(
      "one step as configured: loss {:.6g}, gradient off by {}, update off by {}\n"
      "in high precision:      loss {:.6g}\n"
      "goes: share of that (squared) error which goes away with one thing in high precision; alone: share "
      "that\n"
      "is there with that thing alone quantized; loss: its change with it in high precision\n\n",
      sensitivity.loss, percent(sensitivity.gradient_error), percent(sensitivity.update_error),
      sensitivity.loss_high_precision);
  std::string kind;
  for (const Sensed& row : sensitivity.ranked) {
    if (row.trial.kind == kind) continue;
    kind = row.trial.kind;
    add_kind(text, kind, of_kind(sensitivity, kind), rows_of_a_kind);
  }
  return text + sentence(sensitivity);
}

std::string as_json(const Sensitivity& sensitivity, int indent) {
  nlohmann::ordered_json json = {{"version", 1},
                                 {"loss", sensitivity.loss},
                                 {"loss_high_precision", sensitivity.loss_high_precision},
                                 {"gradient_error", sensitivity.gradient_error},
                                 {"update_error", sensitivity.update_error}};
  nlohmann::ordered_json& ranked = json["ranked"] = nlohmann::ordered_json::array();
  for (const Sensed& row : sensitivity.ranked) {
    ranked.push_back({{"kind", row.trial.kind},
                      {"what", row.trial.what},
                      {"gradient_goes", row.gradient_goes},
                      {"gradient_alone", row.gradient_alone},
                      {"update_goes", row.update_goes},
                      {"update_alone", row.update_alone},
                      {"loss_change", row.loss_change},
                      {"loss_change_alone", row.loss_change_alone},
                      {"yaml", row.trial.in_high_precision}});
  }
  return json.dump(indent, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace amaxscope::report
