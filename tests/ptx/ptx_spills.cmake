# Assembles the kernels for one architecture and reads what ptxas says: none may spill registers,
# since a spilled register is memory traffic in kernels that are bound by memory. A few words are
# allowed: kernels with branches within branches, as the slow paths of divisions are, report 8 to 24
# bytes with most registers free; Turing's attention of prompts lacks 18 of 255.
#   -DPTXAS= -DFILES=pattern -DARCH=80
file(GLOB files ${FILES})
set(most 72) # bytes
set(n_kernels 0)
set(problems "")
foreach(file IN LISTS files)
    execute_process(COMMAND ${PTXAS} -v -arch=sm_${ARCH} -o /dev/null ${file}
        OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "${file}: for sm_${ARCH}:\n${said}")
    endif()
    set(n_before ${n_kernels})
    string(REPLACE "\n" ";" lines "${said}")
    foreach(line IN LISTS lines)
        if(line MATCHES "Compiling entry function '([^']*)'")
            set(kernel "${CMAKE_MATCH_1}")
        elseif(line MATCHES "([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads")
            math(EXPR n_kernels "${n_kernels} + 1")
            if(CMAKE_MATCH_1 GREATER most OR CMAKE_MATCH_2 GREATER most)
                string(APPEND problems "\n  ${kernel}: ${line}")
            endif()
        endif()
    endforeach()
    if(n_kernels EQUAL n_before)
        message(FATAL_ERROR "no kernel found in ${file}: the pattern of this script no longer fits")
    endif()
endforeach()
if(problems OR n_kernels EQUAL 0)
    message(FATAL_ERROR "registers are spilled for sm_${ARCH}:${problems}")
endif()
message("${n_kernels} kernels for sm_${ARCH}, none spills more than ${most} bytes")
