#include "megatron/faults.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <set>

#include "core/error.hpp"

namespace amaxscope::megatron {

namespace {

struct KindRow {
  std::string_view name;
  FaultKind kind;
  std::string_view extra_key;  ///< beside the keys of every kind; empty: none
  bool extra_required;
  bool operands_only;
};

constexpr std::array kKinds = {
    KindRow{"skip_amax_reduction", FaultKind::kSkipAmaxReduction, "", false, true},
    KindRow{"scale_off", FaultKind::kScaleOff, "k", true, true},
    KindRow{"nan", FaultKind::kNan, "index", false, false},
};
constexpr std::array<std::string_view, 4> kCommonKeys = {"layer", "rank", "iteration", "tensor"};

const KindRow& row_of(FaultKind kind) noexcept {
  return *std::find_if(kKinds.begin(), kKinds.end(), [kind](const KindRow& row) { return row.kind == kind; });
}

std::string kind_names() {
  std::vector<std::string_view> names;
  for (const KindRow& row : kKinds) names.push_back(row.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string allowed_keys(const KindRow& row) {
  std::string keys = fmt::format("{}", fmt::join(kCommonKeys, ", "));
  if (!row.extra_key.empty()) keys += fmt::format(", {}", row.extra_key);
  return keys;
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

TensorKind parse_tensor_value(std::string_view text, const KindRow& row, std::string_view value) {
  std::vector<std::string_view> allowed;
  for (const TensorKind tensor : kAllTensors) {
    if (!row.operands_only || !is_result(tensor)) allowed.push_back(to_string(tensor));
  }
  const std::optional<TensorKind> tensor = parse_tensor(value);
  AMAXSCOPE_CHECK(tensor && std::find(allowed.begin(), allowed.end(), to_string(*tensor)) != allowed.end(),
                  ErrorCode::kUsage, "fault \"{}\": tensor is \"{}\"; {} strikes one of: {}", text, value,
                  row.name, fmt::join(allowed, ", "));
  return *tensor;
}

void assign(Fault& fault, std::string_view text, const KindRow& row, std::string_view key,
            std::string_view value) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (key == "layer") {
    fault.layer = value;
  } else if (key == "tensor") {
    fault.tensor = parse_tensor_value(text, row, value);
  } else if (key == "rank") {
    fault.rank = static_cast<int>(parse_integer(text, key, value, 0, std::numeric_limits<int>::max()));
  } else if (key == "iteration") {
    fault.iteration = parse_integer(text, key, value, 0, kMost);
  } else if (key == "k") {
    fault.exponent = static_cast<int>(parse_integer(text, key, value, -64, 64));
  } else {
    fault.index = parse_integer(text, key, value, 0, kMost);
  }
}

bool strikes(const Fault& fault, FaultKind kind, std::string_view layer, TensorKind tensor) noexcept {
  return fault.kind == kind && fault.tensor == tensor && fault.layer == layer;
}

void write_nan(const MutableTensorView& values, std::size_t index) {
  switch (values.dtype()) {
    case DType::kF64:
      values.values<double>()[index] = std::numeric_limits<double>::quiet_NaN();
      return;
    case DType::kF32:
      values.values<float>()[index] = std::numeric_limits<float>::quiet_NaN();
      return;
    default:
      values.values<BF16>()[index] = to_bf16(std::numeric_limits<float>::quiet_NaN());
      return;
  }
}

}  // namespace

std::string_view to_string(FaultKind kind) noexcept { return row_of(kind).name; }

Fault parse_fault(std::string_view text) {
  const std::size_t at = text.find('@');
  const std::string_view kind = text.substr(0, at);
  const auto* const row = std::find_if(kKinds.begin(), kKinds.end(),
                                       [kind](const KindRow& candidate) { return candidate.name == kind; });
  AMAXSCOPE_CHECK(row != kKinds.end(), ErrorCode::kUsage, "fault \"{}\": unknown kind \"{}\"; kinds: {}",
                  text, kind, kind_names());
  Fault fault;
  fault.kind = row->kind;
  std::set<std::string_view> seen;
  std::string_view rest = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    const std::size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const bool known = std::find(kCommonKeys.begin(), kCommonKeys.end(), key) != kCommonKeys.end() ||
                       (!row->extra_key.empty() && key == row->extra_key);
    AMAXSCOPE_CHECK(equals != std::string_view::npos && equals + 1 < item.size() && known, ErrorCode::kUsage,
                    "fault \"{}\": \"{}\" is no key=value of {}; keys: {}", text, item, row->name,
                    allowed_keys(*row));
    AMAXSCOPE_CHECK(seen.insert(key).second, ErrorCode::kUsage, "fault \"{}\": {} is given twice", text, key);
    assign(fault, text, *row, key, item.substr(equals + 1));
  }
  AMAXSCOPE_CHECK(
      seen.contains("layer"), ErrorCode::kUsage,
      "fault \"{}\": layer=NAME is missing, as in \"{}@layer=decoder.layers.1.mlp.linear_fc1\"; keys: {}",
      text, row->name, allowed_keys(*row));
  AMAXSCOPE_CHECK(!row->extra_required || seen.contains(row->extra_key), ErrorCode::kUsage,
                  "fault \"{}\": {} needs {}=", text, row->name, row->extra_key);
  return fault;
}

FaultTable::FaultTable(std::vector<Fault> faults, int world_rank)
    : faults_(std::move(faults)), world_rank_(world_rank) {}

const Fault* FaultTable::due(FaultKind kind, std::string_view layer, TensorKind tensor) const noexcept {
  for (const Fault& fault : faults_) {
    if (strikes(fault, kind, layer, tensor) && is_here(fault) && is_now(fault)) return &fault;
  }
  return nullptr;
}

bool FaultTable::planted(FaultKind kind, std::string_view layer, TensorKind tensor) const noexcept {
  return std::any_of(faults_.begin(), faults_.end(),
                     [&](const Fault& fault) { return strikes(fault, kind, layer, tensor); });
}

bool FaultTable::planted(FaultKind kind) const noexcept {
  return std::any_of(faults_.begin(), faults_.end(), [&](const Fault& fault) { return fault.kind == kind; });
}

bool FaultTable::planted(std::string_view layer) const noexcept {
  return std::any_of(faults_.begin(), faults_.end(),
                     [&](const Fault& fault) { return fault.layer == layer; });
}

void FaultTable::require_layers(std::span<const std::string> names) const {
  for (const Fault& fault : faults_) {
    AMAXSCOPE_CHECK(std::find(names.begin(), names.end(), fault.layer) != names.end(), ErrorCode::kUsage,
                    "fault {}: there is no layer \"{}\"; layers: {}", to_string(fault.kind), fault.layer,
                    fmt::join(names, ", "));
  }
}

void plant_nan(const FaultTable& faults, std::string_view layer, TensorKind tensor,
               const MutableTensorView& values) {
  for (const Fault& fault : faults.faults()) {
    if (!strikes(fault, FaultKind::kNan, layer, tensor) || !faults.is_now(fault)) continue;
    AMAXSCOPE_CHECK(fault.index < values.numel(), ErrorCode::kUsage,
                    "fault nan: index {} is outside {} of {}, which has {} elements on a rank", fault.index,
                    to_string(tensor), layer, values.numel());
    if (faults.is_here(fault)) write_nan(values, static_cast<std::size_t>(fault.index));
  }
}

}  // namespace amaxscope::megatron
