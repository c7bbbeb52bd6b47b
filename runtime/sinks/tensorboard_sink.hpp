// Numbers for TensorBoard: tensorboard/rank_R/events.out.tfevents.* under the log directory.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "runtime/sinks/sink.hpp"

namespace amaxscope {

/// Whether this build has it: it needs protobuf.
bool has_tensorboard_sink() noexcept;

/// Scalars as "layer/tensor/statistic" (in evaluation "layer/tensor/eval/statistic"; a recompute has none),
/// the trainer's by their name; `histogram` as a histogram of magnitudes with one bucket for each power of
/// two. Records that this rank leads only. A value is rounded to a float, as the format has it. One event and
/// one write a step; the file appears with its first. seconds: the wall clock, since 1970; null: the
/// system's. Throws Error(kIo) as other sinks do, Error(kUsage) in a build without it.
std::unique_ptr<Sink> make_tensorboard_sink(const std::filesystem::path& log_dir, int world_rank,
                                            std::function<double()> seconds = nullptr);

}  // namespace amaxscope
