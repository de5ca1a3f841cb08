# Assembles the kernels for one architecture and reads what ptxas says: none may spill registers,
# since a spilled register is memory traffic in kernels that are bound by memory. Exceptions, as
# architectures, a part of the kernel's name, and bytes:
#   - Turing has no asynchronous copies: registers hold the keys or values on their way, and prefill
#     attention lacks up to 14 of 255.
#   - For some kernels ptxas chooses more blocks per multiprocessor, with fewer registers: the product
#     of Q2_K and Q3_K experts gets 80, needs 122; the recurrent state gets 96, needs 165.
#   - Limits of registers by the blocks that kernels ask for, on sm_120: prefill products of Q2_K, Q3_K
#     and Q8_0 (168), attention over F32 caches with heads of 512 (128), prompts of MLA with mixed types
#     of caches, predictors, and sums of split products.
#   -DPTXAS= -DFILES=pattern -DARCH=80
set(exceptions "75 11tile_kernel 56"
    "[0-9]+ 13expert_kernelI9gpu_q23_kILb1E 8" "(90|100) 12recur_kernelILb0ELi4ELi4E 16"
    "120 (13matmul|18expert_tile)_kernelI(9gpu_q23_k|8gpu_q8_0) 20"
    "(100|120) 16attention_kernelI13gpu_cache_f32S0_Li2ELi512E 8"
    "120 (11tile_kernelI10tile_blockI13gpu_cache_anyS1_Li576E|14predict_kernelI|16add_parts_kernel) 36")
file(GLOB files ${FILES})
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
            set(most 0)
            foreach(exception IN LISTS exceptions)
                separate_arguments(row UNIX_COMMAND "${exception}")
                list(GET row 0 archs)
                list(GET row 1 name)
                if(ARCH MATCHES "^${archs}$" AND kernel MATCHES "${name}")
                    list(GET row 2 most)
                endif()
            endforeach()
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
message("${n_kernels} kernels for sm_${ARCH}, no spills but the exceptions")
