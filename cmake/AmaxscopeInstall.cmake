# What `cmake --install` puts where: the program and its launchers, libamaxscope.so with the C headers and a pkg-config file,
# and the C++ package: find_package(amaxscope COMPONENTS core mpi c).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

option(AMAXSCOPE_INSTALL "Install the libraries and programs" ${PROJECT_IS_TOP_LEVEL})
if(NOT AMAXSCOPE_INSTALL)
  return()
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/amaxscope)

# One export set for each component, so that each can be there or not.
set(core_targets amaxscope_core amaxscope_kernels amaxscope_collectives amaxscope_runtime amaxscope_features)
if(TARGET amaxscope_events)
  list(APPEND core_targets amaxscope_events)
endif()
install(TARGETS ${core_targets} EXPORT amaxscope_core ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT amaxscope_core FILE amaxscope_core.cmake NAMESPACE amaxscope:: DESTINATION ${package_dir})
set(header_folders core kernels collectives runtime features)
if(AMAXSCOPE_MPI)
  install(TARGETS amaxscope_collectives_mpi amaxscope_mpi_headers EXPORT amaxscope_mpi
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT amaxscope_mpi FILE amaxscope_mpi.cmake NAMESPACE amaxscope:: DESTINATION ${package_dir})
  list(APPEND header_folders collectives/mpi)
  install(TARGETS amaxscope RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS amaxscope_capi EXPORT amaxscope_c LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT amaxscope_c FILE amaxscope_c.cmake NAMESPACE amaxscope:: DESTINATION ${package_dir})
install(FILES capi/amaxscope.h capi/amaxscope_mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# C++ headers go to include/amaxscope/, and their includes are written so: <amaxscope/runtime/session.hpp>. In a program
# `core/error.hpp` may be its own.
set(public_headers "")
foreach(folder IN LISTS header_folders)
  if(folder MATCHES "^(runtime|kernels)$")
    file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${folder}/*.hpp)
  else()
    file(GLOB found CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${folder}/*.hpp)
  endif()
  list(APPEND public_headers ${found})
endforeach()
list(FILTER public_headers EXCLUDE REGEX "^kernels/(cpu|cuda)/|session_impl\\.hpp$")
install(CODE "
  set(AMAXSCOPE_SOURCE_DIR \"${PROJECT_SOURCE_DIR}\")
  set(AMAXSCOPE_HEADERS \"${public_headers}\")
  set(AMAXSCOPE_INCLUDE_DIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}\")")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_headers.cmake)

set(AMAXSCOPE_HAS_EVENTS OFF)
if(TARGET amaxscope_events)
  set(AMAXSCOPE_HAS_EVENTS ON)
endif()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/amaxscopeConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/package/amaxscopeConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/amaxscopeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/amaxscopeConfig.cmake ${PROJECT_BINARY_DIR}/package/amaxscopeConfigVersion.cmake
        DESTINATION ${package_dir})
configure_file(${CMAKE_CURRENT_LIST_DIR}/amaxscope.pc.in ${PROJECT_BINARY_DIR}/package/amaxscope.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/amaxscope.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
