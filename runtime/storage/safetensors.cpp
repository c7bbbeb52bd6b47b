#include "runtime/storage/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.hpp"
#include "runtime/storage/safetensors_header.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kLengthBytes = 8;
/// Data begin on a multiple of this, and wider elements come first, so that a mapped file is aligned.
constexpr std::size_t kAlignment = 8;

struct Layout {
  std::string head;  ///< length and header
  std::vector<const NamedTensor*> order;
  std::uint64_t data_bytes = 0;
};

std::vector<std::int64_t> stored_extents(const NamedTensor& tensor) {
  const auto own = tensor.view.shape().extents();
  std::vector<std::int64_t> extents(own.begin(), own.end());
  if (tensor.view.dtype() == DType::kE2M1) {
    AMAXSCOPE_CHECK(!extents.empty() && extents.back() % 2 == 0, ErrorCode::kTensor,
                    "tensor \"{}\" of shape {} holds two elements a byte; its last extent must be even",
                    tensor.name, to_string(tensor.view.shape()));
    extents.back() /= 2;
  }
  return extents;
}

Layout lay_out(std::span<const NamedTensor> tensors, const std::map<std::string, std::string>& metadata) {
  Layout layout;
  for (const NamedTensor& tensor : tensors) {
    AMAXSCOPE_CHECK(tensor.view.device().kind == DeviceKind::kCpu, ErrorCode::kTensor,
                    "tensor \"{}\" is on {}; only tensors on the CPU can be written", tensor.name,
                    to_string(tensor.view.device()));
    AMAXSCOPE_CHECK(tensor.view.contiguous() || bits_per_element(tensor.view.dtype()) >= 8,
                    ErrorCode::kTensor,
                    "tensor \"{}\" has padded rows of packed elements, which cannot be written", tensor.name);
    layout.order.push_back(&tensor);
  }
  std::ranges::stable_sort(layout.order, std::greater<>(),
                           [](const NamedTensor* tensor) { return bits_per_element(tensor->view.dtype()); });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string_view> names = {"__metadata__"};
  for (const NamedTensor* tensor : layout.order) {
    AMAXSCOPE_CHECK(names.insert(tensor->name).second, ErrorCode::kUsage,
                    "a safetensors file cannot hold the name \"{}\" {}", tensor->name,
                    tensor->name == "__metadata__" ? "for a tensor" : "twice");
    const std::uint64_t end = layout.data_bytes + tensor->view.bytes();
    nlohmann::ordered_json& entry = header[tensor->name];
    entry["dtype"] = safetensors_type(tensor->view.dtype());
    entry["shape"] = stored_extents(*tensor);
    entry["data_offsets"] = std::array{layout.data_bytes, end};
    layout.data_bytes = end;
  }
  // Names and metadata come from users; bytes that are not UTF-8 would make a file that nobody can read.
  std::string json = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  json.append((kAlignment - json.size() % kAlignment) % kAlignment, ' ');
  AMAXSCOPE_CHECK(json.size() <= SafetensorsFile::kMaxHeader, ErrorCode::kUsage,
                  "{} tensors need a header of {} bytes, more than the format's {}", tensors.size(),
                  json.size(), SafetensorsFile::kMaxHeader);
  const std::uint64_t length = json.size();
  layout.head.resize(kLengthBytes);
  std::memcpy(layout.head.data(), &length, kLengthBytes);
  layout.head += json;
  return layout;
}

void write_view(OutputFile& file, const TensorView& view) {
  const auto* data = static_cast<const std::byte*>(view.data());
  if (view.contiguous()) {
    file.write({data, view.bytes()});
    return;
  }
  const std::size_t row_bytes = size_bytes(view.dtype(), view.cols());
  const std::size_t stride_bytes = size_bytes(view.dtype(), view.row_stride());
  for (std::int64_t row = 0; row < view.rows(); ++row) {
    file.write({data + static_cast<std::size_t>(row) * stride_bytes, row_bytes});
  }
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata, Durability durability) {
  const Layout layout = lay_out(tensors, metadata);
  OutputFile file(path);
  file.write(layout.head);
  for (const NamedTensor* tensor : layout.order) write_view(file, tensor->view);
  file.commit(durability);
}

std::uint64_t safetensors_bytes(std::span<const NamedTensor> tensors,
                                const std::map<std::string, std::string>& metadata) {
  const Layout layout = lay_out(tensors, metadata);
  return layout.head.size() + layout.data_bytes;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const std::string source = path.string();
  AMAXSCOPE_CHECK(file_.size() >= kLengthBytes, ErrorCode::kInput,
                  "{}: has {} bytes; a safetensors file begins with the length of its header in {}", source,
                  file_.size(), kLengthBytes);
  std::uint64_t length = 0;
  file_.read(0, std::as_writable_bytes(std::span(&length, 1)));
  AMAXSCOPE_CHECK(
      length <= kMaxHeader, ErrorCode::kInput,
      "{}: says that its header has {} bytes, at most {} are allowed; it is no safetensors file or "
      "damaged",
      source, length, kMaxHeader);
  AMAXSCOPE_CHECK(length <= file_.size() - kLengthBytes, ErrorCode::kInput,
                  "{}: says that its header has {} bytes, but the file ends after {}; it is cut off or no "
                  "safetensors file",
                  source, length, file_.size() - kLengthBytes);
  data_begin_ = kLengthBytes + length;
  SafetensorsHeader header =
      parse_safetensors_header(file_.read_text(kLengthBytes, length), file_.size() - data_begin_, source);
  for (SafetensorsEntry& entry : header.entries) {
    entry.tensor.index = tensors_.size();
    tensors_.push_back(std::move(entry.tensor));
    offsets_.push_back(entry.begin);
  }
  metadata_ = std::move(header.metadata);
}

void SafetensorsFile::read_checked(const StoredTensor& tensor, std::int64_t first,
                                   const MutableTensorView& out) const {
  const std::uint64_t offset = data_begin_ + offsets_[tensor.index] + size_bytes(out.dtype(), first);
  file_.read(offset, {static_cast<std::byte*>(out.data()), out.bytes()});
}

}  // namespace amaxscope
