// What libamaxscope_cuda.so and libamaxscope_nccl.so hand to libamaxscope.so. C++ objects cross here, so the
// three are of one build: each of the others refuses another version of the first.
#pragma once

#include <memory>

#include "capi/amaxscope.h"
#include "collectives/communicator.hpp"
#include "core/device_backend.hpp"

struct amaxscope_group {
  std::unique_ptr<amaxscope::Communicator> communicator;
};

struct amaxscope_device {
  std::unique_ptr<amaxscope::DeviceBackend> backend;
};
