// A rank's metrics, as `report` reads them and as another run there goes on with them.
#include "runtime/sinks/file_sinks.hpp"
#include "tests/fuzz/targets/log_directory.hpp"

namespace amaxscope::fuzz {

std::vector<std::string> seeds() {
  return {
      R"({"schema_version":1,"run_id":"a","rank":0}
{"iteration":0,"layer":"l","tensor":"activation","phase":"forward","recipe":"delayed","format":"E4M3","group":[0,1],"layout":"shard0","stats":{"cur_amax":1.5,"mean":"NaN","min":"-Infinity"},"flags":{"mean":["nan_amax"]},"formats":{"mse":"E4M3"}}
{"iteration":0,"scalars":{"loss":2.25,"lr":"Infinity"}}
{"iteration":0,"finding":{"check":"I1","layer":"l","tensor":"weight","phase":"forward","microbatch":0,"ranks":[1],"what":"differs","details":{"hash":"ab"}}}
{"iteration":0,"event":{"kind":"spike","feature":"Trends","check":"","layer":"l","tensor":"","what":"x","seen":0,"ranks":[0],"action":"log"}}
{"iteration":0,"end_of_step":true,"records":4}
{"iteration":0,"end_of_run":true}
)",
      "{\"schema_version\":2,\"run_id\":\"a\",\"rank\":0}\n{\"iteration\":-1,\"end_of_step\":true,"
      "\"records\":0}\n",
      std::string(300, '[') + "\n{\"iteration\":1e300,\"stats\":[],\"layer\":7}\n",
      R"({"iteration":9223372036854775807,"layer":"<script>","tensor":"\ud800","phase":"x","stats":{"a":1e400},"group":[-1,4294967296]})"
      "\n",
  };
}

void read(std::string_view bytes) {
  const std::filesystem::path run = log_directory(R"({"schema_version":1,"runs":[]})", bytes);
  read_log(run);
  may_refuse([&] { (void)make_json_lines_sink(run, 0, {.run_id = "b"}); });
}

}  // namespace amaxscope::fuzz
