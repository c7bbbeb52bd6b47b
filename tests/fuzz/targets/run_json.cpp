// run.json of a log directory, as `report` reads it and as another run there adds itself to it.
#include "runtime/sinks/run_file.hpp"
#include "tests/fuzz/targets/log_directory.hpp"

namespace amaxscope::fuzz {

std::vector<std::string> seeds() {
  return {
      R"({"schema_version":1,"runs":[{"run_id":"a","state":"closed","start":"2026-12-03T07:00:00Z","first_iteration":0,"last_iteration":9,"world_size":4,"parallel":{"tp":2,"dp_cp":2,"pp":1},"options":{"recipe":"delayed"},"config":{"source":"a.yaml","digest":"0123456789abcdef","text":"a: 1\n"},"section_layers":{"s":["l"]},"alters_numerics":["FakeQuant"],"other_paths":[],"config_changes":[{"iteration":3,"source":"b.yaml","digest":"x","text":""}]}]})",
      R"({"schema_version":1,"runs":[{"run_id":7,"world_size":-1,"parallel":[],"first_iteration":1e30}]})",
      R"({"schema_version":"1","runs":{}})",
      R"({"runs":[null,[],{}]})",
  };
}

void read(std::string_view bytes) {
  const std::filesystem::path run =
      log_directory(bytes, "{\"schema_version\":1,\"run_id\":\"a\",\"rank\":0}\n");
  read_log(run);
  may_refuse([&] {
    RunDescription another;
    another.run_id = "b";
    write_run_file(run, another);
    mark_run_closed(run, "b", 1);
  });
}

}  // namespace amaxscope::fuzz
