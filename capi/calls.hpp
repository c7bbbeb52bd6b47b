// What every function of the C API does around its work: no exception leaves, the text of a failure is kept
// for amaxscope_last_error().
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "capi/amaxscope.h"
#include "core/error.hpp"
#include "core/version.hpp"

namespace amaxscope::capi {

/// amaxscope_fail for the exception that is being handled.
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

/// For the libraries beside libamaxscope.so, which hand C++ objects to it: throws Error(kUsage) when that is
/// of another version.
inline void require_same_version(std::string_view library) {
  AMAXSCOPE_CHECK(std::string_view(amaxscope_version()) == kVersion, ErrorCode::kUsage,
                  "{} is of version {} and libamaxscope.so of version {}; take both from one build", library,
                  kVersion, amaxscope_version());
}

/// At least one. Throws Error(kUsage) naming the field for what is negative or more than 30 years.
inline std::chrono::milliseconds milliseconds_of(double seconds, std::string_view name) {
  AMAXSCOPE_CHECK(seconds >= 0.0 && seconds <= 1e9, ErrorCode::kUsage, "{} is {}; 0 to 1e9 are allowed", name,
                  seconds);
  return std::chrono::milliseconds(std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1e3)));
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

/// Writes a result to a struct that begins with its size, as far as the program knows it. Throws as taken().
template <class Result>
void fill(Result& given, const Result& result, std::size_t oldest, std::string_view name) {
  const std::size_t size = taken(&given, oldest, name).size;
  std::memcpy(&given, &result, size);
  given.size = size;
}

/// Throws Error(kUsage) unless value is one of the enumerators 0 .. last.
template <class To, class From>
To enumerator(From value, From last, std::string_view name) {
  AMAXSCOPE_CHECK(static_cast<int>(value) >= 0 && value <= last, ErrorCode::kUsage,
                  "{} is {}; 0 to {} are allowed", name, static_cast<int>(value), static_cast<int>(last));
  return static_cast<To>(value);
}

}  // namespace amaxscope::capi
