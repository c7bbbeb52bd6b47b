# Whether, with what and for which devices kernels/cuda is compiled. nvcc is called by custom commands and not through
# CMake's CUDA language: CMake 3.25 knows neither C++20 for it nor the architectures 100f and 120f, and these commands keep
# the PTX and what ptxas says of registers, which tests/ptx looks at.
set(AMAXSCOPE_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO (where there is an nvcc), ON or OFF")
set_property(CACHE AMAXSCOPE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(AMAXSCOPE_CUDA_ARCHITECTURES 80 89 90 100f 120f CACHE STRING
    "Devices to compile for. Without the f, 100 and 120 have no instructions for FP4")
mark_as_advanced(AMAXSCOPE_CUDA_ARCHITECTURES)
if(NOT AMAXSCOPE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "AMAXSCOPE_CUDA is \"${AMAXSCOPE_CUDA}\"; allowed are AUTO, ON and OFF")
endif()

set(AMAXSCOPE_CUDA_BUILT OFF)
set(why_not "")
if(AMAXSCOPE_CUDA STREQUAL "OFF")
  set(why_not "AMAXSCOPE_CUDA is OFF")
elseif(AMAXSCOPE_SANITIZE)
  set(why_not "the sanitizers see them through the emulator")
else()
  find_program(AMAXSCOPE_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(AMAXSCOPE_NVCC)
  if(NOT AMAXSCOPE_NVCC)
    set(why_not "there is no nvcc on the PATH, in CUDA_HOME or in /usr/local/cuda")
  else()
    if(NOT AMAXSCOPE_HAS_CUDA_RUNTIME)
      set(why_not "${AMAXSCOPE_NVCC} is there, but not the toolkit's headers and libcudart")
    elseif(CUDAToolkit_VERSION VERSION_LESS 12.9)
      set(why_not "the toolkit is version ${CUDAToolkit_VERSION}; 12.9 and newer know the architectures 100f and 120f")
    else()
      set(AMAXSCOPE_CUDA_BUILT ON)
    endif()
  endif()
endif()
if(AMAXSCOPE_CUDA_BUILT)
  string(REPLACE ";" ", " architectures "${AMAXSCOPE_CUDA_ARCHITECTURES}")
  message(STATUS "CUDA kernels: with ${AMAXSCOPE_NVCC} ${CUDAToolkit_VERSION}, for ${architectures}")
elseif(AMAXSCOPE_CUDA STREQUAL "ON")
  message(FATAL_ERROR "AMAXSCOPE_CUDA is ON, but ${why_not}")
else()
  message(STATUS "CUDA kernels: not built, ${why_not}; tests run them in the emulator")
endif()

# amaxscope_cuda_objects(<variable> a.cu ..)
# Sets <variable> to object files to put into a library. Beside each are its PTX for every architecture and a log of ptxas.
function(amaxscope_cuda_objects variable)
  set(objects "")
  set(gencode "")
  foreach(architecture IN LISTS AMAXSCOPE_CUDA_ARCHITECTURES)
    list(APPEND gencode -gencode=arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  # Results are those of the CPU bit for bit: no contraction to fused operations, no approximations (nvcc's default).
  # No -Wpedantic: nvcc's own line directives do not pass it.
  set(flags -std=c++20 -O3 --fmad=false --expt-relaxed-constexpr --Werror all-warnings -Xcompiler=-Wall,-fPIC
            -Xptxas=-v -I${PROJECT_SOURCE_DIR} ${gencode})
  foreach(source IN LISTS ARGN)
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}/${name}.o)
    add_custom_command(
      OUTPUT ${object} ${CMAKE_CURRENT_BINARY_DIR}/${name}/ptxas.log
      DEPFILE ${CMAKE_CURRENT_BINARY_DIR}/${name}/${name}.d
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} ${PROJECT_SOURCE_DIR}/cmake/CompileCuda.cmake
      COMMAND ${CMAKE_COMMAND} -D "NVCC=${AMAXSCOPE_NVCC}" -D "FLAGS=${flags}"
              -D "SOURCE=${CMAKE_CURRENT_SOURCE_DIR}/${source}" -D "OBJECT=${object}"
              -P ${PROJECT_SOURCE_DIR}/cmake/CompileCuda.cmake
      COMMENT "Compiling ${source} with nvcc"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()
