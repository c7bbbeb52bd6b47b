// Statistics and quantization errors of a tensor outside of any training: those that LogTensorStats,
// LogFp8TensorStats and LogNvfp4TensorStats would log of it, made by these features themselves.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.hpp"
#include "launch/analyze_rows.hpp"
#include "runtime/feature/registry.hpp"
#include "runtime/names.hpp"
#include "runtime/quantizers/recipe.hpp"

namespace amaxscope::launch {

class TensorAnalysis {
 public:
  /// recipes: what-ifs to compute. stats: names of statistics, of the tensor or of quantization, with
  /// "_columnwise" behind where a recipe has directions; empty: a choice of both. as: the operand that the
  /// tensor is taken for, which decides on formats and blocks. Throws Error(kUsage) for a statistic that
  /// nobody has, with the nearest word.
  TensorAnalysis(std::vector<RecipeKind> recipes, std::vector<std::string> stats, TensorKind as);

  /// x: f32, f16 or bf16. Under delayed scaling the history holds this tensor's amax.
  [[nodiscard]] std::vector<AnalyzeRow> rows(const std::string& file, const std::string& tensor,
                                             const TensorView& x) const;

 private:
  FeatureRegistry registry_;
  TensorKind as_;
  bool delayed_ = false;
  std::string config_;
};

}  // namespace amaxscope::launch
