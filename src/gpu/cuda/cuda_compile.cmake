# Runs hipcc on one file, keeps what it says beside the object, and shows that only when it fails.
#   -DCOMPILER= -DFLAGS=(separated by blanks) -DSOURCE= -DOBJECT=
separate_arguments(FLAGS UNIX_COMMAND "${FLAGS}")
execute_process(COMMAND ${COMPILER} ${FLAGS} -c ${SOURCE} -o ${OBJECT}
    OUTPUT_FILE ${OBJECT}.log ERROR_FILE ${OBJECT}.log RESULT_VARIABLE status)
if(NOT status EQUAL 0)
    file(READ ${OBJECT}.log said)
    message(FATAL_ERROR "${SOURCE}:\n${said}")
endif()
