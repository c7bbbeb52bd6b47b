// What `train` and the commands that train a step have in common, once the options are read.
#pragma once

#include "core/environment.hpp"
#include "launch/job.hpp"
#include "launch/train_options.hpp"
#include "megatron/text_data.hpp"
#include "megatron/trainer.hpp"

namespace amaxscope::launch {

/// The ranks of a machine share its cores, unless the user says otherwise: environment.threads is set, for
/// GEMMs and for the sessions that get it. Collective.
void share_cores(const Job& job, Environment& environment);

/// Everything that decides what is trained. Collective; ends the job where ranks were given other options.
void agree_on_options(Job& job, const TrainOptions& options);

/// validate() has passed. Throws Error(kUsage) for a planted fault that cannot be read.
megatron::TrainerOptions trainer_options(const TrainOptions& options);

/// The files of --data, or this system's texts. Throws Error(kIo, kInput).
megatron::TextData read_text(const TrainOptions& options);

}  // namespace amaxscope::launch
