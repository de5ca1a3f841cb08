# Kernels for NVIDIA's GPUs, by clang alone: PTX for the driver, and the operations' host side. Both
# go into the library. Without clang it has no backend `cuda`.
set(PI_CUDA auto CACHE STRING "kernels for NVIDIA GPUs: auto (where clang is), on, off, later (off until `make`)")
# Of each the oldest PTX version that has its instructions, so that old drivers accept it. Code for
# sm_89 would be that for sm_80.
set(PI_CUDA_ARCHS "75,80,90" CACHE STRING "compute capabilities to build PTX for")
set(GPU_PTX_VERSION_75 65)
set(GPU_PTX_VERSION_80 70)
set(GPU_PTX_VERSION_90 78)
find_program(PI_CLANG NAMES clang-19 clang-20 clang-21 clang-18 clang-17 clang-16 clang)

# No toolkit is looked for, and its PTX version not taken.
set(GPU_CLANG_FLAGS -x cuda --cuda-path=/nowhere -nocudainc -nocudalib -std=c++17 -DNDEBUG
    -DGPU_CLANG -fno-math-errno -Wall -Wno-unknown-cuda-version)
set(GPU_PTX_FLAGS ${GPU_CLANG_FLAGS} --cuda-device-only -O3)
set(GPU_HOST_FLAGS ${GPU_CLANG_FLAGS} --cuda-host-only -O2 -fPIC -fvisibility=hidden
    -fno-exceptions -fno-rtti -fno-threadsafe-statics)
foreach(folder IN LISTS GPU_FOLDERS ITEMS ${CMAKE_CURRENT_SOURCE_DIR}/driver
        ${PROJECT_SOURCE_DIR}/include)
    list(APPEND GPU_PTX_FLAGS -I${folder})
    list(APPEND GPU_HOST_FLAGS -I${folder})
endforeach()

# Why there are no kernels; empty: there are.
function(gpu_no_kernels variable)
    set(why "")
    string(TOLOWER "${PI_CUDA}" option)
    if(option MATCHES "^(off|later)$")
        set(why "disabled")
    elseif(option STREQUAL "auto" AND (PI_SANITIZE OR CMAKE_CROSSCOMPILING))
        set(why "not built with sanitizers or for other machines")
    elseif(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|aarch64")
        set(why "not supported by this CPU")
    elseif(NOT TARGET PkgConfig::ZLIB)
        set(why "no zlib: install it (Debian, Ubuntu: zlib1g-dev)")
    elseif(NOT PI_CLANG)
        set(why "no clang 16 or later: install it (Debian, Ubuntu: clang-19)")
    else()
        file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/kernels/try.cu
            "__attribute__((global)) void try_kernel(int *p) { *p = __nvvm_read_ptx_sreg_tid_x(); }\n")
        execute_process(COMMAND ${PI_CLANG} ${GPU_PTX_FLAGS} --cuda-gpu-arch=sm_90
            --cuda-feature=+ptx78 -S -o /dev/null ${CMAKE_CURRENT_BINARY_DIR}/kernels/try.cu
            RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
        if(failed)
            set(why "${PI_CLANG} is too old or cannot compile them: install clang 16 or later (Debian, Ubuntu: clang-19)")
        endif()
    endif()
    if(why AND option STREQUAL "on")
        message(FATAL_ERROR "kernels for NVIDIA GPUs were requested: ${why}")
    endif()
    set(${variable} "${why}" PARENT_SCOPE)
endfunction()

gpu_no_kernels(why)
if(why STREQUAL "disabled")
    message(STATUS "kernels for NVIDIA GPUs are disabled")
elseif(why)
    message(STATUS "*** no kernels for NVIDIA GPUs: ${why} ***")
endif()
if(why)
    return()
endif()
set(folder ${CMAKE_CURRENT_BINARY_DIR}/kernels)
file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.h
    ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.h ${CMAKE_CURRENT_SOURCE_DIR}/driver/driver_kernels.h
    ${PROJECT_SOURCE_DIR}/src/quant/*.h ${PROJECT_SOURCE_DIR}/src/base/activation.h)
string(REGEX MATCHALL "[0-9]+" archs "${PI_CUDA_ARCHS}")
set(unknown ${archs})
list(REMOVE_ITEM unknown 75 80 90)
if(unknown OR NOT archs)
    message(FATAL_ERROR "PI_CUDA_ARCHS is ${PI_CUDA_ARCHS}, expected some of 75,80,90")
endif()
set(declared "")
set(rows "")
set(images)
set(objects)
foreach(source IN LISTS GPU_OP_SOURCES ITEMS ${CMAKE_CURRENT_SOURCE_DIR}/driver/driver_ops.cu)
    get_filename_component(file ${source} NAME_WE)
    set(object ${folder}/${file}.o)
    add_custom_command(OUTPUT ${object} DEPENDS ${source} ${headers}
        COMMAND ${PI_CLANG} ${GPU_HOST_FLAGS} -c -o ${object} ${source}
        COMMENT "Building host side of ${file}" VERBATIM)
    list(APPEND objects ${object})
    if(file STREQUAL "driver_ops")
        continue()
    endif()
    foreach(arch IN LISTS archs)
        set(name ${file}.compute_${arch}.ptx)
        add_custom_command(OUTPUT ${folder}/${name} ${folder}/${name}.gz DEPENDS ${source} ${headers}
            COMMAND ${PI_CLANG} ${GPU_PTX_FLAGS} --cuda-gpu-arch=sm_${arch}
                --cuda-feature=+ptx${GPU_PTX_VERSION_${arch}} -S -o ${folder}/${name} ${source}
            COMMAND gzip -9 -n -k -f ${folder}/${name}
            COMMENT "Building PTX of ${file} for sm_${arch}" VERBATIM)
        list(APPEND images ${folder}/${name}.gz)
        string(APPEND declared "EMBED(${file}_${arch}, \"${folder}/${name}.gz\")\n")
        string(APPEND rows "    IMAGE(${arch}, \"${file}\", ${file}_${arch}),\n")
    endforeach()
endforeach()
file(CONFIGURE OUTPUT ${folder}/driver_image_list.c CONTENT [[/* By the build. */
#include "driver_images.h"

#define EMBED(name, path)                                                                          \
    __asm__(".pushsection .rodata\n.global pi_image_" #name "\n.hidden pi_image_" #name            \
            "\npi_image_" #name ":\n.incbin \"" path "\"\n.global pi_image_end_" #name             \
            "\n.hidden pi_image_end_" #name "\npi_image_end_" #name ":\n.popsection\n");           \
    extern const uint8_t pi_image_##name[], pi_image_end_##name[];
@declared@
#define IMAGE(arch, file, name) {arch, file, pi_image_##name, pi_image_end_##name}
const driver_image driver_images[] = {
@rows@};
const size_t driver_n_images = sizeof driver_images / sizeof *driver_images;
]] @ONLY)
set_source_files_properties(${folder}/driver_image_list.c PROPERTIES OBJECT_DEPENDS "${images}")
set(GPU_DRIVER_SOURCES driver/driver_device.c driver/driver_free_memory.c driver/driver_images.c
    driver/driver_late.c driver/driver_open.c driver/driver_stream.c ${folder}/driver_image_list.c)
target_sources(pi_gpu PRIVATE ${GPU_DRIVER_SOURCES})
target_include_directories(pi_gpu PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/driver)
target_link_libraries(pi_gpu PRIVATE PkgConfig::ZLIB)
add_custom_target(gpu_kernels DEPENDS ${objects} ${images})
add_dependencies(pi_gpu gpu_kernels)
set_property(GLOBAL PROPERTY PI_KERNEL_OBJECTS ${objects})
set_property(GLOBAL PROPERTY PI_KERNEL_FOLDER ${folder})
set_property(GLOBAL PROPERTY PI_KERNEL_ARCHS ${archs})
