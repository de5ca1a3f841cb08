# The CPU and the fake driver's GPU write the same text.
#   -DPROGRAM= -DMODEL= -DDRIVER=folder -DDEVICE=cuda -DARCH=80
set(run ${PROGRAM} run -m ${MODEL} -p "Once upon a time" -n 12 --temp 0)
execute_process(COMMAND ${run} --device cpu OUTPUT_VARIABLE cpu ERROR_VARIABLE said
    RESULT_VARIABLE status)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "on the CPU: ${said}")
endif()
set(ENV{LD_LIBRARY_PATH} ${DRIVER})
if(ARCH)
    set(ENV{FAKE_CUDA_ARCH} ${ARCH})
endif()
execute_process(COMMAND ${run} --device ${DEVICE} OUTPUT_VARIABLE gpu ERROR_VARIABLE said
    RESULT_VARIABLE status)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "on the GPU: ${said}")
endif()
if(NOT said MATCHES "fake GPU")
    message(FATAL_ERROR "the GPU was not used: ${said}")
endif()
if(NOT cpu STREQUAL gpu)
    message(FATAL_ERROR "the CPU wrote:\n${cpu}\nthe GPU:\n${gpu}")
endif()
