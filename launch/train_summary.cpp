#include "launch/train_summary.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "report/json_values.hpp"

namespace amaxscope::launch {

namespace {

struct Folder {
  std::string_view name;
  std::string_view holds;
};

// What only some configs write.
constexpr std::array<Folder, 4> kFolders = {{
    {"tensorboard/", "the same for TensorBoard"},
    {"tensor_dumps/", "tensors, by rank and iteration"},
    {"nonfinite/", "the first NaN or Inf of each rank"},
    {"events/", "what led to what the ranks agreed on, and its tensors"},
}};

std::string folders_in(const std::filesystem::path& log_dir) {
  std::string text;
  for (const Folder& folder : kFolders) {
    std::error_code ignored;
    if (std::filesystem::is_directory(log_dir / folder.name, ignored))
      text += fmt::format("  {:<62}  {}\n", folder.name, folder.holds);
  }
  return text;
}

}  // namespace

std::string as_text(const TrainSummary& summary) {
  std::string text = fmt::format(
      "loss {:.4f} -> {:.4f} nats per byte, {} steps in {:.1f} s on {} ranks ({}), recipe {}\n",
      summary.losses.front(), summary.losses.back(), summary.losses.size(), summary.seconds, summary.world,
      summary.pp == 1 ? fmt::format("tp {}", summary.tp)
                      : fmt::format("tp {}, pp {}", summary.tp, summary.pp),
      summary.recipe);
  if (!summary.evaluations.empty()) {
    text += fmt::format("evaluation {:.4f} -> {:.4f} nats per byte, {} times\n",
                        summary.evaluations.front().second, summary.evaluations.back().second,
                        summary.evaluations.size());
  }
  text += fmt::format("collectives of rank 0: {} trainer, {} recipe, {} debug\n", summary.collectives.trainer,
                      summary.collectives.recipe, summary.collectives.debug);
  text += fmt::format("weights {}\n", summary.weights_digest);
  if (summary.log_dir.empty()) {
    return text + "nothing was logged: no debug config, or none of its sections is enabled\n";
  }
  text += fmt::format("logs in {}\n", summary.log_dir);
  text += "  nvdlfw_inspect_statistics_logs/nvdlfw_inspect_globalrank-0.log  statistics, one a line\n";
  text += "  nvdlfw_inspect_logs/nvdlfw_inspect_globalrank-0.log             messages\n";
  text +=
      "  metrics/rank_0.jsonl                                            the same numbers as JSON lines\n";
  text += "  run.json                                                        what ran, and how\n";
  text += folders_in(summary.log_dir);
  return text + (summary.verdict_text.empty() ? "" : "\n" + summary.verdict_text);
}

std::string as_json(const TrainSummary& summary) {
  nlohmann::ordered_json losses = nlohmann::ordered_json::array();
  for (const double loss : summary.losses) losses.push_back(report::json_of(loss));
  nlohmann::ordered_json json = {{"losses", losses},
                                 {"world", summary.world},
                                 {"tp", summary.tp},
                                 {"pp", summary.pp},
                                 {"recipe", summary.recipe},
                                 {"steps", summary.losses.size()},
                                 {"seconds", summary.seconds},
                                 {"collectives",
                                  {{"trainer", summary.collectives.trainer},
                                   {"recipe", summary.collectives.recipe},
                                   {"debug", summary.collectives.debug}}},
                                 {"weights_digest", summary.weights_digest},
                                 {"log_dir", nullptr},
                                 {"verdict", nullptr}};
  if (!summary.evaluations.empty()) {
    nlohmann::ordered_json& evaluations = json["evaluations"] = nlohmann::ordered_json::array();
    for (const auto& [step, loss] : summary.evaluations)
      evaluations.push_back({{"step", step}, {"loss", report::json_of(loss)}});
  }
  if (!summary.log_dir.empty()) json["log_dir"] = summary.log_dir;
  if (!summary.verdict_json.empty()) json["verdict"] = nlohmann::ordered_json::parse(summary.verdict_json);
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace amaxscope::launch
