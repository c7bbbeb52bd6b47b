// The same configuration on every rank of a job.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "collectives/collective_guard.hpp"
#include "runtime/config/config.hpp"

namespace amaxscope {

/// Rank 0 reads the file (or takes the text) and broadcasts its bytes; they are loaded on all ranks. A rank
/// that can read its own and finds other bytes is an error that shows both digests and the ranks; a rank that
/// cannot read it takes rank 0's. Throws the same Error(kConfig) on every rank. guard: of the world, frames
/// of kFramePayload words; null: one rank. Collective; blocks up to the guard's deadline while ranks are
/// missing.
Config load_agreed_config(CollectiveGuard* guard, const std::optional<std::filesystem::path>& path,
                          const std::optional<std::string>& text, const FeatureRegistry& registry);

}  // namespace amaxscope
