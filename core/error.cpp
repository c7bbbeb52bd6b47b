#include "core/error.hpp"

namespace amaxscope {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kConfig:
      return "config";
    case ErrorCode::kInput:
      return "input";
    case ErrorCode::kTensor:
      return "tensor";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kDeadline:
      return "deadline";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kStopped:
      return "stopped";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

Error::Error(ErrorCode code, const std::string& message, std::source_location site)
    : std::runtime_error(message), code_(code), site_(site) {}

}  // namespace amaxscope
