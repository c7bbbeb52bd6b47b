#include "capi/calls.hpp"

#include <new>
#include <string>

#include "core/version.hpp"

namespace {

/// By the contract of amaxscope_last_error: the last failure of this thread.
std::string& last_error() {
  thread_local std::string text;
  return text;
}

}  // namespace

extern "C" {

const char* amaxscope_version(void) { return amaxscope::kVersion; }

const char* amaxscope_last_error(void) { return last_error().c_str(); }

amaxscope_status amaxscope_fail(amaxscope_status status, const char* text) {
  try {
    last_error() = text == nullptr ? "" : text;
  } catch (const std::bad_alloc&) {
    last_error().clear();
  }
  return status;
}

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
