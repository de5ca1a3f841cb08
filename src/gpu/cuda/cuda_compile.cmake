# Runs nvcc (or hipcc) on one file. Stores its output (with register and spill counts) next to the
# object, and prints the output only when the compiler fails.
#   -DCOMPILER= -DFLAGS=(separated by spaces) -DSOURCE= -DOBJECT=
#   -DPTX=folder -DPTX_ARCH=80: keeps nvcc's PTX there, as NAME.compute_ARCH.ptx
separate_arguments(FLAGS UNIX_COMMAND "${FLAGS}")
if(PTX)
    file(MAKE_DIRECTORY ${OBJECT}.keep)
    list(APPEND FLAGS --keep --keep-dir ${OBJECT}.keep)
endif()
execute_process(COMMAND ${COMPILER} ${FLAGS} -c ${SOURCE} -o ${OBJECT}
    OUTPUT_FILE ${OBJECT}.log ERROR_FILE ${OBJECT}.log RESULT_VARIABLE status)
if(NOT status EQUAL 0)
    file(READ ${OBJECT}.log said)
    message(FATAL_ERROR "${SOURCE}:\n${said}")
endif()
if(PTX)
    get_filename_component(name ${SOURCE} NAME_WE)
    file(GLOB kept ${OBJECT}.keep/*.ptx)
    foreach(file IN LISTS kept)
        get_filename_component(as ${file} NAME)
        string(REGEX REPLACE "^${name}.ptx$" "${name}.compute_${PTX_ARCH}.ptx" as ${as}) # if only one
        file(COPY_FILE ${file} ${PTX}/${as})
    endforeach()
    file(REMOVE_RECURSE ${OBJECT}.keep)
endif()
