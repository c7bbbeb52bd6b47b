#include "runtime/live/event_dump.hpp"

namespace amaxscope {

namespace {

FeatureConfig own_config() {
  FeatureConfig config;
  config.name = "event dump";
  config.section = "session";
  return config;
}

}  // namespace

EventDump::EventDump(std::int64_t max_bytes) : Feature(own_config()), max_bytes_(max_bytes) {}

void EventDump::attach(const FeatureServices& services) {
  if (services.log_dir.empty()) return;
  writer_ = std::make_unique<DumpWriter>(
      services, services.log_dir / "events",
      DumpFolder::Terms{.who = "event dump", .budget = max_bytes_, .budget_name = "event_dump_bytes"});
}

Decision EventDump::inspect_tensor_enabled(const InspectedTensor&, std::int64_t iteration) const {
  if (writer_ == nullptr || !iteration_ || iteration > *iteration_) return Decision::never();
  return iteration == *iteration_ ? Decision{true, iteration + 1} : Decision{false, iteration_};
}

void EventDump::inspect_tensor(const InspectContext& seen) {
  const InspectContext& context = seen.on_host();
  OperandParts parts;
  if (context.has_original) parts.add("high_precision", context.x);
  if (context.rowwise != nullptr) parts.add_direction(*context.rowwise, Direction::kRowwise);
  if (context.columnwise != nullptr) parts.add_direction(*context.columnwise, Direction::kColumnwise);
  writer_->write(context, parts);
}

}  // namespace amaxscope
