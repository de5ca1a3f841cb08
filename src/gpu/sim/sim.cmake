# The simulated GPU: the operations as C++17, with fibers for threads.
if(NOT CMAKE_CXX_COMPILER)
    return()
endif()
# -O1 is enough for hundreds of template instances: times of the simulator are not meaningful.
set_source_files_properties(${GPU_OP_SOURCES} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++;-O1")
# Several backends share most objects: one with NVIDIA's tensor cores, and for tests, in separate
# folders, one without tensor cores, like some AMD GPUs, and one per kind of AMD's matrix units.
set(GPU_MMA_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/cuda/op_matmul.cu
    ${CMAKE_CURRENT_SOURCE_DIR}/cuda/op_attention_tile.cu
    ${CMAKE_CURRENT_SOURCE_DIR}/cuda/op_experts_tile.cu sim/sim_device.cpp)
set(sources ${GPU_OP_SOURCES} sim/sim_block.cpp sim/sim_fiber.cpp sim/sim_stream.cpp)
list(REMOVE_ITEM sources ${GPU_MMA_SOURCES})
set(define_float GPU_NO_MMA)
set(define_mfma GPU_AMD_MMA=9)
set(define_wmma11 GPU_AMD_MMA=11)
set(define_wmma12 GPU_AMD_MMA=12)
add_library(pi_sim OBJECT ${sources})
set(targets pi_sim)
# AddressSanitizer runs one kind of AMD's matrix units, ThreadSanitizer none of these backends: kinds
# differ in the order of elements, and none of them starts threads.
set(forms _float _mfma _wmma11 _wmma12)
if(PI_SANITIZE MATCHES "thread")
    set(forms)
elseif(PI_SANITIZE)
    set(forms _float _mfma)
endif()
foreach(form IN ITEMS "" ${forms})
    set(target powerinfer_sim${form})
    add_library(${target} MODULE ${GPU_MMA_SOURCES} ${GPU_SHARED_SOURCES} $<TARGET_OBJECTS:pi_sim>)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    if(form)
        target_compile_definitions(${target} PRIVATE ${define${form}})
        set_target_properties(${target} PROPERTIES OUTPUT_NAME powerinfer_sim
            EXCLUDE_FROM_ALL TRUE LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/sim${form})
    endif()
    list(APPEND targets ${target})
endforeach()
foreach(target IN LISTS targets)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_compile_definitions(${target} PRIVATE GPU_SIM)
    target_compile_options(${target} PRIVATE ${PI_SANITIZE_LESS})
    target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/sim
        ${CMAKE_CURRENT_SOURCE_DIR}/hip ${GPU_FOLDERS})
    target_link_libraries(${target} PRIVATE Threads::Threads m ${PI_WINDOWS_SYSTEM})
endforeach()
if(NOT WIN32) # its archive is for users
    install(TARGETS powerinfer_sim LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/powerinfer
        COMPONENT development)
endif()
