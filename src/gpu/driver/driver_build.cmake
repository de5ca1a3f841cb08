# Kernels by clang alone: PTX for NVIDIA's driver, code objects for AMD's, and the operations' host
# side, which both share. All go into the library. Without kernels for a vendor it has no backend
# `cuda` or `hip`.
set(PI_CUDA auto CACHE STRING "kernels for NVIDIA GPUs: auto (where clang is), on, off, later (off until `make`)")
# Of each the oldest PTX version that has its instructions, so that old drivers accept it. Code for
# sm_89 would be that for sm_80.
set(PI_CUDA_ARCHS "75,80,90" CACHE STRING "compute capabilities to build PTX for")
set(GPU_PTX_VERSION_75 6.5)
set(GPU_PTX_VERSION_80 7.0)
set(GPU_PTX_VERSION_90 7.8)
# clang makes PTX for sm_75, and for sm_80 of the files with tensor cores. sed makes the rest of it:
# PTX of the other architectures has other lines .version and .target, and from sm_90 on the
# instructions of gpu_begin.
set(GPU_TENSOR_FILES op_attention_tile op_experts_tile op_matmul)
# Machine code for one GPU takes as long as all PTX, so the default is this machine's.
set(PI_HIP auto CACHE STRING "kernels for AMD GPUs: auto (where clang and such a GPU are), on, off, later (off until `make`)")
set(PI_HIP_ARCHS native CACHE STRING
    "AMD GPUs to build for: \"gfx1030,gfx90a\"; native: those of this machine, else common; common; all")
set(GPU_HIP_COMMON gfx90a gfx942 gfx1030 gfx1100 gfx1201) # MI200, MI300, RX 6800 to 6950, 7900, 9070
set(GPU_HIP_ALL gfx906 gfx908 gfx90a gfx942 gfx1030 gfx1031 gfx1032 gfx1100 gfx1101 gfx1102 gfx1103
    gfx1150 gfx1151 gfx1200 gfx1201)
find_program(PI_CLANG NAMES clang-19 clang-20 clang-21 clang-18 clang-17 clang-16 clang)
set(GPU_AMD_NODES /sys/class/kfd/kfd/topology/nodes)

# No toolkit is looked for, and its PTX version not taken.
set(GPU_CLANG_FLAGS -std=c++17 -DNDEBUG -DGPU_CLANG -fno-math-errno -Wall)
if(WIN32) # also for the kernels: types of the host are part of their names
    list(APPEND GPU_CLANG_FLAGS --target=x86_64-w64-mingw32)
endif()
foreach(folder IN LISTS GPU_FOLDERS ITEMS ${CMAKE_CURRENT_SOURCE_DIR}/driver
        ${CMAKE_CURRENT_SOURCE_DIR}/hip ${PROJECT_SOURCE_DIR}/include)
    list(APPEND GPU_CLANG_FLAGS -I${folder})
endforeach()
set(GPU_CUDA_FLAGS -x cuda --cuda-path=/nowhere -nocudainc -nocudalib -Wno-unknown-cuda-version
    ${GPU_CLANG_FLAGS})
set(GPU_PTX_FLAGS ${GPU_CUDA_FLAGS} --cuda-device-only -O3)
set(GPU_HOST_FLAGS ${GPU_CUDA_FLAGS} --cuda-host-only -O2 -fvisibility=hidden
    -fno-exceptions -fno-rtti -fno-threadsafe-statics)
if(NOT WIN32)
    list(APPEND GPU_HOST_FLAGS -fPIC)
endif()
# Code objects of version 4: runtimes of ROCm 5, 6 and 7 load them. Version 5 needs ROCm 6, and has
# nothing that the kernels use. Without a bundle around the code object, and without a symbol that
# differs from build to build.
set(GPU_HIP_FLAGS -x hip --rocm-path=/nowhere -nogpuinc -nogpulib ${GPU_CLANG_FLAGS} -DGPU_HIP
    --cuda-device-only -mcode-object-version=4 --no-gpu-bundle-output -fuse-cuid=none -O3
    -Wno-pass-failed)

# Why no kernels can be compiled, whatever the vendor; empty: they can.
function(gpu_no_compiler variable)
    set(why "")
    if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|aarch64")
        set(why "not supported by this CPU")
    elseif(NOT TARGET PkgConfig::ZLIB)
        set(why "no zlib: install it (Debian, Ubuntu: zlib1g-dev)")
    elseif(NOT PI_CLANG)
        set(why "no clang 16 or later: install it (Debian, Ubuntu: clang-19)")
    endif()
    set(${variable} "${why}" PARENT_SCOPE)
endfunction()

# Compiles an empty kernel; ARGN: flags.
function(gpu_try variable text)
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/kernels/try.cu "${text}\n")
    execute_process(COMMAND ${PI_CLANG} ${ARGN} -o ${CMAKE_CURRENT_BINARY_DIR}/kernels/try.out
        ${CMAKE_CURRENT_BINARY_DIR}/kernels/try.cu
        RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed)
        set(${variable} FALSE PARENT_SCOPE)
    else()
        set(${variable} TRUE PARENT_SCOPE)
    endif()
endfunction()

# gpu_decide(VARIABLE option vendor why): TRUE: build; else reports the reason. why: empty if
# nothing is missing.
function(gpu_decide variable option vendor why)
    string(TOLOWER "${option}" option)
    set(${variable} FALSE PARENT_SCOPE)
    if(option MATCHES "^(off|later)$")
        message(STATUS "kernels for ${vendor} GPUs are disabled")
    elseif(why AND option STREQUAL "on")
        message(FATAL_ERROR "kernels for ${vendor} GPUs were requested: ${why}")
    elseif(option STREQUAL "auto" AND (PI_SANITIZE OR (CMAKE_CROSSCOMPILING AND NOT WIN32)))
        message(STATUS "*** no kernels for ${vendor} GPUs: not built with sanitizers or for other machines ***")
    elseif(why)
        message(STATUS "*** no kernels for ${vendor} GPUs: ${why} ***")
    else()
        set(${variable} TRUE PARENT_SCOPE)
    endif()
endfunction()

# ---- NVIDIA
gpu_no_compiler(why)
string(TOLOWER "${PI_CUDA}" option)
if(NOT why AND option MATCHES "^(auto|on)$")
    gpu_try(works "__attribute__((global)) void try_kernel(int *p) { *p = __nvvm_read_ptx_sreg_tid_x(); }"
        ${GPU_PTX_FLAGS} --cuda-gpu-arch=sm_80 --cuda-feature=+ptx70 -S)
    if(NOT works)
        set(why "${PI_CLANG} is too old or cannot compile them: install clang 16 or later (Debian, Ubuntu: clang-19)")
    endif()
endif()
gpu_decide(build_cuda "${PI_CUDA}" NVIDIA "${why}")
set(cuda_archs)
if(build_cuda)
    string(REGEX MATCHALL "[0-9]+" cuda_archs "${PI_CUDA_ARCHS}")
    set(unknown ${cuda_archs})
    list(REMOVE_ITEM unknown 75 80 90)
    if(unknown OR NOT cuda_archs)
        message(FATAL_ERROR "PI_CUDA_ARCHS is ${PI_CUDA_ARCHS}, expected some of 75,80,90")
    endif()
endif()

# ---- AMD

# The GPUs of this machine, from gfx9 on: "gfx_target_version 90010" is gfx90a.
function(gpu_native_amd variable)
    set(archs)
    file(GLOB nodes ${GPU_AMD_NODES}/*/properties)
    foreach(node IN LISTS nodes)
        file(STRINGS ${node} line REGEX "^gfx_target_version [1-9]")
        if(line MATCHES "([0-9]+)([0-9][0-9])([0-9][0-9])$")
            math(EXPR major "${CMAKE_MATCH_1}")
            math(EXPR minor "${CMAKE_MATCH_2}")
            math(EXPR stepping "${CMAKE_MATCH_3}")
            if(major LESS 9)
                continue()
            endif()
            string(SUBSTRING "0123456789abcdef" ${minor} 1 minor)
            string(SUBSTRING "0123456789abcdef" ${stepping} 1 stepping)
            list(APPEND archs gfx${major}${minor}${stepping})
        endif()
    endforeach()
    list(REMOVE_DUPLICATES archs)
    set(${variable} "${archs}" PARENT_SCOPE)
endfunction()

gpu_no_compiler(why)
string(TOLOWER "${PI_HIP}" option)
gpu_native_amd(hip_archs)
if(NOT why AND NOT hip_archs AND option STREQUAL "auto")
    set(why "this machine has none of gfx9 or later (-DPI_HIP=on builds them nevertheless)")
endif()
if(NOT why AND option MATCHES "^(auto|on)$")
    if(PI_HIP_ARCHS STREQUAL "native")
        if(NOT hip_archs)
            set(hip_archs ${GPU_HIP_COMMON})
        endif()
    elseif(PI_HIP_ARCHS STREQUAL "common")
        set(hip_archs ${GPU_HIP_COMMON})
    elseif(PI_HIP_ARCHS STREQUAL "all")
        set(hip_archs ${GPU_HIP_ALL})
    else()
        string(REGEX MATCHALL "gfx[0-9a-f]+" hip_archs "${PI_HIP_ARCHS}")
        if(NOT hip_archs)
            message(FATAL_ERROR "PI_HIP_ARCHS is ${PI_HIP_ARCHS}, expected native, common, all, or a list like gfx1030,gfx90a")
        endif()
    endif()
    # An older clang lacks the newest GPUs.
    set(known)
    foreach(arch IN LISTS hip_archs)
        gpu_try(works "__attribute__((global)) void try_kernel(int *p) { *p = __builtin_amdgcn_workitem_id_x(); }"
            ${GPU_HIP_FLAGS} --offload-arch=${arch} -c)
        if(works)
            list(APPEND known ${arch})
        endif()
    endforeach()
    if(known AND NOT known STREQUAL hip_archs)
        set(unknown ${hip_archs})
        list(REMOVE_ITEM unknown ${known})
        message(STATUS "*** no kernels for ${unknown}: ${PI_CLANG} cannot compile them ***")
    elseif(NOT known)
        set(why "${PI_CLANG} cannot compile or link them: install clang (16 or later) and lld of the same version (Debian, Ubuntu: clang-19 lld-19)")
    endif()
    set(hip_archs ${known})
endif()
gpu_decide(build_hip "${PI_HIP}" AMD "${why}")
if(NOT build_hip)
    set(hip_archs)
endif()

# ---- the library
set(GPU_KERNEL_VENDORS)
if(build_cuda)
    list(APPEND GPU_KERNEL_VENDORS cuda)
endif()
if(build_hip)
    list(APPEND GPU_KERNEL_VENDORS hip)
    message(STATUS "kernels for AMD GPUs: ${hip_archs}")
endif()
if(NOT GPU_KERNEL_VENDORS)
    return()
endif()
set(folder ${CMAKE_CURRENT_BINARY_DIR}/kernels)
set(headers)
foreach(name IN ITEMS gpu gpu_amd gpu_fault gpu_ops)
    list(APPEND headers ${CMAKE_CURRENT_SOURCE_DIR}/${name}.h)
endforeach()
file(GLOB others CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.h ${CMAKE_CURRENT_SOURCE_DIR}/driver/driver_kernels.h
    ${PROJECT_SOURCE_DIR}/src/quant/*.h ${PROJECT_SOURCE_DIR}/src/base/activation.h)
list(APPEND headers ${others})
file(GLOB hip_headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/hip/*.h)
foreach(arch IN LISTS cuda_archs)
    set(edits "s/^\\.version .*/.version ${GPU_PTX_VERSION_${arch}}/\ns/^\\.target .*/.target sm_${arch}/\n")
    if(arch GREATER_EQUAL 90)
        string(APPEND edits "s|// gpu_begin$|griddepcontrol.wait; griddepcontrol.launch_dependents;|\n")
    endif()
    file(CONFIGURE OUTPUT ${folder}/compute_${arch}.sed CONTENT "@edits@" @ONLY)
endforeach()
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
    set(newest 75) # of those that clang compiles for
    set(flags -DGPU_ALL_ARCHS)
    if(file IN_LIST GPU_TENSOR_FILES)
        set(newest 80)
        set(flags)
    endif()
    set(compiled)
    foreach(arch IN LISTS cuda_archs)
        set(from 75)
        if(arch GREATER_EQUAL newest)
            set(from ${newest})
        endif()
        set(ptx ${folder}/${file}.sm_${from}.ptx)
        if(NOT from IN_LIST compiled)
            list(APPEND compiled ${from})
            string(REPLACE . "" version ${GPU_PTX_VERSION_${from}})
            add_custom_command(OUTPUT ${ptx} DEPENDS ${source} ${headers}
                COMMAND ${PI_CLANG} ${GPU_PTX_FLAGS} ${flags} --cuda-gpu-arch=sm_${from}
                    --cuda-feature=+ptx${version} -S -o ${ptx} ${source}
                COMMENT "Building PTX of ${file} for sm_${from}" VERBATIM)
        endif()
        set(name ${file}.compute_${arch}.ptx)
        set(edits ${folder}/compute_${arch}.sed)
        add_custom_command(OUTPUT ${folder}/${name} ${folder}/${name}.gz DEPENDS ${ptx} ${edits}
            COMMAND sed -f ${edits} ${ptx} > ${folder}/${name}
            COMMAND gzip -n -k -f ${folder}/${name}
            COMMENT "Compressing PTX of ${file} for sm_${arch}" VERBATIM)
        list(APPEND images ${folder}/${name}.gz)
        string(APPEND declared "EMBED(${file}_${arch}, \"${folder}/${name}.gz\")\n")
        string(APPEND rows "    IMAGE(\"cuda\", \"sm_${arch}\", ${arch}, \"${file}\", ${file}_${arch}),\n")
    endforeach()
    foreach(arch IN LISTS hip_archs)
        set(name ${file}.${arch}.co)
        add_custom_command(OUTPUT ${folder}/${name} ${folder}/${name}.gz
            DEPENDS ${source} ${headers} ${hip_headers}
            COMMAND ${PI_CLANG} ${GPU_HIP_FLAGS} --offload-arch=${arch} -c -o ${folder}/${name} ${source}
            COMMAND gzip -n -k -f ${folder}/${name}
            COMMENT "Building code of ${file} for ${arch}" VERBATIM)
        list(APPEND images ${folder}/${name}.gz)
        string(APPEND declared "EMBED(${file}_${arch}, \"${folder}/${name}.gz\")\n")
        string(APPEND rows "    IMAGE(\"hip\", \"${arch}\", 0, \"${file}\", ${file}_${arch}),\n")
    endforeach()
endforeach()
file(CONFIGURE OUTPUT ${folder}/driver_image_list.c CONTENT [[/* By the build. */
#include "driver_images.h"

#if defined(_WIN32) /* whose assembler has no stack of sections */
#define SECTION     ".section .rdata,\"dr\""
#define BACK        ".text"
#define HIDE(name)  ""
#else
#define SECTION     ".pushsection .rodata"
#define BACK        ".popsection"
#define HIDE(name)  ".hidden " name "\n"
#endif
#define EMBED(name, path)                                                                          \
    __asm__(SECTION "\n.global pi_image_" #name "\n" HIDE("pi_image_" #name)                       \
            "pi_image_" #name ":\n.incbin \"" path "\"\n.global pi_image_end_" #name "\n"           \
            HIDE("pi_image_end_" #name) "pi_image_end_" #name ":\n" BACK "\n");                    \
    extern const uint8_t pi_image_##name[], pi_image_end_##name[];
@declared@
#define IMAGE(vendor, target, capability, file, name)                                              \
    {vendor, target, capability, file, pi_image_##name, pi_image_end_##name}
const driver_image driver_images[] = {
@rows@};
const size_t driver_n_images = sizeof driver_images / sizeof *driver_images;
]] @ONLY)
set_source_files_properties(${folder}/driver_image_list.c PROPERTIES OBJECT_DEPENDS "${images}")
set(GPU_DRIVER_SOURCES driver/driver_device.c driver/driver_free_memory.c driver/driver_images.c
    driver/driver_open.c driver/driver_stream.c gpu_late.c ${folder}/driver_image_list.c)
target_sources(pi_gpu PRIVATE ${GPU_DRIVER_SOURCES})
target_include_directories(pi_gpu PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/driver)
target_link_libraries(pi_gpu PRIVATE PkgConfig::ZLIB)
add_custom_target(gpu_kernels DEPENDS ${objects} ${images})
add_dependencies(pi_gpu gpu_kernels)
set_property(GLOBAL PROPERTY PI_KERNEL_OBJECTS ${objects})
set_property(GLOBAL PROPERTY PI_KERNEL_FOLDER ${folder})
set_property(GLOBAL PROPERTY PI_KERNEL_ARCHS ${cuda_archs})
set_property(GLOBAL PROPERTY PI_KERNEL_HIP_ARCHS ${hip_archs})
