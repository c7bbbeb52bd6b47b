#include "runtime/storage/tensor_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>

#include "core/error.hpp"
#include "runtime/storage/checkpoint_index.hpp"
#include "runtime/storage/npy.hpp"
#include "runtime/storage/safetensors.hpp"

namespace amaxscope {

static_assert(std::endian::native == std::endian::little, "tensor files are read as they are");

namespace {

/// Iterations are counted on from what a file says.
constexpr std::int64_t kLargestCount = std::int64_t{1} << 53;

}  // namespace

std::string StoredTensor::unreadable() const {
  if (!dtype) return fmt::format("its type {} is not supported", type);
  if (extents.size() > Shape::kMaxRank) {
    return fmt::format("it has {} dimensions, at most {} are supported", extents.size(), Shape::kMaxRank);
  }
  return {};
}

Shape StoredTensor::shape() const {
  const std::string why = unreadable();
  AMAXSCOPE_CHECK(why.empty(), ErrorCode::kInput, "tensor \"{}\" cannot be read: {}", name, why);
  return Shape(std::span<const std::int64_t>(extents));
}

const std::string& TensorFile::metadata_text(const std::string& key) const {
  const auto entry = metadata().find(key);
  AMAXSCOPE_CHECK(entry != metadata().end(), ErrorCode::kInput, "{}: its metadata have no \"{}\"",
                  path().string(), key);
  return entry->second;
}

std::int64_t TensorFile::metadata_count(const std::string& key) const {
  const std::string& text = metadata_text(key);
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  AMAXSCOPE_CHECK(failure == std::errc{} && stop == end && number >= 0 && number <= kLargestCount,
                  ErrorCode::kInput, "{}: {} is \"{}\", expected a count of at most {}", path().string(), key,
                  text, kLargestCount);
  return number;
}

void TensorFile::read_elements(const StoredTensor& tensor, std::int64_t first,
                               const MutableTensorView& out) const {
  AMAXSCOPE_CHECK(tensor.index < tensors().size() && tensors()[tensor.index].name == tensor.name,
                  ErrorCode::kUsage, "{}: tensor \"{}\" is of another file", path().string(), tensor.name);
  const std::string why = tensor.unreadable();
  AMAXSCOPE_CHECK(why.empty(), ErrorCode::kInput, "{}: tensor \"{}\" cannot be read: {}", path().string(),
                  tensor.name, why);
  AMAXSCOPE_CHECK(out.dtype() == *tensor.dtype && out.contiguous() && out.device().kind == DeviceKind::kCpu,
                  ErrorCode::kUsage, "{}: tensor \"{}\" is {}, and was to be read into {} on {}",
                  path().string(), tensor.name, to_string(*tensor.dtype), to_string(out.dtype()),
                  to_string(out.device()));
  const std::int64_t numel = tensor.shape().numel();
  AMAXSCOPE_CHECK(first >= 0 && first <= numel && out.numel() <= numel - first, ErrorCode::kUsage,
                  "{}: tensor \"{}\" has {} elements, asked were {} from {} on", path().string(), tensor.name,
                  numel, out.numel(), first);
  if (out.numel() > 0) read_checked(tensor, first, out);
}

Tensor TensorFile::read(const StoredTensor& tensor) const {
  const Shape shape = tensor.shape();
  Tensor result(*tensor.dtype, shape);
  read_elements(tensor, 0, result);
  return result;
}

Tensor TensorFile::read_rows(const StoredTensor& tensor, std::int64_t first, std::int64_t count) const {
  const Shape shape = tensor.shape();
  AMAXSCOPE_CHECK(first >= 0 && count >= 0 && first <= shape.rows() && count <= shape.rows() - first,
                  ErrorCode::kUsage, "{}: tensor \"{}\" has {} rows, asked were {} from {} on",
                  path().string(), tensor.name, shape.rows(), count, first);
  Tensor result(*tensor.dtype, Shape{count, shape.cols()});
  read_elements(tensor, first * shape.cols(), result);
  return result;
}

const StoredTensor* TensorFile::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(tensors(), name, &StoredTensor::name);
  return found == tensors().end() ? nullptr : &*found;
}

const StoredTensor& TensorFile::at(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  if (tensor == nullptr) {
    std::vector<std::string> some;
    for (const StoredTensor& other : tensors()) {
      if (some.size() < 5) some.push_back(other.name);
    }
    throw Error(ErrorCode::kInput,
                fmt::format("{}: has no tensor \"{}\"; of its {} tensors the first are: {}", path().string(),
                            name, tensors().size(), fmt::join(some, ", ")));
  }
  return *tensor;
}

std::optional<std::int64_t> element_count(const std::vector<std::int64_t>& extents) noexcept {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t extent : extents) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) {
      empty = true;
      continue;
    }
    if (product > kMost / extent) return std::nullopt;
    product *= extent;
  }
  return empty ? 0 : product;
}

std::optional<std::uint64_t> stored_bytes(std::int64_t numel, int bits) noexcept {
  const auto elements = static_cast<std::uint64_t>(numel);
  const auto width = static_cast<std::uint64_t>(bits);
  if (elements > std::numeric_limits<std::uint64_t>::max() / width || elements * width % 8 != 0)
    return std::nullopt;
  return elements * width / 8;
}

std::unique_ptr<TensorFile> open_tensor_file(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (name.ends_with(".safetensors")) return std::make_unique<SafetensorsFile>(path);
  if (name.ends_with(".npy")) return std::make_unique<NpyFile>(path);
  if (name.ends_with(".safetensors.index.json")) return std::make_unique<ShardedCheckpoint>(path);
  throw Error(ErrorCode::kInput,
              fmt::format("{}: is read by its name, which must end in .safetensors, .npy or "
                          ".safetensors.index.json",
                          path.string()));
}

}  // namespace amaxscope
