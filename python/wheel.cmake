# What makes the module a wheel that needs nothing of amaxscope's dependencies where it is installed. OpenBLAS and PCRE2 are linked
# as archives. Those that the distribution has of the others, in C++, are not made for shared libraries (no -fPIC), or there are
# none: they are put beside the package, where the module looks for them first, as auditwheel does. All are what everything
# else is compiled with: no flag of the compiler differs, so that a compiler cache has all of it.
foreach(target PkgConfig::PCRE2 PkgConfig::OPENBLAS)
  get_target_property(libraries ${target} INTERFACE_LINK_LIBRARIES)
  string(REGEX REPLACE "\\.so(;|$)" ".a\\1" archives "${libraries}")
  foreach(archive IN LISTS archives)
    if(archive MATCHES "^/" AND NOT EXISTS ${archive})
      message(FATAL_ERROR "wheel: there is no ${archive}; the package with ${libraries} has it on Debian and Ubuntu")
    endif()
  endforeach()
  message(STATUS "wheel: links ${archives}")
  set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${archives}")
endforeach()

# RPATH and not RUNPATH: what is beside the package is found for the libraries there as well.
set_target_properties(amaxscope_python PROPERTIES INSTALL_RPATH "$ORIGIN/../amaxscope.libs" INSTALL_RPATH_USE_LINK_PATH OFF)
target_link_options(amaxscope_python PRIVATE LINKER:--disable-new-dtags LINKER:--exclude-libs,ALL LINKER:--gc-sections
                                             $<$<CONFIG:Release>:LINKER:--strip-all>)
install(TARGETS amaxscope_python LIBRARY DESTINATION amaxscope COMPONENT python)
install(CODE "
  file(GET_RUNTIME_DEPENDENCIES MODULES \"$<TARGET_FILE:amaxscope_python>\"
       RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing
       PRE_EXCLUDE_REGEXES \"^(lib(c|m|dl|rt|pthread|gcc_s|stdc\\\\+\\\\+)|ld-linux-.*)\\\\.so\")
  if(missing)
    message(FATAL_ERROR \"wheel: not found: \${missing}\")
  endif()
  foreach(library IN LISTS found)
    message(STATUS \"wheel: bundles \${library}\")
    get_filename_component(soname \${library} NAME)
    file(REAL_PATH \${library} file)
    file(MAKE_DIRECTORY \"\${CMAKE_INSTALL_PREFIX}/amaxscope.libs\")
    file(COPY_FILE \${file} \"\${CMAKE_INSTALL_PREFIX}/amaxscope.libs/\${soname}\")
  endforeach()" COMPONENT python)
