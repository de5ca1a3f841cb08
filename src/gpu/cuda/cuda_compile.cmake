# Runs nvcc (or hipcc) on one file. Stores its output (with register and spill counts) next to the
# object, and prints the output only when the compiler fails.
#   -DCOMPILER= -DFLAGS=(separated by spaces) -DSOURCE= -DOBJECT=
#   -DPTX=folder -DPTX_ARCH=80: keeps nvcc's PTX there, as NAME.compute_ARCH.ptx
separate_arguments(FLAGS UNIX_COMMAND "${FLAGS}")
execute_process(COMMAND ${COMPILER} ${FLAGS} -c ${SOURCE} -o ${OBJECT}
    OUTPUT_FILE ${OBJECT}.log ERROR_FILE ${OBJECT}.log RESULT_VARIABLE status)
if(NOT status EQUAL 0)
    file(READ ${OBJECT}.log said)
    message(FATAL_ERROR "${SOURCE}:\n${said}")
endif()
