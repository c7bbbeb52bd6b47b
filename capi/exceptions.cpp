#include <exception>
#include <new>

#include "capi/calls.hpp"

namespace amaxscope::capi {

namespace {

amaxscope_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return AMAXSCOPE_ERROR_USAGE;
    case ErrorCode::kConfig:
      return AMAXSCOPE_ERROR_CONFIG;
    case ErrorCode::kInput:
      return AMAXSCOPE_ERROR_INPUT;
    case ErrorCode::kTensor:
      return AMAXSCOPE_ERROR_TENSOR;
    case ErrorCode::kMismatch:
      return AMAXSCOPE_ERROR_MISMATCH;
    case ErrorCode::kDeadline:
      return AMAXSCOPE_ERROR_DEADLINE;
    case ErrorCode::kIo:
      return AMAXSCOPE_ERROR_IO;
    case ErrorCode::kStopped:
      return AMAXSCOPE_STOPPED;
    case ErrorCode::kInternal:
      break;
  }
  return AMAXSCOPE_ERROR_INTERNAL;
}

}  // namespace

amaxscope_status failed_by_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return amaxscope_fail(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return amaxscope_fail(AMAXSCOPE_ERROR_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return amaxscope_fail(AMAXSCOPE_ERROR_INTERNAL, error.what());
  } catch (...) {
    return amaxscope_fail(AMAXSCOPE_ERROR_INTERNAL, "an exception of an unknown type");
  }
}

}  // namespace amaxscope::capi
