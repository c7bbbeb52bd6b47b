#include "features/dump_tensors.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "features/inspecting.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kHighPrecision = "high_precision_tensor";
constexpr std::string_view kQuantized = "quantized_tensor";
constexpr std::string_view kBudget = "max_bytes_per_rank";

bool wants(const FeatureParams& params, std::string_view key) { return params.get_bool(key, false); }

/// Results of GEMMs are not quantized, and nothing quantizes an observed tensor.
bool has_codes(const InspectedTensor& tensor) { return tensor.kind && !is_result(*tensor.kind); }

OperandParts parts_of(const InspectContext& context, const FeatureParams& params) {
  OperandParts parts;
  if (wants(params, kHighPrecision) && context.has_original) parts.add("high_precision", context.x);
  if (!wants(params, kQuantized)) return parts;
  if (context.rowwise != nullptr) parts.add_direction(*context.rowwise, Direction::kRowwise);
  if (context.columnwise != nullptr) parts.add_direction(*context.columnwise, Direction::kColumnwise);
  return parts;
}

}  // namespace

DumpTensors::DumpTensors(FeatureConfig config) : Feature(std::move(config)) {
  const auto check = [&](const FeatureParams& params) {
    AMAXSCOPE_CHECK(wants(params, kHighPrecision) || wants(params, kQuantized), ErrorCode::kConfig,
                    "{} writes nothing: set {} or {} to True", label(), kHighPrecision, kQuantized);
    AMAXSCOPE_CHECK(params.get_integer(kBudget, 0) == this->config().outer.get_integer(kBudget, 0),
                    ErrorCode::kConfig,
                    "{}: {} is for all tensors together and cannot be set for one of them", label(), kBudget);
  };
  for (const auto& [key, params] : this->config().selected) check(params);
  if (this->config().selected.empty()) check(this->config().outer);
}

void DumpTensors::attach(const FeatureServices& services) {
  if (services.log_dir.empty()) {
    if (services.warn)
      services.warn(fmt::format("{} writes nothing: the session has no log directory", label()));
    return;
  }
  // Made at once: a replay wants a folder of every rank, and one whose pipeline stage has nothing to dump
  // writes no file. Whoever writes tells when it cannot be made.
  std::error_code later;
  std::filesystem::create_directories(dump_rank_folder(services.log_dir, services.world_rank), later);
  const std::int64_t budget = config().outer.get_integer(kBudget, 0);
  writer_ = std::make_unique<DumpWriter>(
      services, services.log_dir,
      DumpFolder::Terms{.who = "DumpTensors",
                        .budget = budget == 0 ? std::nullopt : std::optional(budget),
                        .budget_name = std::string(kBudget)});
}

void DumpTensors::register_tensor(const InspectedTensor& tensor, Registration& registration) {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  if (params == nullptr || has_codes(tensor) || wants(*params, kHighPrecision)) return;
  registration.skip(tensor, kQuantized,
                    fmt::format("{} is not quantized; {} would write it", tensor.name, kHighPrecision));
}

Decision DumpTensors::inspect_tensor_enabled(const InspectedTensor& tensor, std::int64_t iteration) const {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  if (params == nullptr || (!has_codes(tensor) && !wants(*params, kHighPrecision))) return Decision::never();
  return Decision::of(params->schedule, iteration);
}

void DumpTensors::inspect_tensor(const InspectContext& context) {
  const FeatureParams* params = params_of_inspected(config(), context.tensor);
  if (params == nullptr || writer_ == nullptr) return;
  const InspectContext& here = context.on_host();
  writer_->write(here, parts_of(here, *params));
}

FeatureEntry dump_tensors_entry() {
  FeatureSchema schema;
  schema.name = "DumpTensors";
  schema.doc =
      "Writes tensors to disk, a safetensors file for each tensor, micro-batch and phase, with a manifest.";
  schema.takes_tensors = true;
  schema.keys = {
      {.name = std::string(kHighPrecision),
       .type = KeyType::kBool,
       .default_text = "False",
       .doc = "Write the tensor as it was before quantization."},
      {.name = std::string(kQuantized),
       .type = KeyType::kBool,
       .default_text = "False",
       .doc = "Write the operands that the GEMMs got: codes and scales of both directions, or the "
              "values of a direction that stayed in high precision."},
      {.name = std::string(kBudget),
       .type = KeyType::kInteger,
       .default_text = "",
       .doc = "Bytes of tensors that a rank writes at most; what does not fit is skipped and counted. "
              "Outside of tensors_struct only. Default: no limit.",
       .minimum = 1,
       .addition = true}};
  return {.schema = std::move(schema), .base_namespace = false, .make = [](FeatureConfig config) {
            return std::make_unique<DumpTensors>(std::move(config));
          }};
}

}  // namespace amaxscope
