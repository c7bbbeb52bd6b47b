# Included after project(): what CMake finds out of a compiler for a big-endian machine.
set(CMAKE_CXX_BYTE_ORDER BIG_ENDIAN)
