// A log directory, as `amaxscope check-records` reads it: run.json, then a line of one zero byte, then a
// rank's metrics.
#include "launch/metrics_check.hpp"
#include "tests/fuzz/targets/log_directory.hpp"

namespace amaxscope::fuzz {

namespace {

constexpr std::string_view kBetween("\n\0\n", 3);

std::string together(std::string_view run, std::string_view metrics) {
  return std::string(run) + std::string(kBetween) + std::string(metrics);
}

}  // namespace

std::vector<std::string> seeds() {
  return {
      together(
          R"({"schema_version":1,"runs":[{"run_id":"a","state":"closed","first_iteration":0,"last_iteration":0,"world_size":1,"parallel":{"tp":1}}]})",
          R"({"schema_version":1,"run_id":"a","rank":0}
{"iteration":0,"layer":"l","tensor":"activation","phase":"forward","recipe":"delayed","group":[0],"layout":"shard0","stats":{"cur_amax":1.5}}
{"iteration":0,"finding":{"check":"I1","layer":"l","tensor":"weight","phase":"forward","microbatch":0,"ranks":[0],"what":"differs","details":{}}}
{"iteration":0,"end_of_step":true,"records":2}
{"iteration":0,"end_of_run":true}
)"),
      together(R"({"schema_version":1,"runs":[{"run_id":"a","world_size":9000000000000000000}]})",
               "{\"schema_version\":1}\n"),
      together(R"({"schema_version":1,"runs":[3,null]})", "[]\n{}\nnull\n"),
  };
}

void read(std::string_view bytes) {
  const std::size_t end = bytes.find(kBetween);
  const std::string_view metrics = end == std::string_view::npos ? "" : bytes.substr(end + kBetween.size());
  (void)launch::check_metrics(log_directory(bytes.substr(0, end), metrics));
}

}  // namespace amaxscope::fuzz
