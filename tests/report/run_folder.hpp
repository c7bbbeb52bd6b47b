// A log directory written line by line, as a run writes it or as nobody should.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace amaxscope::report::test {

class RunFolder {
 public:
  RunFolder() { std::filesystem::create_directories(path_ / "metrics"); }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary | std::ios::app) << text;
  }
  void describe(const std::string& options = R"("recipe":"delayed")") const {
    write("run.json", fmt::format(R"({{"schema_version":1,"runs":[{{"run_id":"a run","state":"closed",
      "start":"2026-01-01T00:00:00.000Z","first_iteration":0,"last_iteration":99,"world_size":2,
      "parallel":{{"tp":2}},"options":{{{}}},"config":{{"source":"x.yaml","digest":"0","text":""}},
      "section_layers":{{}},"alters_numerics":[],"other_paths":[]}}]}})",
                                  options));
    write("metrics/rank_0.jsonl", "{\"schema_version\":1,\"run_id\":\"a run\",\"rank\":0}\n");
  }
  void line(const std::string& text, int rank = 0) const {
    write(fmt::format("metrics/rank_{}.jsonl", rank), text + "\n");
  }
  void scalars(int iteration, const std::string& members) const {
    line(fmt::format(R"({{"iteration":{},"scalars":{{{}}}}})", iteration, members));
  }
  void end_of_step(int iteration) const {
    line(fmt::format(R"({{"iteration":{},"end_of_step":true,"records":1}})", iteration));
  }
  /// A step in which all checks compared something and the training was well.
  void healthy_step(int iteration, double loss = 2.0, double norm = 1.0) const {
    scalars(iteration, fmt::format(R"("loss":{},"grad_norm":{},"checked/I1":4,"checked/I2":2,"checked/I3":2,)"
                                   R"("checked/I7":2,"checked/I8":2)",
                                   loss, norm));
    end_of_step(iteration);
  }
  void record(int iteration, const std::string& layer, const std::string& tensor, const std::string& stats,
              const std::string& recipe = "delayed", const std::string& more = R"("format":"E4M3")") const {
    line(fmt::format(
        R"({{"iteration":{},"layer":"{}","tensor":"{}","phase":"{}","stats":{{{}}},"flags":{{}},)"
        R"("recipe":"{}",{},"group":[0,1],"layout":"shard0"}})",
        iteration, layer, tensor, tensor == "gradient" ? "backward" : "forward", stats, recipe, more));
  }
  void finding(int iteration, const std::string& check, const std::string& layer, const std::string& tensor,
               const std::string& ranks, const std::string& what, const std::string& details = "",
               int rank = 0) const {
    line(fmt::format(
             R"({{"iteration":{},"finding":{{"check":"{}","layer":"{}","tensor":"{}","phase":"forward",)"
             R"("microbatch":0,"ranks":[{}],"what":"{}","details":{{{}}}}}}})",
             iteration, check, layer, tensor, ranks, what, details),
         rank);
  }

 private:
  const TemporaryFolder temporary_;
  std::filesystem::path path_ = temporary_.path();
};

}  // namespace amaxscope::report::test
