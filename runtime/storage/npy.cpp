#include "runtime/storage/npy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "core/error.hpp"
#include "runtime/storage/npy_header.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;
constexpr std::int64_t kPieceBytes = 1 << 20;

struct TypeWord {
  std::string_view word;  ///< without the byte order
  int bytes;
  std::optional<DType> dtype;
};

constexpr std::array<TypeWord, 13> kTypes = {{
    {"f8", 8, DType::kF64},
    {"f4", 4, DType::kF32},
    {"f2", 2, DType::kF16},
    {"V2", 2, DType::kBF16},
    {"u1", 1, DType::kU8},
    {"u4", 4, DType::kU32},
    {"i4", 4, DType::kI32},
    {"u8", 8, DType::kU64},
    {"i8", 8, DType::kI64},
    {"u2", 2, std::nullopt},
    {"i1", 1, std::nullopt},
    {"i2", 2, std::nullopt},
    {"b1", 1, std::nullopt},
}};

const TypeWord& type_of(const std::string& descr, const std::string& source) {
  const char order = descr.empty() ? '\0' : descr.front();
  AMAXSCOPE_CHECK(order != '>', ErrorCode::kInput,
                  "{}: its type {} is big-endian; save it as little-endian first", source, descr);
  AMAXSCOPE_CHECK(descr.find('O') == std::string::npos, ErrorCode::kInput,
                  "{}: holds Python objects ({}), which are not read", source, descr);
  const auto found =
      std::ranges::find(kTypes, std::string_view(descr).substr(descr.empty() ? 0 : 1), &TypeWord::word);
  const bool order_fits =
      order == '<' || order == '=' ||
      (order == '|' && found != kTypes.end() && (found->bytes == 1 || found->word == "V2"));
  AMAXSCOPE_CHECK(
      found != kTypes.end() && order_fits, ErrorCode::kInput,
      "{}: its type is \"{}\"; little-endian f2 f4 f8 u1 u2 u4 u8 i1 i2 i4 i8 b1, and V2 for bf16, are known",
      source, descr);
  return *found;
}

void check_size(const StoredTensor& tensor, std::uint64_t data_bytes, int element_bytes,
                const std::string& source) {
  const std::optional<std::int64_t> numel = element_count(tensor.extents);
  AMAXSCOPE_CHECK(numel.has_value(), ErrorCode::kInput, "{}: an array of shape ({}) has too many elements",
                  source, fmt::join(tensor.extents, ", "));
  const std::uint64_t needed =
      stored_bytes(*numel, 8 * element_bytes).value_or(std::numeric_limits<std::uint64_t>::max());
  AMAXSCOPE_CHECK(
      needed <= data_bytes, ErrorCode::kInput,
      "{}: an array of {} elements of {} bytes needs more than the {} bytes that follow the header; the "
      "file is cut off",
      source, *numel, element_bytes, data_bytes);
  AMAXSCOPE_CHECK(
      needed == data_bytes, ErrorCode::kInput,
      "{}: {} bytes follow the header, the array has only {}; it is damaged or holds several arrays", source,
      data_bytes, needed);
}

}  // namespace

NpyFile::NpyFile(const std::filesystem::path& path) : file_(path) {
  const std::string source = path.string();
  constexpr std::size_t kHead = 8;  // magic and version
  AMAXSCOPE_CHECK(file_.size() >= kHead && file_.read_text(0, kMagic.size()) == kMagic, ErrorCode::kInput,
                  "{}: does not begin with NumPy's mark; it is no .npy file", source);
  const std::string version = file_.read_text(kMagic.size(), 2);
  const int major = static_cast<unsigned char>(version[0]);
  const int minor = static_cast<unsigned char>(version[1]);
  AMAXSCOPE_CHECK(major >= 1 && major <= 3 && minor == 0, ErrorCode::kInput,
                  "{}: has version {}.{} of the format; 1.0 to 3.0 can be read", source, major, minor);
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  AMAXSCOPE_CHECK(file_.size() >= kHead + length_bytes, ErrorCode::kInput, "{}: ends within its header",
                  source);
  std::uint32_t length = 0;
  file_.read(kHead, std::as_writable_bytes(std::span(&length, 1)).first(length_bytes));
  data_begin_ = kHead + length_bytes + length;
  AMAXSCOPE_CHECK(length <= kMaxHeader, ErrorCode::kInput,
                  "{}: says that its header has {} bytes, at most {} are allowed", source, length,
                  kMaxHeader);
  AMAXSCOPE_CHECK(data_begin_ <= file_.size(), ErrorCode::kInput,
                  "{}: says that its header has {} bytes, but the file ends after {}", source, length,
                  file_.size() - kHead - length_bytes);
  NpyHeader header = parse_npy_header(file_.read_text(kHead + length_bytes, length), source);
  const TypeWord& type = type_of(header.descr, source);
  fortran_order_ = header.fortran_order;
  StoredTensor tensor;
  tensor.name = path.stem().string();
  tensor.type = header.descr;
  tensor.dtype = type.dtype;
  tensor.extents = std::move(header.shape);
  tensor.bytes = file_.size() - data_begin_;
  check_size(tensor, tensor.bytes, type.bytes, source);
  tensors_.push_back(std::move(tensor));
}

void NpyFile::read_checked(const StoredTensor& tensor, std::int64_t first,
                           const MutableTensorView& out) const {
  if (fortran_order_ && tensor.extents.size() > 1) {
    read_fortran(tensor.shape(), first, out);
    return;
  }
  file_.read(data_begin_ + size_bytes(out.dtype(), first),
             {static_cast<std::byte*>(out.data()), out.bytes()});
}

/// The file holds the last index slowest: for each k, all M elements x[.., k], whose order is that of the
/// leading indices with the first one fastest. Each such plane is read where it can hold wanted rows.
void NpyFile::read_fortran(const Shape& shape, std::int64_t first, const MutableTensorView& out) const {
  const std::size_t width = size_bytes(out.dtype(), 1);
  const std::int64_t rows = shape.rows();
  const std::int64_t columns = shape.cols();
  const std::int64_t end = first + out.numel();
  const bool matrix = shape.rank() == 2;
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min<std::int64_t>(rows, kPieceBytes)) * width);
  auto* const target = static_cast<std::byte*>(out.data());
  const auto row_of = [&](std::int64_t place) {
    if (matrix) return place;
    std::int64_t row = 0;
    for (int axis = 0; axis + 1 < shape.rank(); ++axis) {
      std::int64_t stride = 1;
      for (int behind = axis + 1; behind + 1 < shape.rank(); ++behind) stride *= shape[behind];
      row += place % shape[axis] * stride;
      place /= shape[axis];
    }
    return row;
  };
  for (std::int64_t column = 0; column < columns; ++column) {
    // Rows r with first <= r * columns + column < end.
    const std::int64_t row_begin = first <= column ? 0 : (first - column + columns - 1) / columns;
    const std::int64_t row_end = end <= column ? 0 : std::min(rows, (end - column + columns - 1) / columns);
    if (row_begin >= row_end) continue;
    const std::int64_t place_end = matrix ? row_end : rows;
    for (std::int64_t place = matrix ? row_begin : 0; place < place_end;) {
      const std::int64_t count = std::min<std::int64_t>(place_end - place, kPieceBytes);
      const std::size_t bytes = static_cast<std::size_t>(count) * width;
      file_.read(data_begin_ + static_cast<std::uint64_t>(column * rows + place) * width,
                 std::span(piece).first(bytes));
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = row_of(place + i);
        if (row < row_begin || row >= row_end) continue;
        std::memcpy(target + static_cast<std::size_t>(row * columns + column - first) * width,
                    piece.data() + static_cast<std::size_t>(i) * width, width);
      }
      place += count;
    }
  }
}

void write_npy(const std::filesystem::path& path, const TensorView& view) {
  const auto type = std::ranges::find(kTypes, std::optional(view.dtype()), &TypeWord::dtype);
  AMAXSCOPE_CHECK(type != kTypes.end() && view.contiguous() && view.device().kind == DeviceKind::kCpu,
                  ErrorCode::kTensor,
                  "{}: a tensor of {} on {} cannot be written; contiguous tensors of numbers on the CPU can",
                  path.string(), to_string(view.dtype()), to_string(view.device()));
  const std::string_view comma = view.shape().rank() == 1 ? "," : "";
  std::string header =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}",
                  type->bytes == 1 ? '|' : '<', type->word, fmt::join(view.shape().extents(), ", "), comma);
  constexpr std::size_t kHead = 10;
  const std::size_t unpadded = kHead + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';
  const auto length = static_cast<std::uint16_t>(header.size());
  OutputFile file(path);
  file.write(kMagic);
  file.write(std::string_view("\x01\x00", 2));
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  file.write({static_cast<const std::byte*>(view.data()), view.bytes()});
  file.commit();
}

}  // namespace amaxscope
