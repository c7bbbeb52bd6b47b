option(AMAXSCOPE_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(AMAXSCOPE_BENCH "Build the programs that measure" ${PROJECT_IS_TOP_LEVEL})
option(AMAXSCOPE_MPI "Build the MPI backend and the programs (needs an MPI)" ON)
option(AMAXSCOPE_WERROR "Warnings in our own code are errors" OFF)
option(AMAXSCOPE_FUZZ "Build the libFuzzer programs (clang, with fuzzer-no-link among the sanitizers)" OFF)
set(AMAXSCOPE_SANITIZE "" CACHE STRING "Sanitizers for everything, e.g. address,undefined or thread")
option(AMAXSCOPE_COVERAGE "Count what the tests run (clang's source-based coverage; .ci/hardening coverage)" OFF)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

find_program(AMAXSCOPE_CCACHE ccache)
if(AMAXSCOPE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${AMAXSCOPE_CCACHE})
endif()

# What every target of ours is compiled with. Results must not depend on the compiler's freedom to contract
# a*b+c or to assume that NaN does not exist.
add_library(amaxscope_flags INTERFACE)
target_compile_options(amaxscope_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                                                 -ffp-contract=off -fno-fast-math)
# GCC 12 reports overlapping copies inside std::string that cannot happen (GCC bug 105651), from -O3 on.
target_compile_options(amaxscope_flags INTERFACE
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
if(AMAXSCOPE_WERROR)
  target_compile_options(amaxscope_flags INTERFACE -Werror)
endif()
if(AMAXSCOPE_SANITIZE)
  target_compile_options(amaxscope_flags INTERFACE -fsanitize=${AMAXSCOPE_SANITIZE} -fno-omit-frame-pointer
                                                   -fno-sanitize-recover=all)
  target_link_options(amaxscope_flags INTERFACE -fsanitize=${AMAXSCOPE_SANITIZE})
  # GCC has macros for these, clang before 21 has not.
  if(AMAXSCOPE_SANITIZE MATCHES "address")
    target_compile_definitions(amaxscope_flags INTERFACE AMAXSCOPE_ASAN)
  elseif(AMAXSCOPE_SANITIZE MATCHES "thread")
    target_compile_definitions(amaxscope_flags INTERFACE AMAXSCOPE_TSAN)
  endif()
endif()
if(AMAXSCOPE_COVERAGE)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "AMAXSCOPE_COVERAGE needs clang (CC=clang-16 CXX=clang++-16 cmake ..); this is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  # Counters in a file that is mapped (%c in LLVM_PROFILE_FILE): a rank that is killed leaves what it counted.
  target_compile_options(amaxscope_flags INTERFACE -fprofile-instr-generate -fcoverage-mapping
                                                   "SHELL:-mllvm -runtime-counter-relocation")
  target_link_options(amaxscope_flags INTERFACE -fprofile-instr-generate)
endif()
