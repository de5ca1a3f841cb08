# A GPU without a saved profile gets the bandwidth that is measured when it is opened: twice the rate
# of the fake driver's memory is twice the rate that the placement counts with. Times of the
# interpreter are no rate of a GPU, so without FAKE_CUDA_GBPS the data sheet's figure stays (200 GB/s
# for a GPU that reports none).
#   -DPROGRAM= -DMODEL= -DDRIVER=folder -DCACHE=folder without a profile
set(ENV{LD_LIBRARY_PATH} ${DRIVER})
set(ENV{XDG_CACHE_HOME} ${CACHE})
function(open_rate gbps result)
    set(ENV{FAKE_CUDA_GBPS} ${gbps})
    execute_process(COMMAND ${PROGRAM} place -q -m ${MODEL} --device cuda OUTPUT_VARIABLE out
        ERROR_VARIABLE said)
    if(NOT out MATCHES "gpu: streams ([0-9]+)\\.([0-9]) GB/s")
        message(FATAL_ERROR "no rate in:\n${out}${said}")
    endif()
    math(EXPR tenths "10 * ${CMAKE_MATCH_1} + ${CMAKE_MATCH_2}")
    set(${result} ${tenths} PARENT_SCOPE)
endfunction()
open_rate(0 none)
open_rate(20 one)
open_rate(40 two)
math(EXPR least "19 * ${one}")
math(EXPR most "21 * ${one}")
math(EXPR is "10 * ${two}")
if(NOT none EQUAL 2000 OR is LESS least OR is GREATER most OR two GREATER 400)
    message(FATAL_ERROR "tenths of GB/s: ${none} without a clock, ${one} at 20, ${two} at 40")
endif()
