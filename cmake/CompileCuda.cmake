# Compiles one CUDA source. Leaves in the object's folder the object, its dependencies, PTX for each architecture and
# ptxas.log, and says nothing unless it fails.
# usage: cmake -D NVCC=.. -D FLAGS=.. -D SOURCE=.. -D OBJECT=.. -P CompileCuda.cmake
get_filename_component(folder ${OBJECT} DIRECTORY)
get_filename_component(name ${OBJECT} NAME_WE)
file(REMOVE_RECURSE ${folder}/kept)
file(MAKE_DIRECTORY ${folder}/kept)
execute_process(
  COMMAND ${NVCC} ${FLAGS} --keep --keep-dir ${folder}/kept -MD -MF ${folder}/${name}.d -MT ${OBJECT} -c ${SOURCE} -o ${OBJECT}
  OUTPUT_VARIABLE log ERROR_VARIABLE log RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  file(REMOVE ${OBJECT})
  message(FATAL_ERROR "${log}")
endif()
file(GLOB old ${folder}/*.ptx)
file(GLOB kept ${folder}/kept/*.ptx)
if(old)
  file(REMOVE ${old})
endif()
file(COPY ${kept} DESTINATION ${folder})
file(REMOVE_RECURSE ${folder}/kept)
file(WRITE ${folder}/ptxas.log "${log}")
