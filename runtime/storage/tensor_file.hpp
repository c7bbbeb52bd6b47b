// Tensors in files, whatever the format: what is there, and reading any part of it, so that a file may be
// larger than memory. Only little-endian machines; the formats below are little-endian.
// Thread safety: const use from several threads is safe. Reading blocks on the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.hpp"

namespace amaxscope {

/// A tensor as a file describes it.
struct StoredTensor {
  std::string name;
  std::string type;            ///< in the file's own words: "BF16", "<f4"
  std::optional<DType> dtype;  ///< none: a type that nothing here computes with; listed, not readable
  std::vector<std::int64_t> extents;
  std::uint64_t bytes = 0;  ///< in the file
  std::size_t index = 0;    ///< in tensors() of its file

  /// Why read() would refuse it ("its type I8 is not supported"); empty when it can be read.
  [[nodiscard]] std::string unreadable() const;
  /// Throws Error(kInput) when unreadable.
  [[nodiscard]] Shape shape() const;
};

class TensorFile {
 public:
  virtual ~TensorFile() = default;
  [[nodiscard]] virtual const std::filesystem::path& path() const noexcept = 0;
  /// In the order of the file.
  [[nodiscard]] virtual const std::vector<StoredTensor>& tensors() const noexcept = 0;
  [[nodiscard]] virtual const std::map<std::string, std::string>& metadata() const noexcept = 0;

  /// An entry of the metadata; as a number one that counts something: decimal digits, at most 2^63 - 1.
  /// Throws Error(kInput), naming file and key, when it is not there or not that.
  [[nodiscard]] const std::string& metadata_text(const std::string& key) const;
  [[nodiscard]] std::int64_t metadata_count(const std::string& key) const;

  /// Fills `out` (CPU, contiguous, of the tensor's dtype) with elements from `first` on, in row-major order.
  /// Throws Error(kInput) for a tensor that is not readable, Error(kUsage) for elements it does not have,
  /// Error(kIo).
  void read_elements(const StoredTensor& tensor, std::int64_t first, const MutableTensorView& out) const;
  [[nodiscard]] Tensor read(const StoredTensor& tensor) const;
  /// Rows of the M x K matrix that the tensor is (core/shape.hpp), as [count, K].
  [[nodiscard]] Tensor read_rows(const StoredTensor& tensor, std::int64_t first, std::int64_t count) const;

  /// Null when there is none of that name.
  [[nodiscard]] const StoredTensor* find(std::string_view name) const noexcept;
  /// Throws Error(kInput), saying what the file has instead.
  [[nodiscard]] const StoredTensor& at(std::string_view name) const;

 protected:
  /// After the arguments were checked; out has at least one element.
  virtual void read_checked(const StoredTensor& tensor, std::int64_t first,
                            const MutableTensorView& out) const = 0;
};

/// By its name: .safetensors, .npy, or a sharded checkpoint's .safetensors.index.json.
/// Throws Error(kInput) for any other name and for a file that is not what its name says.
std::unique_ptr<TensorFile> open_tensor_file(const std::filesystem::path& path);

/// The product of the extents; no value when it is more than 2^62 or an extent is negative.
std::optional<std::int64_t> element_count(const std::vector<std::int64_t>& extents) noexcept;
/// What so many elements take in a file; no value when they do not fill whole bytes or more than 64 bits can
/// count.
std::optional<std::uint64_t> stored_bytes(std::int64_t numel, int bits) noexcept;

}  // namespace amaxscope
