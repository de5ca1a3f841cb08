# The Vulkan backend: a part of the library. glslc compiles each shader once; the headers are those of
# the loader, which is opened at run time.
set(PI_VULKAN auto CACHE STRING "the Vulkan backend: auto (where glslc and the headers are), on, off")
find_program(PI_GLSLC glslc)
find_path(PI_VULKAN_INCLUDE vulkan/vulkan_core.h)
if(NOT PI_VULKAN_INCLUDE AND CMAKE_CROSSCOMPILING) # the same headers for all systems
    find_path(PI_VULKAN_HEADERS vulkan/vulkan_core.h NO_CMAKE_FIND_ROOT_PATH)
    if(PI_VULKAN_HEADERS) # without the C library's headers next to them
        file(COPY ${PI_VULKAN_HEADERS}/vulkan ${PI_VULKAN_HEADERS}/vk_video
            DESTINATION ${CMAKE_CURRENT_BINARY_DIR}/vulkan_headers)
        set(PI_VULKAN_INCLUDE ${CMAKE_CURRENT_BINARY_DIR}/vulkan_headers CACHE PATH "" FORCE)
    endif()
endif()
string(TOLOWER "${PI_VULKAN}" option)
set(why "")
if(NOT PI_GLSLC)
    set(why "no glslc: install it (Debian, Ubuntu: glslc)")
elseif(NOT PI_VULKAN_INCLUDE)
    set(why "no vulkan/vulkan_core.h: install it (Debian, Ubuntu: libvulkan-dev)")
endif()
set(GPU_VULKAN FALSE)
if(option STREQUAL "off")
    message(STATUS "the Vulkan backend is disabled")
    return()
elseif(why AND option STREQUAL "on")
    message(FATAL_ERROR "the Vulkan backend was requested: ${why}")
elseif(why)
    message(STATUS "*** no Vulkan backend: ${why} ***")
    return()
endif()
set(GPU_VULKAN TRUE)
set_property(GLOBAL PROPERTY PI_VULKAN_BUILT TRUE)

set(folder ${CMAKE_CURRENT_BINARY_DIR}/shaders)
file(MAKE_DIRECTORY ${folder})
file(GLOB includes CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/vulkan/shaders/*.glsl)
list(APPEND includes ${CMAKE_CURRENT_SOURCE_DIR}/vulkan/shaders/args.h)
file(READ ${CMAKE_CURRENT_SOURCE_DIR}/vulkan/vulkan_kernels.h kernels)
string(REGEX MATCHALL " K\\([a-z_0-9]+, [A-Z_0-9]+, [0-9]+" kernels "${kernels}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${CMAKE_CURRENT_SOURCE_DIR}/vulkan/vulkan_kernels.h)
set(declared "")
set(rows "")
set(images)
foreach(kernel IN LISTS kernels)
    string(REGEX REPLACE "^ K\\(|,.*" "" name "${kernel}")
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/vulkan/shaders/${name}.comp)
    add_custom_command(OUTPUT ${folder}/${name}.spv DEPENDS ${source} ${includes}
        COMMAND ${PI_GLSLC} --target-env=vulkan1.2 -Werror -o ${folder}/${name}.spv ${source}
        COMMENT "Building shader ${name}" VERBATIM)
    list(APPEND images ${folder}/${name}.spv)
    string(APPEND declared "EMBED(${name}, \"${folder}/${name}.spv\")\n")
    set(dot "NULL, NULL")
    file(READ ${source} text)
    if(text MATCHES "(dot|tile)\\.glsl") # also for devices with integer dot products
        add_custom_command(OUTPUT ${folder}/${name}_dot.spv DEPENDS ${source} ${includes}
            COMMAND ${PI_GLSLC} --target-env=vulkan1.2 -Werror -DINT_DOT
                -o ${folder}/${name}_dot.spv ${source}
            COMMENT "Building shader ${name} with integer dot products" VERBATIM)
        list(APPEND images ${folder}/${name}_dot.spv)
        string(APPEND declared "EMBED(${name}_dot, \"${folder}/${name}_dot.spv\")\n")
        set(dot "pi_shader_${name}_dot, pi_shader_end_${name}_dot")
    endif()
    string(APPEND rows "    {pi_shader_${name}, pi_shader_end_${name}, ${dot}},\n")
endforeach()
file(CONFIGURE OUTPUT ${folder}/vulkan_shader_list.c CONTENT [[/* By the build. */
#include <stddef.h>

#include "vulkan_shaders.h"

#if defined(_WIN32)
#define SECTION     ".section .rdata,\"dr\"\n"
#define BACK        ".text\n"
#define HIDE(name)  ""
#else
#define SECTION     ".pushsection .rodata\n"
#define BACK        ".popsection\n"
#define HIDE(name)  ".hidden " name "\n"
#endif
#define EMBED(name, path)                                                                          \
    __asm__(SECTION ".balign 16\n.global pi_shader_" #name "\n"                                     \
            HIDE("pi_shader_" #name) "pi_shader_" #name ":\n.incbin \"" path "\"\n"                \
            ".global pi_shader_end_" #name "\n" HIDE("pi_shader_end_" #name)                        \
            "pi_shader_end_" #name ":\n" BACK);                                                      \
    extern const uint8_t pi_shader_##name[], pi_shader_end_##name[];
@declared@
const vulkan_shader vulkan_shaders[] = {
@rows@};
]] @ONLY)
set_source_files_properties(${folder}/vulkan_shader_list.c PROPERTIES OBJECT_DEPENDS "${images}")
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/vulkan/*.c)
target_sources(pi_gpu PRIVATE ${sources} ${folder}/vulkan_shader_list.c)
target_include_directories(pi_gpu PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/vulkan
    ${CMAKE_CURRENT_SOURCE_DIR}/vulkan/shaders)
target_include_directories(pi_gpu SYSTEM PRIVATE ${PI_VULKAN_INCLUDE})
