# On Windows: recorded logits and the program on the fake driver. Windows looks for a driver's library
# in the program's folder first, so copies of the programs are in the folder of nvcuda.dll; all other
# tests find no driver. Drivers that refuse and the other tests of kernels are those of Linux: the
# host side, the kernels and the interpreter are the same.
set(folder ${PROJECT_BINARY_DIR}/fake_driver)
set(copies)
foreach(program IN ITEMS powerinfer test_golden_hybrid)
    add_custom_command(OUTPUT ${folder}/${program}.exe DEPENDS ${program}
        COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:${program}> ${folder}/${program}.exe VERBATIM)
    list(APPEND copies ${folder}/${program}.exe)
endforeach()
add_custom_target(fake_driver_programs DEPENDS ${copies} fake_cuda)
add_dependencies(test_ptx fake_driver_programs)
add_test(NAME windows_golden COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} ${folder}/test_golden_hybrid.exe
    --device cuda --models more/qwen3moe-moe,pwri/llama-q4_0 --tokens 8)
set_tests_properties(windows_golden PROPERTIES FAIL_REGULAR_EXPRESSION "SKIPPED: no device")
add_test(NAME windows_text COMMAND ${CMAKE_COMMAND}
    "-DPROGRAM=${CMAKE_CROSSCOMPILING_EMULATOR}\\;${folder}/powerinfer.exe"
    -DMODEL=${PROJECT_SOURCE_DIR}/models/novella-7m.q8_0.powerinfer.gguf -DDRIVER=${folder} -DDEVICE=cuda
    -DARCH=80 -P ${CMAKE_CURRENT_SOURCE_DIR}/same_text.cmake)
set_tests_properties(windows_golden windows_text PROPERTIES LABELS "kernels;windows-sample" TIMEOUT 300)
