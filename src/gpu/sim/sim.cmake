# The simulated GPU: the operations as C++17, with fibers for threads. It is there for the tests.
if(NOT CMAKE_CXX_COMPILER OR NOT PI_TESTS)
    return()
endif()
# Hundreds of template instances, whose time means nothing: -O1 is enough.
set_source_files_properties(${GPU_OP_SOURCES} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++;-O1")
add_library(powerinfer_sim MODULE ${GPU_OP_SOURCES} ${GPU_ERROR_SOURCE}
    sim/sim_block.cpp sim/sim_device.cpp sim/sim_fiber.cpp sim/sim_stream.cpp)
target_compile_definitions(powerinfer_sim PRIVATE GPU_SIM)
target_include_directories(powerinfer_sim PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/sim ${GPU_FOLDERS})
target_link_libraries(powerinfer_sim PRIVATE Threads::Threads m)
set_target_properties(powerinfer_sim PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
install(TARGETS powerinfer_sim LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/powerinfer)
