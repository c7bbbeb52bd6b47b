// What a training needs to go on as if it had not stopped: one safetensors file for each rank, with the
// master weights, Adam's moments, the histories and scales of delayed scaling and the places in the random
// streams. Used by one thread; nothing here communicates.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "megatron/adam.hpp"
#include "megatron/random_streams.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"

namespace amaxscope::megatron {

/// The parts of a trainer that are saved. Borrowed.
struct TrainingParts {
  std::span<Parameter* const> parameters;
  Adam& adam;
  DelayedScalingState* delayed = nullptr;  ///< null: another recipe
  const RandomStreams* streams = nullptr;  ///< null: nothing draws random numbers
};

/// What a file must have been written with to be read, by what it is called in messages ("tp": "2").
using StateIdentity = std::map<std::string, std::string>;

/// "DIR/rank_3.safetensors"
std::filesystem::path state_file(const std::filesystem::path& directory, int world_rank);

/// Writes the file, whole or not at all; the directory must exist. It is on the disk when this returns.
/// Throws Error(kIo).
void write_state(const std::filesystem::path& file, const TrainingParts& parts, std::int64_t iteration,
                 const StateIdentity& identity);

/// Puts everything back and returns the iteration to go on with. Throws Error(kInput) naming the file and
/// what does not fit (identity, a tensor that is missing or has another type or shape); nothing has changed
/// then.
std::int64_t read_state(const std::filesystem::path& file, const TrainingParts& parts,
                        const StateIdentity& identity);

/// The iteration to go on with, without reading the tensors. Throws Error(kInput).
std::int64_t iteration_of_state(const std::filesystem::path& file);

/// The folder of the state after so many iterations: "DIR/iter_000010".
std::filesystem::path state_directory(const std::filesystem::path& directory, std::int64_t iteration);
/// Notes in DIR that its newest state is that one, once all ranks have written theirs; on the disk when this
/// returns, with that state's folder. Throws Error(kIo).
void mark_newest_state(const std::filesystem::path& directory, std::int64_t iteration);
/// directory itself when it holds a state, else the newest one noted in it. Throws Error(kInput).
std::filesystem::path find_state(const std::filesystem::path& directory);

}  // namespace amaxscope::megatron
