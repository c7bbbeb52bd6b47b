# What the code counts on of a machine; anything else is refused here instead of failing somewhere in a training. Files are read
# and written as they lie in memory, and sizes of tensors are 64-bit numbers.
if(NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  math(EXPR bits "${CMAKE_SIZEOF_VOID_P} * 8")
  message(FATAL_ERROR "amaxscope needs a 64-bit machine; ${CMAKE_CXX_COMPILER} makes programs of ${bits} bits "
                      "(CMAKE_SYSTEM_PROCESSOR ${CMAKE_SYSTEM_PROCESSOR})")
endif()
if(NOT CMAKE_CXX_BYTE_ORDER STREQUAL "LITTLE_ENDIAN")
  message(FATAL_ERROR "amaxscope needs a little-endian machine: safetensors, .npy and flight records are read as they lie "
                      "in memory; ${CMAKE_CXX_COMPILER} makes programs whose byte order is '${CMAKE_CXX_BYTE_ORDER}' "
                      "(CMAKE_SYSTEM_PROCESSOR ${CMAKE_SYSTEM_PROCESSOR})")
endif()
