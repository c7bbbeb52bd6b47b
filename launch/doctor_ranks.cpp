#include "launch/doctor_ranks.hpp"

#include <unistd.h>

#include "collectives/exchange.hpp"
#include "launch/machine.hpp"
#include "runtime/config/config.hpp"

namespace amaxscope::launch {

namespace {

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "?";
}

RankReport own_report(Job& job, const std::string& config) {
  RankReport report;
  report.host = host_name();
  report.local_rank = job.machine().rank;
  report.cores = usable_cores();
  report.environment = environment_with({"AMAXSCOPE", "NCCL_", "OMP_", "OPENBLAS_"});
  if (!config.empty()) report.config_digest = text_digest(read_config_file(config));
  return report;
}

}  // namespace

std::vector<RankReport> reports_of_ranks(Job& job, const std::string& config) {
  std::string own;
  job.agree([&] { own = to_text(own_report(job, config)); });
  std::vector<RankReport> reports;
  for (const std::string& text :
       all_gather_text(job.world(), own, {.traffic = Traffic::kTrainer, .what = "reports of the ranks"})) {
    reports.push_back(parse_rank_report(text));
  }
  return reports;
}

}  // namespace amaxscope::launch
