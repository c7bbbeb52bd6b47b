// One reader of bytes that may be anybody's, as the two drivers of this folder feed it: mutations_main.cpp in
// every build, libfuzzer_main.cpp with clang (tests/fuzz/run). Each file of targets/ defines seeds() and
// read(); a program has one of them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace amaxscope::fuzz {

/// What mutations begin with: inputs that the reader takes, and some that it has to refuse.
std::vector<std::string> seeds();

/// Reads the bytes and returns, whatever they are. What is thrown, a signal or a sanitizer's word is a fault.
void read(std::string_view bytes);

/// Calls the reader and swallows an Error that blames its input (kInput, kConfig, kTensor, kIo).
void may_refuse(const std::function<void()>& reader);

/// A file of this process with these bytes; the same path for the same name.
std::filesystem::path file_with(std::string_view bytes, std::string_view name);

std::string bytes_of(const std::filesystem::path& file);

}  // namespace amaxscope::fuzz
