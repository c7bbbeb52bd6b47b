#include "core/device.hpp"

#include <fmt/format.h>

namespace amaxscope {

std::string to_string(const Device& device) {
  return device.kind == DeviceKind::kCpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

}  // namespace amaxscope
