// Where a dumped tensor lies and what its file says of it (config.md section 5): written by DumpTensors, read
// by `amaxscope replay`. Value types and pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"
#include "runtime/layer.hpp"
#include "runtime/names.hpp"

namespace amaxscope {

/// What makes a dumped tensor itself, on one rank.
struct DumpIdentity {
  std::string layer;   ///< or observed name
  std::string tensor;  ///< "activation"; of an observed tensor its kind
  std::int64_t iteration = 0;
  int microbatch = 0;
  Phase phase = Phase::kForward;
  int occurrence = 0;  ///< counts what is handed in again at the same moment
  friend auto operator<=>(const DumpIdentity&, const DumpIdentity&) = default;
};

struct DumpMetadata {
  DumpIdentity identity;
  int rank = 0;
  Layout layout = Layout::kReplicated;
  std::vector<int> tp_ranks;     ///< world ranks over which the tensor lies by its layout, this one included
  std::vector<int> dp_ranks;     ///< that hold other tokens
  std::vector<int> stage_ranks;  ///< of the pipeline stage
  std::string recipe = "none";
  std::string format;                                  ///< of the recipe's codes, or the tensor's own dtype
  std::string shape;                                   ///< "4,32"
  std::map<std::string, std::string> directions = {};  ///< rowwise_format, columnwise_block, ...

  bool observed = false;  ///< not a tensor of a GEMM layer; the rest is about the layer
  std::optional<int> layer_number;
  std::optional<ParallelMode> parallel;  ///< none: not said
  bool sequence_parallel = false;
  bool gathers_before_quantizing = false;
  std::optional<DType> compute_dtype;
};

/// The strings of the file's metadata.
std::map<std::string, std::string> to_metadata(const DumpMetadata& dump);
/// The inverse. Only layer, tensor and iteration must be there: the defaults are micro-batch 0, forward,
/// replicated, a group of this rank alone. Throws Error(kInput), led by `source`.
DumpMetadata parse_dump_metadata(const std::map<std::string, std::string>& metadata, int rank,
                                 const std::string& source);

/// "decoder.layers.1.mlp.linear_fc1.activation.mb0.forward", without ".safetensors"; no two identities of one
/// iteration have the same. Bytes outside of [A-Za-z0-9._-], a leading dot and dots of the tensor's name are
/// %XX, so that the parts can be told apart from the right; a name over kLongestDumpName bytes is a prefix
/// and a hash, which is longer than that and so like no other. None leaves the folder it is put in.
std::string dump_name(const DumpIdentity& identity);
inline constexpr std::size_t kLongestDumpName = 200;

/// tensor_dumps/rank_R below a log directory, and iter_%06d below that.
std::filesystem::path dump_rank_folder(const std::filesystem::path& log_dir, int rank);
std::string dump_iteration_folder(std::int64_t iteration);

}  // namespace amaxscope
