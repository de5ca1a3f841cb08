# The simulated GPU: the operations as C++17, with fibers for threads.
if(NOT CMAKE_CXX_COMPILER)
    return()
endif()
# Hundreds of template instances, whose time means nothing: -O1 is enough.
set_source_files_properties(${GPU_OP_SOURCES} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++;-O1")
# Two backends of mostly the same objects: one with tensor cores; one without them, as HIP is, which
# is for a test and lies elsewhere.
set(GPU_MMA_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/cuda/op_matmul.cu
    ${CMAKE_CURRENT_SOURCE_DIR}/cuda/op_attention_tile.cu sim/sim_device.cpp)
set(sources ${GPU_OP_SOURCES} sim/sim_block.cpp sim/sim_fiber.cpp sim/sim_stream.cpp)
list(REMOVE_ITEM sources ${GPU_MMA_SOURCES})
add_library(pi_sim OBJECT ${sources})
add_library(powerinfer_sim MODULE ${GPU_MMA_SOURCES} ${GPU_ERROR_SOURCE} $<TARGET_OBJECTS:pi_sim>)
add_library(powerinfer_sim_float MODULE EXCLUDE_FROM_ALL ${GPU_MMA_SOURCES} ${GPU_ERROR_SOURCE}
    $<TARGET_OBJECTS:pi_sim>)
target_compile_definitions(powerinfer_sim_float PRIVATE GPU_NO_MMA)
set_target_properties(powerinfer_sim PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
set_target_properties(powerinfer_sim_float PROPERTIES OUTPUT_NAME powerinfer_sim
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/sim_float)
foreach(target pi_sim powerinfer_sim powerinfer_sim_float)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_compile_definitions(${target} PRIVATE GPU_SIM)
    target_compile_options(${target} PRIVATE ${PI_SANITIZE_LESS})
    target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/sim ${GPU_FOLDERS})
    target_link_libraries(${target} PRIVATE Threads::Threads m)
endforeach()
install(TARGETS powerinfer_sim LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/powerinfer)
