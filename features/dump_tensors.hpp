// DumpTensors: writes tensors to disk as training has them, one safetensors file for each tensor, micro-batch
// and phase (docs/features.md). Talks to no other rank. A file that cannot be written, or would go over the
// budget, is skipped and recorded; the training goes on.
#pragma once

#include <memory>

#include "runtime/feature/dump_writer.hpp"
#include "runtime/feature/registry.hpp"

namespace amaxscope {

class DumpTensors final : public Feature {
 public:
  /// Throws Error(kConfig) for a selection that asks neither for the tensor nor for its codes.
  explicit DumpTensors(FeatureConfig config);

  [[nodiscard]] bool alters_numerics() const override { return false; }
  void attach(const FeatureServices& services) override;
  /// Says once for each layer that results of GEMMs and observed tensors have no codes, where these alone are
  /// asked for.
  void register_tensor(const InspectedTensor& tensor, Registration& registration) override;
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor,
                                                std::int64_t iteration) const override;
  /// Blocks until the file is written.
  void inspect_tensor(const InspectContext& context) override;

 private:
  std::unique_ptr<DumpWriter> writer_;  ///< null: nowhere to write
};

FeatureEntry dump_tensors_entry();

}  // namespace amaxscope
