# amaxscope_library(<folder> SOURCES a.cpp .. [APART b.cpp ..] [PUBLIC lib..] [PRIVATE lib..])
# The library of one folder, amaxscope::<folder>. Where several sources are compiled as one (CMAKE_UNITY_BUILD), those of APART
# are not: names in their anonymous namespaces are also those of another source.
function(amaxscope_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;APART;PUBLIC;PRIVATE" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "amaxscope_library(${name}): unknown arguments ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  add_library(amaxscope_${name} STATIC ${ARG_SOURCES} ${ARG_APART})
  set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  add_library(amaxscope::${name} ALIAS amaxscope_${name})
  set_target_properties(amaxscope_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(amaxscope_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  target_compile_features(amaxscope_${name} PUBLIC cxx_std_20)
  target_link_libraries(amaxscope_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} $<BUILD_INTERFACE:amaxscope_flags>)
endfunction()

# amaxscope_test(<name> SOURCES a_test.cpp .. LIBRARIES lib.. [RANKS n..] [LABELS l..] [TIMEOUT seconds] [ARGS a..])
# Without RANKS: a GoogleTest program of one process, one CTest entry for each test program. With RANKS: the program is
# started under mpirun once for each number of ranks, as <name>.ranks<n> with the label ranks-<n>.
function(amaxscope_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBRARIES;RANKS;LABELS;ARGS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "amaxscope_test(${name}): unknown arguments ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(ARG_RANKS AND NOT AMAXSCOPE_MPI)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gmock amaxscope_flags)
  # What is tested is optimised as users have it; the tests themselves only have to compile quickly.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(AMAXSCOPE_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  if(ARG_RANKS)
    target_link_libraries(${name} PRIVATE amaxscope_mpi_test_main)
    foreach(ranks IN LISTS ARG_RANKS)
      add_test(NAME ${name}.ranks${ranks}
               COMMAND ${PROJECT_SOURCE_DIR}/launch/mpirun_local -n ${ranks} --timeout ${ARG_TIMEOUT}
                       $<TARGET_FILE:${name}> ${ARG_ARGS})
      math(EXPR hard_timeout "${ARG_TIMEOUT} + 30")
      set_tests_properties(${name}.ranks${ranks} PROPERTIES LABELS "ranks-${ranks};${ARG_LABELS}"
                           TIMEOUT ${hard_timeout} PROCESSORS ${ranks} SKIP_RETURN_CODE 77
                           ENVIRONMENT "${AMAXSCOPE_TEST_ENVIRONMENT}")
    endforeach()
  else()
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
    set_tests_properties(${name} PROPERTIES LABELS "ranks-1;${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77
                         ENVIRONMENT "${AMAXSCOPE_TEST_ENVIRONMENT}")
  endif()
endfunction()
