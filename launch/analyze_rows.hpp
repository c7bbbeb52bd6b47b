// What `amaxscope analyze` says, row by row, and how it is shown.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace amaxscope::launch {

struct AnalyzeRow {
  std::string file;
  std::string tensor;
  std::string recipe;  ///< "none" for what needs none
  std::string stat;
  double value = 0;
  std::vector<std::string> flags = {};
};

struct SkippedTensor {
  std::string file;
  std::string tensor;
  std::string why;
};

/// Rows as they come, so that a checkpoint larger than memory gives a table, or JSON, from its first tensor
/// on. Writes to standard output; used by one thread.
class AnalyzeOutput {
 public:
  explicit AnalyzeOutput(bool json);
  /// The rows of one tensor. about: "bf16 [64, 64]".
  void tensor(const std::string& file, const std::string& name, const std::string& about,
              const std::vector<AnalyzeRow>& rows);
  /// On standard error, and in the JSON.
  void skip(const SkippedTensor& tensor);
  /// Once, at the end.
  void finish();

 private:
  bool json_;
  bool first_row_ = true;
  std::vector<SkippedTensor> skipped_;
};

/// A table with a line for each recipe and a column for each statistic that they share; statistics of the
/// tensor itself come first, some to a line.
std::string as_table(const std::vector<AnalyzeRow>& rows);

}  // namespace amaxscope::launch
