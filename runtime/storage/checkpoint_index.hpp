// A checkpoint in several safetensors files with an index: {"weight_map": {"tensor": "file"}}.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "runtime/storage/safetensors.hpp"

namespace amaxscope {

class ShardedCheckpoint final : public TensorFile {
 public:
  /// Opens the index and the files it names, which lie in its own folder. Throws Error(kInput): an index that
  /// is not one, a file name that leaves the folder, a tensor that its file lacks.
  explicit ShardedCheckpoint(const std::filesystem::path& index);

  [[nodiscard]] const std::filesystem::path& path() const noexcept override { return path_; }
  /// Those of the index, in the order of their names.
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const noexcept override { return tensors_; }
  /// What the index says of itself; texts as they are, other values as JSON.
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept override {
    return metadata_;
  }

  static constexpr std::uint64_t kMaxIndex = 64 << 20;  ///< bytes

 private:
  struct Place {
    const SafetensorsFile* file;
    const StoredTensor* tensor;
  };
  void read_checked(const StoredTensor& tensor, std::int64_t first,
                    const MutableTensorView& out) const override;

  std::filesystem::path path_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>, std::less<>> files_;
  std::vector<StoredTensor> tensors_;
  std::vector<Place> places_;  ///< of tensors_
  std::map<std::string, std::string> metadata_;
};

}  // namespace amaxscope
