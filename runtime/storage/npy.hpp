// NumPy's .npy format, versions 1 to 3: one array in a file.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <span>
#include <string>

#include "runtime/storage/file.hpp"
#include "runtime/storage/tensor_file.hpp"

namespace amaxscope {

/// The one tensor is named like the file, without ".npy". f2 f4 f8 u1 u4 u8 i4 i8 are read; i1 i2 u2 b1 are
/// listed. NumPy has no name for bfloat16: what packages for it write is a two-byte void, "<V2" or "|V2", and
/// is read as bf16. Big-endian data, objects and structures are refused.
class NpyFile final : public TensorFile {
 public:
  /// Throws Error(kInput) saying what is wrong, Error(kIo).
  explicit NpyFile(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const noexcept override { return file_.path(); }
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const noexcept override { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept override {
    return metadata_;
  }
  [[nodiscard]] bool fortran_order() const noexcept { return fortran_order_; }

  static constexpr std::uint64_t kMaxHeader = 1 << 20;  ///< bytes

 private:
  void read_checked(const StoredTensor& tensor, std::int64_t first,
                    const MutableTensorView& out) const override;
  void read_fortran(const Shape& shape, std::int64_t first, const MutableTensorView& out) const;

  InputFile file_;
  std::uint64_t data_begin_ = 0;
  bool fortran_order_ = false;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Writes version 1, C order, whole or not at all; bf16 as "<V2". Codes have no type in NumPy: view them as
/// u8 first. Throws Error(kTensor) for a tensor of codes or one that is not contiguous on the CPU,
/// Error(kIo).
void write_npy(const std::filesystem::path& path, const TensorView& view);

}  // namespace amaxscope
