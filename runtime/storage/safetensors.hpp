// The safetensors format: eight bytes with the length of a JSON header, the header, the data.
// https://huggingface.co/docs/safetensors: {"name": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
// "__metadata__": {"key": "text"}}.
#pragma once

#include <map>
#include <span>
#include <string>

#include "runtime/storage/file.hpp"
#include "runtime/storage/tensor_file.hpp"

namespace amaxscope {

struct NamedTensor {
  std::string name;
  /// On the CPU, borrowed for the call; rows may be padded.
  TensorView view;
};

/// Writes one file, whole or not at all; the data are not copied as a whole. Types are named as in the
/// format: e4m3 F8_E4M3, e5m2 F8_E5M2; e8m0 and packed e2m1 as U8 (the last extent of e2m1, which must be
/// even, then counts bytes). Replaces a file of that name; the folder must exist.
/// Throws Error(kUsage) for a name that is there twice or is "__metadata__", Error(kTensor) for a tensor that
/// is not on the CPU, Error(kIo).
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {},
                       Durability durability = Durability::kProcess);
/// How many bytes that file has.
std::uint64_t safetensors_bytes(std::span<const NamedTensor> tensors,
                                const std::map<std::string, std::string>& metadata = {});

class SafetensorsFile final : public TensorFile {
 public:
  /// Reads and checks the header: its length, its grammar, that every tensor lies within the file, has as
  /// many bytes as its type and shape need, and that no byte belongs to two tensors or to none. Memory for
  /// the header only, at most kMaxHeader. Throws Error(kInput) saying what is wrong, Error(kIo).
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const noexcept override { return file_.path(); }
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const noexcept override { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept override {
    return metadata_;
  }

  static constexpr std::uint64_t kMaxHeader = 100'000'000;  ///< bytes; the limit of the format's own reader

 private:
  void read_checked(const StoredTensor& tensor, std::int64_t first,
                    const MutableTensorView& out) const override;

  InputFile file_;
  std::uint64_t data_begin_ = 0;
  std::vector<StoredTensor> tensors_;
  std::vector<std::uint64_t> offsets_;  ///< of tensors_, from data_begin_
  std::map<std::string, std::string> metadata_;
};

}  // namespace amaxscope
