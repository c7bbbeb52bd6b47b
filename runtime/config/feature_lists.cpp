#include "runtime/config/feature_lists.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/config/key_check.hpp"
#include "runtime/config/structure_keys.hpp"

namespace amaxscope {

namespace {

std::vector<std::string> tensor_words() {
  std::vector<std::string> words;
  for (const TensorKind tensor : kAllTensors) words.emplace_back(to_string(tensor));
  return words;
}

std::vector<std::string> gemm_words() {
  std::vector<std::string> words;
  for (const Gemm gemm : kAllGemms) words.emplace_back(to_string(gemm));
  return words;
}

void append(std::vector<std::string>& words, std::span<const StructureKey> keys) {
  for (const StructureKey& key : keys) words.emplace_back(key.name);
}

class ListReader {
 public:
  ListReader(const FeatureSchema& schema, Diagnostics& diagnostics)
      : schema_(schema), diagnostics_(diagnostics) {}

  FeatureLists read(const ConfigValue::Mapping& mapping) {
    FeatureLists lists;
    std::vector<std::string> words = {"enabled"};
    if (schema_.takes_gemms) append(words, gemm_list_keys());
    if (schema_.takes_tensors) append(words, tensor_list_keys());
    lists.keys = own_keys(mapping, words, schema_.name);
    if (schema_.takes_gemms) lists.gemms = gemms(mapping);
    if (schema_.takes_tensors) lists.tensors = tensors(mapping);
    lists.good = good_;
    lists.bad_keys = std::move(bad_keys_);
    return lists;
  }

 private:
  void fail(SourcePosition position, std::string message) {
    diagnostics_.error(position, std::move(message));
    good_ = false;
  }

  static const ConfigValue::Member* member(const ConfigValue::Mapping& mapping, std::string_view key) {
    const auto found =
        std::find_if(mapping.begin(), mapping.end(),
                     [&](const ConfigValue::Member& candidate) { return candidate.key == key; });
    return found == mapping.end() ? nullptr : &*found;
  }

  [[nodiscard]] const KeySchema* schema_of(std::string_view key) const {
    for (const auto* keys : {&schema_.keys, &schedule_keys()}) {
      for (const KeySchema& candidate : *keys) {
        if (candidate.name == key) return &candidate;
      }
    }
    return nullptr;
  }

  // Python's None where the reference's default is None.
  static bool is_unset(const ConfigValue::Member& member) {
    return member.value.is_null() &&
           (member.key == "start_step" || member.key == "end_step" || member.key == "start_end_list");
  }

  // The feature's own and the schedule's keys of one level; `words` are the level's other keys.
  KeyValues own_keys(const ConfigValue::Mapping& mapping, std::vector<std::string> words,
                     const std::string& place) {
    KeyValues keys;
    const std::size_t structural = words.size();
    for (const auto* known : {&schema_.keys, &schedule_keys()}) {
      for (const KeySchema& key : *known) words.push_back(key.name);
    }
    for (const ConfigValue::Member& entry : mapping) {
      const auto word = std::find(words.begin(), words.end(), entry.key);
      if (word == words.end()) {
        if (entry.key == "enabled") {
          fail(entry.position,
               fmt::format("enabled is not allowed in {}; it belongs to the whole feature", place));
        } else {
          fail(entry.position, fmt::format("unknown key {} in {}{}", in_quotes(entry.key), place,
                                           suggestion(entry.key, words)));
        }
      } else if (static_cast<std::size_t>(word - words.begin()) >= structural) {
        if (is_unset(entry)) continue;
        if (check_key(*schema_of(entry.key), schema_, entry, diagnostics_)) {
          keys.insert_or_assign(entry.key, entry.value);
        } else {
          good_ = false;
          bad_keys_.insert(entry.key);
        }
      }
    }
    return keys;
  }

  // Names of a plain list, or one bare name.
  std::vector<const ConfigValue*> plain_names(const ConfigValue::Member& list) {
    std::vector<const ConfigValue*> names;
    if (list.value.as_string() != nullptr) {
      names.push_back(&list.value);
    } else if (const ConfigValue::List* entries = list.value.as_list()) {
      for (const ConfigValue& entry : *entries) {
        if (entry.as_string() != nullptr) {
          names.push_back(&entry);
        } else {
          fail(entry.position(),
               fmt::format("{} must be a list of names, found {}", list.key, entry.described()));
        }
      }
      if (entries->empty()) fail(list.value.position(), fmt::format("{} is an empty list", list.key));
    } else {
      fail(list.value.position(),
           fmt::format("{} must be a list of names, found {}", list.key, list.value.described()));
    }
    return names;
  }

  // Entries of gemms_struct or tensors_struct that are mappings.
  std::vector<const ConfigValue*> struct_entries(const ConfigValue::Member& list, std::string_view name_key,
                                                 std::string_view plain_key) {
    std::vector<const ConfigValue*> result;
    const ConfigValue::List* entries = list.value.as_list();
    if (entries == nullptr) {
      fail(list.value.position(), fmt::format("{} must be a list of {{{}: name, ...}} mappings, found {}",
                                              list.key, name_key, list.value.described()));
      return result;
    }
    if (entries->empty()) fail(list.value.position(), fmt::format("{} is an empty list", list.key));
    for (const ConfigValue& entry : *entries) {
      if (entry.as_mapping() != nullptr) {
        result.push_back(&entry);
      } else {
        fail(entry.position(),
             fmt::format("{} holds {{{}: name, ...}} mappings, found {}; plain names stand in {}", list.key,
                         name_key, entry.described(), plain_key));
      }
    }
    return result;
  }

  const ConfigValue* name_in(const ConfigValue& entry, std::string_view key, std::string_view list) {
    const ConfigValue* name = entry.find(key);
    if (name == nullptr) {
      fail(entry.position(), fmt::format("an entry of {} needs the key {}", list, key));
    } else if (name->as_string() == nullptr) {
      fail(name->position(), fmt::format("{} must be a name, found {}", key, name->described()));
      name = nullptr;
    }
    return name;
  }

  template <class Choice>
  bool is_new(const std::vector<Choice>& known, const Choice& choice, std::string_view word) {
    const auto same = [&](const Choice& other) {
      if constexpr (std::is_same_v<Choice, GemmChoice>) {
        return other.gemm == choice.gemm;
      } else {
        return other.name == choice.name;
      }
    };
    const auto first = std::find_if(known.begin(), known.end(), same);
    if (first == known.end()) return true;
    fail(choice.position,
         fmt::format("{} is listed twice; it stands at line {} already", word, first->position.line));
    return false;
  }

  void warn_both(const ConfigValue::Member* plain, const ConfigValue::Member* structured) {
    if (plain != nullptr && structured != nullptr) {
      diagnostics_.warn(plain->position,
                        fmt::format("{} is ignored: {} replaces it", plain->key, structured->key));
    }
  }

  std::optional<TensorChoice> tensor(const ConfigValue& name) {
    TensorChoice choice;
    choice.name = *name.as_string();
    choice.position = name.position();
    if (schema_.free_tensor_names) {
      if (!choice.name.empty()) return choice;
      fail(name.position(), "a tensor name is empty");
      return std::nullopt;
    }
    choice.kind = parse_tensor(choice.name);
    if (choice.kind) return choice;
    fail(name.position(), fmt::format("unknown tensor {} in {}{}", in_quotes(choice.name), schema_.name,
                                      suggestion(choice.name, tensor_words())));
    return std::nullopt;
  }

  std::optional<std::vector<TensorChoice>> tensors(const ConfigValue::Mapping& mapping) {
    const ConfigValue::Member* plain = member(mapping, "tensors");
    const ConfigValue::Member* structured = member(mapping, "tensors_struct");
    if (plain == nullptr && structured == nullptr) return std::nullopt;
    warn_both(plain, structured);
    std::vector<TensorChoice> from_names;
    std::vector<TensorChoice> from_structs;
    if (plain != nullptr) {
      for (const ConfigValue* name : plain_names(*plain)) {
        std::optional<TensorChoice> choice = tensor(*name);
        if (choice && is_new(from_names, *choice, choice->name)) from_names.push_back(std::move(*choice));
      }
    }
    if (structured == nullptr) return from_names;
    for (const ConfigValue* entry : struct_entries(*structured, "tensor", "tensors")) {
      const ConfigValue* name = name_in(*entry, "tensor", "tensors_struct");
      KeyValues keys = own_keys(*entry->as_mapping(), {std::string(tensor_entry_key().name)},
                                "an entry of tensors_struct");
      std::optional<TensorChoice> choice = name == nullptr ? std::nullopt : tensor(*name);
      if (!choice) continue;
      choice->is_struct = true;
      choice->keys = std::move(keys);
      if (is_new(from_structs, *choice, choice->name)) from_structs.push_back(std::move(*choice));
    }
    return from_structs;
  }

  std::optional<GemmChoice> gemm(const ConfigValue& name) {
    const std::optional<Gemm> parsed = parse_gemm(*name.as_string());
    if (!parsed) {
      fail(name.position(), fmt::format("unknown GEMM {} in {}{}", name.summary(), schema_.name,
                                        suggestion(*name.as_string(), gemm_words())));
      return std::nullopt;
    }
    GemmChoice choice;
    choice.gemm = *parsed;
    choice.position = name.position();
    return choice;
  }

  std::optional<std::vector<GemmChoice>> gemms(const ConfigValue::Mapping& mapping) {
    const ConfigValue::Member* plain = member(mapping, "gemms");
    const ConfigValue::Member* structured = member(mapping, "gemms_struct");
    if (plain == nullptr && structured == nullptr) return std::nullopt;
    warn_both(plain, structured);
    std::vector<GemmChoice> from_names;
    std::vector<GemmChoice> from_structs;
    if (plain != nullptr) {
      for (const ConfigValue* name : plain_names(*plain)) {
        std::optional<GemmChoice> choice = gemm(*name);
        if (choice && is_new(from_names, *choice, to_string(choice->gemm)))
          from_names.push_back(std::move(*choice));
      }
    }
    if (structured == nullptr) return from_names;
    std::vector<std::string> words = {std::string(gemm_entry_key().name)};
    if (schema_.takes_tensors) append(words, tensor_list_keys());
    for (const ConfigValue* entry : struct_entries(*structured, "gemm", "gemms")) {
      const ConfigValue* name = name_in(*entry, "gemm", "gemms_struct");
      KeyValues keys = own_keys(*entry->as_mapping(), words, "an entry of gemms_struct");
      std::optional<std::vector<TensorChoice>> inner;
      if (schema_.takes_tensors) inner = tensors(*entry->as_mapping());
      std::optional<GemmChoice> choice = name == nullptr ? std::nullopt : gemm(*name);
      if (!choice) continue;
      choice->is_struct = true;
      choice->keys = std::move(keys);
      choice->has_tensors = inner.has_value();
      if (inner) choice->tensors = std::move(*inner);
      if (is_new(from_structs, *choice, to_string(choice->gemm))) from_structs.push_back(std::move(*choice));
    }
    return from_structs;
  }

  const FeatureSchema& schema_;
  Diagnostics& diagnostics_;
  std::set<std::string, std::less<>> bad_keys_;
  bool good_ = true;
};

}  // namespace

FeatureLists read_feature_lists(const FeatureSchema& schema, const ConfigValue::Mapping& mapping,
                                Diagnostics& diagnostics) {
  return ListReader(schema, diagnostics).read(mapping);
}

}  // namespace amaxscope
