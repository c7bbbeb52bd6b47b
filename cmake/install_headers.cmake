# Copies AMAXSCOPE_HEADERS from AMAXSCOPE_SOURCE_DIR to AMAXSCOPE_INCLUDE_DIR/amaxscope, with the includes of one another
# written as a program has to write them. Run by cmake --install.
if(DEFINED ENV{DESTDIR})
  set(AMAXSCOPE_INCLUDE_DIR "$ENV{DESTDIR}${AMAXSCOPE_INCLUDE_DIR}")
endif()
list(LENGTH AMAXSCOPE_HEADERS count)
message(STATUS "Installing: ${count} headers in ${AMAXSCOPE_INCLUDE_DIR}/amaxscope")
foreach(header IN LISTS AMAXSCOPE_HEADERS)
  file(READ ${AMAXSCOPE_SOURCE_DIR}/${header} text)
  string(REGEX REPLACE "#include \"(core|kernels|collectives|runtime|features)/" "#include \"amaxscope/\\1/" text "${text}")
  file(WRITE ${AMAXSCOPE_INCLUDE_DIR}/amaxscope/${header} "${text}")
endforeach()
