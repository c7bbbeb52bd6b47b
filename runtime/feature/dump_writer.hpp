// Writes inspected tensors to the dump folder of a rank: what DumpTensors and dumps around events have in
// common. One thread. Blocks on the disk; throws nothing for what goes wrong there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>

#include "runtime/feature/feature.hpp"
#include "runtime/storage/dump_file.hpp"
#include "runtime/storage/dump_folder.hpp"
#include "runtime/storage/operand_parts.hpp"

namespace amaxscope {

class DumpWriter {
 public:
  /// The folder is dump_rank_folder(dir, rank).
  DumpWriter(const FeatureServices& services, const std::filesystem::path& dir, DumpFolder::Terms terms);

  /// One file for what is inspected; nothing when there are no parts. The same tensor again in the same
  /// moment gets a file of its own.
  void write(const InspectContext& context, const OperandParts& parts);

 private:
  DumpMetadata describe(const InspectContext& context);

  FeatureServices services_;
  DumpFolder folder_;
  std::int64_t iteration_ = -1;  ///< of occurrences_
  std::map<DumpIdentity, int> occurrences_;
};

}  // namespace amaxscope
