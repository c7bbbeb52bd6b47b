#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <vector>

#include "core/error.hpp"
#include "megatron/faults.hpp"

namespace amaxscope::megatron {

namespace {

const FaultKindRow& kind_named(std::string_view text, std::string_view name) {
  const auto kinds = fault_kinds();
  const auto row = std::find_if(kinds.begin(), kinds.end(),
                                [name](const FaultKindRow& each) { return each.name == name; });
  std::vector<std::string_view> names;
  for (const FaultKindRow& each : kinds) names.push_back(each.name);
  AMAXSCOPE_CHECK(row != kinds.end(), ErrorCode::kUsage, "fault \"{}\": unknown kind \"{}\"; kinds: {}", text,
                  name, fmt::join(names, ", "));
  return *row;
}

std::int64_t parse_integer(std::string_view text, std::string_view key, std::string_view value,
                           std::int64_t least, std::int64_t most) {
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), number);
  AMAXSCOPE_CHECK(
      failure == std::errc{} && end == value.data() + value.size() && number >= least && number <= most,
      ErrorCode::kUsage, "fault \"{}\": {} is \"{}\", expected an integer from {} to {}", text, key, value,
      least, most);
  return number;
}

TensorKind parse_tensor_value(std::string_view text, const FaultKindRow& row, std::string_view value) {
  std::vector<std::string_view> allowed;
  for (const TensorKind tensor : kAllTensors) {
    if (row.tensors == FaultTensors::kAll || !is_result(tensor)) allowed.push_back(to_string(tensor));
  }
  const std::optional<TensorKind> tensor = parse_tensor(value);
  AMAXSCOPE_CHECK(tensor && std::find(allowed.begin(), allowed.end(), to_string(*tensor)) != allowed.end(),
                  ErrorCode::kUsage, "fault \"{}\": tensor is \"{}\"; {} strikes one of: {}", text, value,
                  row.name, fmt::join(allowed, ", "));
  return *tensor;
}

void assign(Fault& fault, std::string_view text, const FaultKindRow& row, FaultKey key,
            std::string_view value) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kMostInt = std::numeric_limits<int>::max();
  const auto integer = [&](std::int64_t least, std::int64_t most) {
    return parse_integer(text, kFaultKeys[static_cast<std::size_t>(key)], value, least, most);
  };
  switch (key) {
    case FaultKey::kLayer:
      fault.layer = value;
      return;
    case FaultKey::kRank:
      fault.rank = static_cast<int>(integer(0, kMostInt));
      return;
    case FaultKey::kIteration:
      fault.iteration = integer(0, kMost);
      return;
    case FaultKey::kTensor:
      fault.tensor = parse_tensor_value(text, row, value);
      return;
    case FaultKey::kExponent:
      fault.exponent = static_cast<int>(integer(-64, 64));
      return;
    case FaultKey::kIndex:
      fault.index = integer(0, kMost);
      return;
    case FaultKey::kMicrobatch:
      fault.microbatch = static_cast<int>(integer(0, kMostInt));
      return;
    case FaultKey::kChannel:
      fault.channel = integer(0, kMost);
      return;
    case FaultKey::kParameter:
      fault.parameter = value;
      return;
  }
}

/// What is struck when nothing is said.
void set_defaults(Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kScaleRoundedDown:
      fault.tensor = std::nullopt;  // all
      return;
    case FaultKind::kSkipGradientReduction:
      fault.parameter = "decoder.final_layernorm.weight";
      return;
    case FaultKind::kAdamLag:
      fault.exponent = 6;
      return;
    case FaultKind::kStaleWeight:
    case FaultKind::kStaleColumnwise:
    case FaultKind::kOverwriteColumnwise:
      fault.tensor = TensorKind::kWeight;
      return;
    case FaultKind::kE5m2Gradients:
    case FaultKind::kFixedRoundingSeed:
      fault.tensor = TensorKind::kGradient;
      return;
    default:
      return;
  }
}

}  // namespace

Fault parse_fault(std::string_view text) {
  const std::size_t at = text.find('@');
  const FaultKindRow& row = kind_named(text, text.substr(0, at));
  Fault fault;
  fault.kind = row.kind;
  set_defaults(fault);
  std::set<std::string_view> seen;
  std::string_view rest = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    const std::size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    const auto found = std::find(kFaultKeys.begin(), kFaultKeys.end(), name);
    const auto key = static_cast<FaultKey>(found - kFaultKeys.begin());
    AMAXSCOPE_CHECK(equals != std::string_view::npos && equals + 1 < item.size() &&
                        found != kFaultKeys.end() && row.keys.has(key),
                    ErrorCode::kUsage, "fault \"{}\": \"{}\" is no key=value of {}; keys: {}", text, item,
                    row.name, row.keys.names());
    AMAXSCOPE_CHECK(seen.insert(name).second, ErrorCode::kUsage, "fault \"{}\": {} is given twice", text,
                    name);
    assign(fault, text, row, key, item.substr(equals + 1));
  }
  AMAXSCOPE_CHECK(
      !row.required.has(FaultKey::kLayer) || seen.contains("layer"), ErrorCode::kUsage,
      "fault \"{}\": layer=NAME is missing, as in \"{}@layer=decoder.layers.1.mlp.linear_fc1\"; keys: {}",
      text, row.name, row.keys.names());
  for (std::size_t i = 0; i < kFaultKeys.size(); ++i) {
    AMAXSCOPE_CHECK(!row.required.has(static_cast<FaultKey>(i)) || seen.contains(kFaultKeys[i]),
                    ErrorCode::kUsage, "fault \"{}\": {} needs {}=", text, row.name, kFaultKeys[i]);
  }
  return fault;
}

}  // namespace amaxscope::megatron
