#include "capi/calls.hpp"

#include <new>
#include <string>

#include "core/version.hpp"

namespace amaxscope::capi {

namespace {

/// By the contract of amaxscope_last_error: the last failure of this thread.
std::string& last_error() {
  thread_local std::string text;
  return text;
}

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

amaxscope_status failed(amaxscope_status status, std::string_view text) noexcept {
  try {
    last_error().assign(text);
  } catch (const std::bad_alloc&) {
    last_error().clear();
  }
  return status;
}

amaxscope_status failed_by_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return failed(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return failed(AMAXSCOPE_ERROR_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return failed(AMAXSCOPE_ERROR_INTERNAL, error.what());
  } catch (...) {
    return failed(AMAXSCOPE_ERROR_INTERNAL, "an exception of an unknown type");
  }
}

}  // namespace amaxscope::capi

extern "C" {

const char* amaxscope_version(void) { return amaxscope::kVersion; }

const char* amaxscope_last_error(void) { return amaxscope::capi::last_error().c_str(); }

const char* amaxscope_status_name(amaxscope_status status) {
  switch (status) {
    case AMAXSCOPE_OK:
      return "AMAXSCOPE_OK";
    case AMAXSCOPE_ERROR_USAGE:
      return "AMAXSCOPE_ERROR_USAGE";
    case AMAXSCOPE_ERROR_CONFIG:
      return "AMAXSCOPE_ERROR_CONFIG";
    case AMAXSCOPE_ERROR_INPUT:
      return "AMAXSCOPE_ERROR_INPUT";
    case AMAXSCOPE_ERROR_TENSOR:
      return "AMAXSCOPE_ERROR_TENSOR";
    case AMAXSCOPE_ERROR_MISMATCH:
      return "AMAXSCOPE_ERROR_MISMATCH";
    case AMAXSCOPE_ERROR_DEADLINE:
      return "AMAXSCOPE_ERROR_DEADLINE";
    case AMAXSCOPE_ERROR_IO:
      return "AMAXSCOPE_ERROR_IO";
    case AMAXSCOPE_STOPPED:
      return "AMAXSCOPE_STOPPED";
    case AMAXSCOPE_ERROR_INTERNAL:
      return "AMAXSCOPE_ERROR_INTERNAL";
    case AMAXSCOPE_ERROR_MEMORY:
      return "AMAXSCOPE_ERROR_MEMORY";
  }
  return "no status of amaxscope";
}

}  // extern "C"
