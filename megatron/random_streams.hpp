// The quantizers of a model that draw random numbers, so that their places in their streams can be saved.
#pragma once

#include <map>
#include <string>

#include "runtime/quantizers/nvfp4.hpp"

namespace amaxscope::megatron {

/// By slot name ("decoder.layers.1.mlp.linear_fc1.gradient"). Borrowed from the layers.
using RandomStreams = std::map<std::string, Nvfp4Quantizer*>;

}  // namespace amaxscope::megatron
