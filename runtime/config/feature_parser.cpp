#include "runtime/config/feature_parser.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/config/feature_lists.hpp"
#include "runtime/config/key_check.hpp"
#include "runtime/config/schedule_keys.hpp"

namespace amaxscope {

namespace {

std::size_t count_values(const ConfigValue& value) {
  std::size_t count = 1;
  if (const ConfigValue::List* list = value.as_list()) {
    for (const ConfigValue& entry : *list) count += count_values(entry);
  } else if (const ConfigValue::Mapping* mapping = value.as_mapping()) {
    for (const ConfigValue::Member& member : *mapping) count += count_values(member.value);
  }
  return count;
}

class FeatureParser {
 public:
  FeatureParser(const FeatureEntry& entry, const ConfigValue::Member& member, const FeaturePlace& place,
                Diagnostics& diagnostics)
      : schema_(entry.schema), member_(member), place_(place), diagnostics_(diagnostics) {
    feature_.name = schema_.name;
    feature_.section = place.section;
    feature_.position = member.position;
    feature_.base_namespace = entry.base_namespace;
  }

  std::optional<FeatureConfig> parse() {
    if (member_.key != schema_.name) {
      diagnostics_.warn(member_.position,
                        fmt::format("{} is a deprecated name; write {}", member_.key, schema_.name));
    }
    const ConfigValue::Mapping* mapping = member_.value.as_mapping();
    if (mapping == nullptr) {
      fail(member_.value.is_null() ? member_.position : member_.value.position(),
           fmt::format("{} must be a mapping that begins with enabled: True, found {}", member_.key,
                       member_.value.described()));
      return std::nullopt;
    }
    const bool enabled = read_enabled();
    active_ = enabled && place_.enabled;
    lists_ = read_feature_lists(schema_, *mapping, diagnostics_);
    good_ = good_ && lists_.good;
    resolve();
    if (!good_ || !enabled) return std::nullopt;
    return std::move(feature_);
  }

 private:
  void fail(SourcePosition position, std::string message) {
    diagnostics_.error(position, std::move(message));
    good_ = false;
  }
  void missing(SourcePosition position, std::string message) {
    if (active_) return fail(position, std::move(message));
    diagnostics_.warn(position, std::move(message));
  }

  // A key whose value was refused is reported already.
  [[nodiscard]] bool is_missing(const KeySchema& key, const KeyValues& keys) const {
    return key.required && !keys.contains(key.name) && !lists_.bad_keys.contains(key.name);
  }

  bool read_enabled() {
    bool enabled = true;
    if (const ConfigValue* value = member_.value.find("enabled")) {
      good_ = check_bool("enabled", *value, diagnostics_, enabled) && good_;
    } else {
      fail(member_.position,
           fmt::format("{} has no enabled; write enabled: True or enabled: False", member_.key));
    }
    return enabled;
  }

  void resolve() {
    resolve_observed();
    if (!place_.has_layers) return;
    if (schema_.takes_gemms) {
      if (!lists_.gemms)
        return missing(member_.position, fmt::format("{} needs gemms or gemms_struct", schema_.name));
      for (const GemmChoice& gemm : *lists_.gemms) resolve_gemm(gemm);
      finish_products();
    } else if (schema_.takes_tensors) {
      if (!lists_.tensors) return no_tensors();
      for (const TensorChoice& tensor : *lists_.tensors) add(nullptr, &tensor);
    } else {
      add(nullptr, nullptr);
    }
  }

  void no_tensors() {
    if (place_.has_observe) {
      diagnostics_.warn(member_.position,
                        fmt::format("{} names no tensors: it acts on observed tensors only, on none of "
                                    "the layers",
                                    schema_.name));
    } else {
      missing(member_.position, fmt::format("{} needs tensors or tensors_struct", schema_.name));
    }
  }

  // The outer keys are all that an observed tensor sees.
  void resolve_observed() {
    const bool needed = place_.has_observe && !schema_.takes_gemms;
    if (place_.has_observe && !place_.has_layers) {
      if (schema_.takes_gemms) {
        fail(member_.position,
             fmt::format("{} acts on GEMMs, and a section with observe alone has none; give layers",
                         schema_.name));
      } else if (lists_.tensors) {
        diagnostics_.warn(
            member_.position,
            fmt::format("the tensor list of {} is ignored: observe alone selects here", schema_.name));
      }
    }
    std::string absent;
    for (const KeySchema& key : schema_.keys) {
      if (needed && is_missing(key, lists_.keys)) absent = key.name;
    }
    if (!absent.empty() && place_.has_layers && lists_.tensors) {
      diagnostics_.warn(member_.position,
                        fmt::format("{} does not act on observed tensors: {} is not among its outer keys",
                                    schema_.name, absent));
    } else if (!absent.empty()) {
      missing(member_.position, fmt::format("{} needs {}", schema_.name, absent));
    }
    if (std::optional<FeatureParams> outer = params(lists_.keys)) feature_.outer = std::move(*outer);
  }

  void resolve_gemm(const GemmChoice& gemm) {
    if (!schema_.takes_tensors) return add(&gemm, nullptr);
    const bool nested = gemm.has_tensors;
    outer_tensors_used_ = outer_tensors_used_ || !nested;
    if (!nested && !lists_.tensors) {
      return missing(
          gemm.is_struct ? gemm.position : member_.position,
          fmt::format("{} needs tensors or tensors_struct for {}", schema_.name, to_string(gemm.gemm)));
    }
    for (const TensorChoice& tensor : nested ? gemm.tensors : *lists_.tensors) {
      if (!tensor.kind || direction_of(*tensor.kind, gemm.gemm)) {
        add(&gemm, &tensor);
      } else if (nested) {
        fail(tensor.position, fmt::format("{} takes no part in {}; its tensors: {}", tensor.name,
                                          to_string(gemm.gemm), fmt::join(tensors_of(gemm.gemm), ", ")));
      } else {
        impossible_.push_back(fmt::format("{} in {}", tensor.name, to_string(gemm.gemm)));
      }
    }
  }

  static std::vector<std::string_view> tensors_of(Gemm gemm) {
    std::vector<std::string_view> words;
    for (const TensorKind tensor : kAllTensors) {
      if (direction_of(tensor, gemm)) words.push_back(to_string(tensor));
    }
    return words;
  }

  void finish_products() {
    if (lists_.tensors && !outer_tensors_used_) {
      diagnostics_.warn(member_.position,
                        fmt::format("the tensor list of {} itself is ignored: every entry of gemms_struct "
                                    "has its own",
                                    schema_.name));
    }
    if (impossible_.empty()) return;
    diagnostics_.warn(
        member_.position,
        fmt::format("{}: skipped, as they cannot occur: {}{}", schema_.name, fmt::join(impossible_, ", "),
                    feature_.selected.empty() ? "; nothing is left to do" : ""));
  }

  std::optional<FeatureParams> params(const KeyValues& keys) {
    std::size_t cost = 1;
    for (const auto& [key, value] : keys) cost += count_values(value);
    if (cost > place_.values_left) {
      place_.values_left = 0;
      fail(member_.position, fmt::format("the lists of {} expand to too many values", schema_.name));
      return std::nullopt;
    }
    place_.values_left -= cost;
    std::optional<Schedule> schedule = schedule_from(keys, diagnostics_);
    good_ = good_ && schedule.has_value();
    if (!schedule) return std::nullopt;
    FeatureParams result;
    result.schedule = std::move(*schedule);
    for (const auto& [key, value] : keys) {
      const bool own = std::any_of(schema_.keys.begin(), schema_.keys.end(),
                                   [&](const KeySchema& candidate) { return candidate.name == key; });
      if (own) result.values.emplace(key, value);
    }
    return result;
  }

  // Outer keys, overlaid by the GEMM entry's, overlaid by the tensor entry's.
  void add(const GemmChoice* gemm, const TensorChoice* tensor) {
    if (place_.values_left == 0) return;
    KeyValues keys = lists_.keys;
    SourcePosition position = member_.position;
    if (gemm != nullptr && gemm->is_struct) {
      for (const auto& [key, value] : gemm->keys) keys.insert_or_assign(key, value);
      position = gemm->position;
    }
    if (tensor != nullptr && tensor->is_struct) {
      for (const auto& [key, value] : tensor->keys) keys.insert_or_assign(key, value);
      position = tensor->position;
    }
    for (const KeySchema& key : schema_.keys) {
      if (is_missing(key, keys)) {
        const std::string allowed =
            key.allowed.empty() ? "" : fmt::format("; allowed: {}", fmt::join(key.allowed, ", "));
        missing(position, fmt::format("{} needs {}{}", schema_.name, key.name, allowed));
      }
    }
    std::optional<FeatureParams> resolved = params(keys);
    if (!resolved) return;
    if (tensor != nullptr && schema_.free_tensor_names) {
      feature_.selected_names.emplace(tensor->name, std::move(*resolved));
    } else {
      feature_.selected.emplace(std::pair(gemm == nullptr ? std::nullopt : std::optional(gemm->gemm),
                                          tensor == nullptr ? std::nullopt : tensor->kind),
                                std::move(*resolved));
    }
  }

  const FeatureSchema& schema_;
  const ConfigValue::Member& member_;
  const FeaturePlace& place_;
  Diagnostics& diagnostics_;
  FeatureConfig feature_;
  FeatureLists lists_;
  std::vector<std::string> impossible_;
  bool outer_tensors_used_ = false;
  bool active_ = true;
  bool good_ = true;
};

}  // namespace

std::optional<FeatureConfig> parse_feature(const FeatureEntry& entry, const ConfigValue::Member& member,
                                           const FeaturePlace& place, Diagnostics& diagnostics) {
  return FeatureParser(entry, member, place, diagnostics).parse();
}

}  // namespace amaxscope
