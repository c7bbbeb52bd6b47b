// Tensor files in the folder of a command-line test.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.hpp"
#include "runtime/storage/npy.hpp"
#include "runtime/storage/safetensors.hpp"
#include "tests/launch/cli_fixture.hpp"

namespace amaxscope::test {

class TensorFilesTest : public CliTest {
 protected:
  std::string npy(const std::string& name, const TensorView& x) const {
    write_npy(folder_ / name, x);
    return name;
  }
  std::string tensors(const std::string& name, const std::vector<NamedTensor>& parts,
                      const std::map<std::string, std::string>& metadata = {}) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    write_safetensors(folder_ / name, parts, metadata);
    return name;
  }
  /// The object that a command prints with --json.
  nlohmann::json json_of(const std::vector<std::string>& arguments, int status = 0) const {
    const ProgramResult result = amaxscope(arguments);
    EXPECT_EQ(result.status, status) << result.err;
    return nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  }
};

/// The value of a row; fails when there is none.
inline nlohmann::json row_value(const nlohmann::json& output, const std::string& tensor,
                                const std::string& recipe, const std::string& stat) {
  for (const nlohmann::json& row : output.at("rows")) {
    if (row.at("tensor") == tensor && row.at("recipe") == recipe && row.at("stat") == stat)
      return row.at("value");
  }
  ADD_FAILURE() << "no row " << tensor << " " << recipe << " " << stat << " in " << output.dump();
  return {};
}

inline std::string bytes_of(const TensorView& view) {
  return {static_cast<const char*>(view.data()), view.bytes()};
}

}  // namespace amaxscope::test
