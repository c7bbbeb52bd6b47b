// What every function of the C API does around its work: no exception leaves, the text of a failure is kept
// for amaxscope_last_error().
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "capi/amaxscope.h"
#include "core/error.hpp"

namespace amaxscope::capi {

/// Keeps the text for this thread and returns the status. Never throws.
amaxscope_status failed(amaxscope_status status, std::string_view text) noexcept;
/// The same for the exception that is being handled.
amaxscope_status failed_by_exception() noexcept;

template <class Work>
amaxscope_status call(Work&& work) noexcept {
  try {
    work();
    return AMAXSCOPE_OK;
  } catch (...) {
    return failed_by_exception();
  }
}

/// Throws Error(kUsage) naming the argument when it is NULL.
template <class T>
T& required(T* argument, std::string_view name) {
  AMAXSCOPE_CHECK(argument != nullptr, ErrorCode::kUsage, "{} is NULL", name);
  return *argument;
}

/// A copy of a struct that begins with its size: fields that an older program does not know are zero.
/// `oldest` is the size of the first version. Throws Error(kUsage) for a size that no version had, and for
/// one of a newer header.
template <class Options>
Options taken(const Options* given, std::size_t oldest, std::string_view name) {
  const std::size_t size = required(given, name).size;
  AMAXSCOPE_CHECK(
      size >= oldest && size <= sizeof(Options), ErrorCode::kUsage,
      "{}.size is {}; this library ({}) takes {} to {}: set it to the sizeof of the struct, and use a "
      "library that is not older than the header",
      name, size, amaxscope_version(), oldest, sizeof(Options));
  Options copy{};
  std::memcpy(&copy, given, size);
  return copy;
}

/// Throws Error(kUsage) unless value is one of the enumerators 0 .. last.
template <class To, class From>
To enumerator(From value, From last, std::string_view name) {
  AMAXSCOPE_CHECK(static_cast<int>(value) >= 0 && value <= last, ErrorCode::kUsage,
                  "{} is {}; 0 to {} are allowed", name, static_cast<int>(value), static_cast<int>(last));
  return static_cast<To>(value);
}

}  // namespace amaxscope::capi
