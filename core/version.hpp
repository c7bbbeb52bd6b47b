// The version of the library; CMakeLists.txt reads it from here.
#pragma once

namespace amaxscope {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace amaxscope
