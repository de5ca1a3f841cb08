# The HIP backend, if hipcc is installed. A custom command compiles each file.
set(PI_HIP auto CACHE STRING "HIP backend: auto (if hipcc is found), on, off")
file(GLOB GPU_HEADERS CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.h
    ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.h ${CMAKE_CURRENT_SOURCE_DIR}/hip/*.h)
set(GPU_DEVICE_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/cuda/cuda_device.cu
    ${CMAKE_CURRENT_SOURCE_DIR}/cuda/cuda_look.cu
    ${CMAKE_CURRENT_SOURCE_DIR}/cuda/cuda_stream.cu ${GPU_OP_SOURCES})
add_library(pi_gpu_shared OBJECT ${GPU_SHARED_SOURCES})
target_include_directories(pi_gpu_shared PRIVATE ${GPU_FOLDERS})
set(GPU_INCLUDES "")
foreach(folder IN LISTS GPU_FOLDERS)
    string(APPEND GPU_INCLUDES " -I${folder}")
endforeach()

# gpu_backend(NAME compiler flags link_flags): libpowerinfer_NAME.so next to the program.
function(gpu_backend name compiler flags link_flags)
    set(folder ${CMAKE_CURRENT_BINARY_DIR}/${name})
    file(MAKE_DIRECTORY ${folder})
    set(objects)
    foreach(source IN LISTS GPU_DEVICE_SOURCES)
        get_filename_component(file ${source} NAME_WE)
        set(object ${folder}/${file}.o)
        add_custom_command(OUTPUT ${object} DEPENDS ${source} ${GPU_HEADERS}
            COMMAND ${CMAKE_COMMAND} -DCOMPILER=${compiler} "-DFLAGS=${flags} ${GPU_INCLUDES}"
                    -DSOURCE=${source} -DOBJECT=${object}
                    -P ${CMAKE_CURRENT_SOURCE_DIR}/cuda/cuda_compile.cmake
            COMMENT "Building ${name} object ${file}.o" VERBATIM)
        list(APPEND objects ${object})
    endforeach()
    set(library ${PROJECT_BINARY_DIR}/libpowerinfer_${name}.so)
    separate_arguments(link_flags UNIX_COMMAND "${link_flags}")
    add_custom_command(OUTPUT ${library} DEPENDS ${objects} pi_gpu_shared
        COMMAND ${compiler} ${link_flags} -o ${library} ${objects} $<TARGET_OBJECTS:pi_gpu_shared>
        COMMENT "Linking libpowerinfer_${name}.so" COMMAND_EXPAND_LISTS VERBATIM)
    add_custom_target(powerinfer_${name} ALL DEPENDS ${library})
    install(FILES ${library} DESTINATION ${CMAKE_INSTALL_LIBDIR}/powerinfer)
endfunction()

# gpu_wanted(VARIABLE option program what): whether to build; if not, prints the reason.
function(gpu_wanted variable option program what)
    set(${variable} FALSE PARENT_SCOPE)
    string(TOLOWER "${option}" option)
    if(option STREQUAL "off")
        message(STATUS "${what} is disabled")
    elseif(NOT program AND option STREQUAL "on")
        message(FATAL_ERROR "${what} was requested, but no compiler for it was found")
    elseif(NOT program)
        message(STATUS "*** ${what} is not built: no compiler for it on this machine ***")
    elseif(option STREQUAL "auto" AND (PI_SANITIZE OR CMAKE_CROSSCOMPILING))
        message(STATUS "${what} is not built with sanitizers or for other machines")
    else()
        set(${variable} TRUE PARENT_SCOPE)
    endif()
endfunction()

# ---- HIP: compiles the CUDA files with an alias header
find_program(PI_HIPCC hipcc HINTS /opt/rocm/bin)
set(PI_HIP_ARCHS common CACHE STRING
    "AMD GPU architectures to build for (\"gfx1030 gfx90a\"), or `common`: those that hipcc knows")
gpu_wanted(build_hip "${PI_HIP}" "${PI_HIPCC}" "the HIP backend")
if(build_hip)
    set(hip_archs ${PI_HIP_ARCHS})
    if(PI_HIP_ARCHS STREQUAL "common") # RX 6800 and 6900, RX 7900, MI200, MI300
        set(hip_archs)
        foreach(arch IN ITEMS gfx1030 gfx1100 gfx90a gfx942)
            execute_process(COMMAND ${PI_HIPCC} -x hip --offload-arch=${arch}
                                    --cuda-device-only -E /dev/null
                            OUTPUT_QUIET ERROR_QUIET RESULT_VARIABLE unknown)
            if(unknown EQUAL 0)
                list(APPEND hip_archs ${arch})
            endif()
        endforeach()
        message(STATUS "HIP code for ${hip_archs}")
    endif()
    set(flags "-std=c++17 -O3 -x hip -DGPU_HIP -fPIC -fvisibility=hidden -Wall -Wno-unused-result")
    set(link "-shared -fPIC")
    list(JOIN hip_archs " " hip_archs)
    separate_arguments(archs UNIX_COMMAND "${hip_archs}")
    list(JOIN archs "," built_for)
    string(APPEND flags " -DGPU_BUILT_FOR=${built_for}")
    foreach(arch IN LISTS archs)
        string(APPEND flags " --offload-arch=${arch}")
        string(APPEND link " --offload-arch=${arch}")
    endforeach()
    string(APPEND flags " -I${CMAKE_CURRENT_SOURCE_DIR}/hip")
    gpu_backend(hip ${PI_HIPCC} "${flags}" "${link}")
endif()
