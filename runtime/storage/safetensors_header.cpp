#include "runtime/storage/safetensors_header.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kMostDimensions = 64;
constexpr std::string_view kMetadataKey = "__metadata__";

struct TypeWord {
  std::string_view word;
  int bits;
  std::optional<DType> dtype;
};

constexpr std::array<TypeWord, 21> kTypes = {{
    {"F64", 64, DType::kF64},     {"F32", 32, DType::kF32},     {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},   {"F8_E4M3", 8, DType::kE4M3}, {"F8_E5M2", 8, DType::kE5M2},
    {"F8_E8M0", 8, DType::kE8M0}, {"U8", 8, DType::kU8},        {"U32", 32, DType::kU32},
    {"I32", 32, DType::kI32},     {"U64", 64, DType::kU64},     {"I64", 64, DType::kI64},
    {"BOOL", 8, std::nullopt},    {"I8", 8, std::nullopt},      {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},    {"C64", 64, std::nullopt},    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt}, {"F6_E3M2", 6, std::nullopt}, {"F8_E4M3FNUZ", 8, std::nullopt},
}};

const TypeWord* find_type(std::string_view word) {
  const auto found = std::ranges::find(kTypes, word, &TypeWord::word);
  return found == kTypes.end() ? nullptr : &*found;
}

/// Takes the header's JSON event by event, so that no text, however nested or long, makes it build more than
/// the tensors it describes.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& source) : source_(source) {}

  SafetensorsHeader header;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override {
    return unexpected(fmt::format("the number {}", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected(fmt::format("the number {}", text));
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::kShape) {
      if (entry().extents.size() == kMostDimensions) refuse("has more than {} dimensions", kMostDimensions);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        refuse("has the extent {}", value);
      }
      entry().extents.push_back(static_cast<std::int64_t>(value));
    } else if (state_ == State::kOffsets) {
      if (offsets_ == 2) refuse("has more than two data_offsets");
      (offsets_ == 0 ? header.entries.back().begin : header.entries.back().end) = value;
      ++offsets_;
    } else {
      return unexpected(fmt::format("the number {}", value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::kMetadataValue) {
      header.metadata[key_] = std::move(value);
      state_ = State::kMetadata;
    } else if (state_ == State::kType) {
      entry().type = std::move(value);
      state_ = State::kTensor;
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::kBegin:
        state_ = State::kTop;
        return true;
      case State::kMetadataBegin:
        state_ = State::kMetadata;
        return true;
      case State::kTensorBegin:
        state_ = State::kTensor;
        seen_.fill(false);
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(string_t& name) override {
    switch (state_) {
      case State::kTop:
        top_key(name);
        return true;
      case State::kMetadata:
        if (header.metadata.contains(name)) refuse_file("has the metadata key \"{}\" twice", name);
        key_ = std::move(name);
        state_ = State::kMetadataValue;
        return true;
      case State::kTensor:
        tensor_key(name);
        return true;
      default:
        return unexpected("a key");
    }
  }

  bool end_object() override {
    if (state_ == State::kTensor) {
      for (std::size_t i = 0; i < kKeys.size(); ++i) {
        if (!seen_[i]) refuse("has no {}", kKeys[i]);
      }
      state_ = State::kTop;
    } else if (state_ == State::kMetadata) {
      state_ = State::kTop;
    } else {
      state_ = State::kEnd;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ == State::kShapeBegin) {
      state_ = State::kShape;
    } else if (state_ == State::kOffsetsBegin) {
      state_ = State::kOffsets;
      offsets_ = 0;
    } else {
      return unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    if (state_ == State::kOffsets && offsets_ != 2) refuse("has {} data_offsets, not two", offsets_);
    state_ = State::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::json::exception&) override {
    constexpr std::size_t kShown = 40;
    std::string shown = token.substr(0, kShown);
    std::ranges::replace_if(
        shown, [](char c) { return c < 0x20 || c > 0x7E; }, '?');
    refuse_file("its header is not JSON at byte {}, near \"{}\"", position + 8, shown);
  }

 private:
  enum class State {
    kBegin,
    kTop,
    kMetadataBegin,
    kMetadata,
    kMetadataValue,
    kTensorBegin,
    kTensor,
    kType,
    kShapeBegin,
    kShape,
    kOffsetsBegin,
    kOffsets,
    kEnd,
  };
  static constexpr std::array<std::string_view, 3> kKeys = {"dtype", "shape", "data_offsets"};

  StoredTensor& entry() { return header.entries.back().tensor; }

  void top_key(std::string& name) {
    if (name == kMetadataKey) {
      if (std::exchange(has_metadata_, true)) refuse_file("has {} twice", kMetadataKey);
      state_ = State::kMetadataBegin;
      return;
    }
    if (!names_.insert(name).second) refuse_file("has two tensors named \"{}\"", name);
    header.entries.emplace_back().tensor.name = std::move(name);
    state_ = State::kTensorBegin;
  }

  void tensor_key(const std::string& name) {
    const auto known = std::ranges::find(kKeys, name);
    if (known == kKeys.end()) refuse("has the key \"{}\"; allowed are {}", name, fmt::join(kKeys, ", "));
    const auto index = static_cast<std::size_t>(known - kKeys.begin());
    if (std::exchange(seen_[index], true)) refuse("has {} twice", name);
    constexpr std::array kNext = {State::kType, State::kShapeBegin, State::kOffsetsBegin};
    state_ = kNext[index];
  }

  bool unexpected(const std::string& what) {
    switch (state_) {
      case State::kBegin:
        refuse_file("its header holds {} where an object is needed", what);
      case State::kMetadataBegin:
      case State::kMetadataValue:
        refuse_file("its {} holds {}; it maps names to strings", kMetadataKey, what);
      case State::kTensorBegin:
        refuse("holds {}; a mapping of {} is needed", what, fmt::join(kKeys, ", "));
      case State::kType:
        refuse("has {} as dtype; a word is needed", what);
      case State::kShapeBegin:
      case State::kShape:
        refuse("has {} in shape; a list of extents is needed", what);
      case State::kOffsetsBegin:
      case State::kOffsets:
        refuse("has {} in data_offsets; two byte offsets are needed", what);
      default:
        refuse_file("its header has {} in a wrong place", what);
    }
  }

  template <class... Args>
  [[noreturn]] void refuse_file(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: {}", source_, fmt::format(format, std::forward<Args>(args)...)));
  }
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: tensor \"{}\" {}", source_, header.entries.back().tensor.name,
                            fmt::format(format, std::forward<Args>(args)...)));
  }

  const std::string& source_;
  State state_ = State::kBegin;
  std::set<std::string, std::less<>> names_;
  std::string key_;
  std::array<bool, kKeys.size()> seen_ = {};
  std::size_t offsets_ = 0;
  bool has_metadata_ = false;
};

void check_entry(SafetensorsEntry& entry, std::uint64_t data_bytes, const std::string& source) {
  StoredTensor& tensor = entry.tensor;
  AMAXSCOPE_CHECK(entry.begin <= entry.end && entry.end <= data_bytes, ErrorCode::kInput,
                  "{}: tensor \"{}\" lies at bytes {} to {} of {} bytes of data; the file is cut off or its "
                  "header is wrong",
                  source, tensor.name, entry.begin, entry.end, data_bytes);
  tensor.bytes = entry.end - entry.begin;
  const std::optional<std::int64_t> numel = element_count(tensor.extents);
  AMAXSCOPE_CHECK(numel.has_value(), ErrorCode::kInput,
                  "{}: tensor \"{}\" of shape [{}] has too many elements", source, tensor.name,
                  fmt::join(tensor.extents, ", "));
  const TypeWord* type = find_type(tensor.type);
  if (type == nullptr) return;  // a later version of the format: listed, its size is not ours to judge
  tensor.dtype = type->dtype;
  AMAXSCOPE_CHECK(stored_bytes(*numel, type->bits) == tensor.bytes, ErrorCode::kInput,
                  "{}: tensor \"{}\", {} of shape [{}], has {} bytes of data, which is not what that needs",
                  source, tensor.name, tensor.type, fmt::join(tensor.extents, ", "), tensor.bytes);
}

/// Every byte of the data belongs to exactly one tensor, as the format demands: nothing hides between them.
void check_cover(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes,
                 const std::string& source) {
  std::vector<const SafetensorsEntry*> sorted;
  for (const SafetensorsEntry& entry : entries) sorted.push_back(&entry);
  std::ranges::sort(sorted, [](const SafetensorsEntry* a, const SafetensorsEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::uint64_t end = 0;
  const SafetensorsEntry* last = nullptr;
  for (const SafetensorsEntry* entry : sorted) {
    AMAXSCOPE_CHECK(entry->begin >= end, ErrorCode::kInput,
                    "{}: tensors \"{}\" and \"{}\" share bytes {} to {}", source, last->tensor.name,
                    entry->tensor.name, entry->begin, std::min(end, entry->end));
    AMAXSCOPE_CHECK(entry->begin == end, ErrorCode::kInput,
                    "{}: bytes {} to {} of the data belong to no tensor", source, end, entry->begin);
    end = entry->end;
    last = entry;
  }
  AMAXSCOPE_CHECK(end == data_bytes, ErrorCode::kInput, "{}: bytes {} to {} of the data belong to no tensor",
                  source, end, data_bytes);
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                           const std::string& source) {
  HeaderReader reader(source);
  static_cast<void>(nlohmann::json::sax_parse(json.begin(), json.end(), &reader));
  for (SafetensorsEntry& entry : reader.header.entries) check_entry(entry, data_bytes, source);
  check_cover(reader.header.entries, data_bytes, source);
  return std::move(reader.header);
}

std::string_view safetensors_type(DType dtype) noexcept {
  if (dtype == DType::kE8M0 || dtype == DType::kE2M1) return "U8";
  return std::ranges::find(kTypes, std::optional(dtype), &TypeWord::dtype)->word;
}

}  // namespace amaxscope
