// The runtime's own feature: writes tensors to disk at the iteration after an event that asks for it. Used by
// the session's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/feature/dump_writer.hpp"
#include "runtime/feature/feature.hpp"

namespace amaxscope {

class EventDump final : public Feature {
 public:
  /// max_bytes: of tensors, that this rank writes at most, all events together.
  explicit EventDump(std::int64_t max_bytes);

  [[nodiscard]] bool alters_numerics() const override { return false; }
  void attach(const FeatureServices& services) override;
  /// Writes what is inspected at this iteration: tensors and operands, to events/tensor_dumps/rank_R under
  /// the log directory, as DumpTensors does. Plans that were made before must be made again.
  void arm(std::int64_t iteration) noexcept { iteration_ = iteration; }
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor,
                                                std::int64_t iteration) const override;
  void inspect_tensor(const InspectContext& context) override;

 private:
  std::int64_t max_bytes_;
  std::optional<std::int64_t> iteration_;
  std::unique_ptr<DumpWriter> writer_;  ///< null: no log directory
};

}  // namespace amaxscope
