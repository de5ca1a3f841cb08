# The dependency law: a module is an object library whose files include headers, and whose objects use
# symbols, only of the modules that it SEES. It sees only modules that were added before it, so that
# there are no cycles. (Its include path also has the folders that these modules see, since headers
# include headers.) modules.txt in the build folder is the law as one list. With it tests/tidy checks
# includes, symbols, the table in ARCHITECTURE.md, and that every grant is used. module_objects.txt
# has the paths of each module's objects.

# pi_see(TARGET MODULE): the folders in which TARGET finds the headers of MODULE.
function(pi_see target seen)
    if(seen STREQUAL "public")
        target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    else()
        target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src/${seen})
    endif()
    if(seen STREQUAL "base") # with the layer over the operating system
        target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src/base/os)
    endif()
endfunction()

# pi_calls_system(FILES...): files of this folder that call the operating system. For all other files
# in src/ the compiler hides what is not ISO C.
function(pi_calls_system)
    if(WIN32) # the compiler's macro for strict ISO C hides them
        set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -std=gnu11)
    else()
        set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_DEFINITIONS _GNU_SOURCE)
    endif()
endfunction()

# pi_law(NAME TARGET [SEES modules...] [PUBLIC_HEADERS]): adds a row of the law for a target that is
# not a pi_module.
function(pi_law name target)
    cmake_parse_arguments(M "PUBLIC_HEADERS" "" "SEES" ${ARGN})
    get_property(earlier GLOBAL PROPERTY PI_LAW_MODULES)
    foreach(seen IN LISTS M_SEES)
        if(NOT seen IN_LIST earlier)
            message(FATAL_ERROR "module ${name} sees ${seen}, which is not below it")
        endif()
    endforeach()
    if(M_PUBLIC_HEADERS)
        list(APPEND M_SEES public)
    endif()
    list(JOIN M_SEES " " sees)
    set(folders ${M_SEES})
    foreach(seen IN LISTS M_SEES)
        get_property(inside GLOBAL PROPERTY PI_LAW_FOLDERS_${seen})
        list(APPEND folders ${inside})
    endforeach()
    list(REMOVE_DUPLICATES folders)
    set_property(GLOBAL PROPERTY PI_LAW_FOLDERS_${name} ${folders})
    set_property(GLOBAL APPEND PROPERTY PI_LAW_MODULES ${name})
    set_property(GLOBAL APPEND_STRING PROPERTY PI_LAW "${name}: ${sees}\n")
    set_property(GLOBAL APPEND_STRING PROPERTY PI_LAW_OBJECTS
        "${name} $<JOIN:$<TARGET_OBJECTS:${target}>,\n${name} >\n")
endfunction()

# Call this after the last module.
function(pi_write_law)
    get_property(law GLOBAL PROPERTY PI_LAW)
    get_property(objects GLOBAL PROPERTY PI_LAW_OBJECTS)
    file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/modules.txt CONTENT "${law}")
    file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/module_objects.txt CONTENT "${objects}")
endfunction()

# pi_module(NAME [SOURCES files...] [SEES modules...] [PUBLIC_HEADERS] [PROGRAM]
#           [USES imported targets...])
#   NAME            its folder in src/: a module may lie within another one's folder (exec/cpu)
#   SEES            modules whose headers may be included and whose functions may be called
#   PUBLIC_HEADERS  may also include powerinfer.h and the other public headers, and call their
#                   functions that lower modules define
#   PROGRAM         part of the program and of tests, not of the library
function(pi_module name)
    cmake_parse_arguments(M "PUBLIC_HEADERS;PROGRAM" "" "SOURCES;SEES;USES" ${ARGN})
    string(REPLACE "/" "_" target pi_${name})
    add_library(${target} OBJECT ${M_SOURCES})
    set(headers)
    if(M_PUBLIC_HEADERS)
        set(headers PUBLIC_HEADERS)
    endif()
    pi_law(${name} ${target} ${headers} SEES ${M_SEES})
    get_property(folders GLOBAL PROPERTY PI_LAW_FOLDERS_${name})
    foreach(seen IN LISTS name folders)
        pi_see(${target} ${seen})
    endforeach()
    foreach(library IN LISTS M_USES)
        if(TARGET ${library})
            target_link_libraries(${target} PRIVATE ${library})
        endif()
    endforeach()
    if(NOT M_PROGRAM)
        set_property(GLOBAL APPEND PROPERTY PI_MODULES ${target})
    endif()
endfunction()

# Compile settings of every test and test part: the folders of the modules that it sees, and of those
# that they see.
function(pi_test_settings target)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    set(folders ${ARGN})
    foreach(seen IN LISTS ARGN)
        get_property(inside GLOBAL PROPERTY PI_LAW_FOLDERS_${seen})
        list(APPEND folders ${inside})
    endforeach()
    list(REMOVE_DUPLICATES folders)
    list(REMOVE_ITEM folders public)
    foreach(seen IN LISTS folders)
        pi_see(${target} ${seen})
    endforeach()
    target_compile_definitions(${target} PRIVATE
        TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}" TEST_BINARY_DIR="${PROJECT_BINARY_DIR}")
    if(TARGET PkgConfig::JANSSON)
        target_compile_definitions(${target} PRIVATE TEST_HAS_JSON)
    endif()
    if(CMAKE_CROSSCOMPILING OR PI_SANITIZE)
        target_compile_definitions(${target} PRIVATE TEST_SAMPLED)
    endif()
    if(PI_SANITIZE)
        target_compile_definitions(${target} PRIVATE TEST_SANITIZED)
    endif()
endfunction()

# pi_test_part(NAME SOURCES files... SEES modules... [USES parts...]): code that several tests share,
# compiled once. It is a static library, so each test links only the files that it needs, and finds
# its headers.
function(pi_test_part name)
    cmake_parse_arguments(T "" "" "SOURCES;SEES;USES" ${ARGN})
    add_library(${name} STATIC ${T_SOURCES})
    pi_test_settings(${name} ${T_SEES})
    target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(${name} PUBLIC ${T_USES} powerinfer_static PkgConfig::CMOCKA)
endfunction()

# pi_test(NAME SOURCES files... SEES modules... [USES parts and libraries...] LABEL label
#         [TIMEOUT seconds]): a cmocka program that CTest runs, with the files of tests/support that it
# needs. Macros: TEST_HAS_JSON: conversion is built; TEST_SAMPLED: an emulator or a sanitizer slows
# the test down, so that long comparisons of numbers take a sample; TEST_SANITIZED: it runs under a
# sanitizer. A program whose tests were all skipped ends with 77 (tests/support/shared_data.h), which
# CTest shows as skipped.
function(pi_test name)
    cmake_parse_arguments(T "" "LABEL;TIMEOUT" "SOURCES;SEES;USES" ${ARGN})
    get_property(left_out GLOBAL PROPERTY PI_TESTS_LEFT_OUT)
    if(name IN_LIST left_out)
        message(FATAL_ERROR "pi_not_under names ${name} before its pi_test")
    endif()
    add_executable(test_${name} ${T_SOURCES})
    pi_test_settings(test_${name} ${T_SEES})
    target_link_libraries(test_${name} PRIVATE ${T_USES} test_support powerinfer_static
                          PkgConfig::CMOCKA)
    if(TARGET test_posix)
        target_link_libraries(test_${name} PRIVATE test_posix)
    endif()
    pi_windows_resource(test_${name} test_${name}.exe)
    add_test(NAME ${name} COMMAND test_${name})
    if(NOT T_TIMEOUT)
        set(T_TIMEOUT 120)
    endif()
    if(WIN32) # files and processes are slower than the system's
        math(EXPR T_TIMEOUT "3 * ${T_TIMEOUT}")
    elseif(CMAKE_CROSSCOMPILING) # an emulator computes floats by integers, ten to fifty times slower
        math(EXPR T_TIMEOUT "30 * ${T_TIMEOUT}")
    elseif(PI_SANITIZE) # five to fifteen times slower
        math(EXPR T_TIMEOUT "10 * ${T_TIMEOUT}")
    endif()
    # Tests that may take long start first, so that none of them runs alone at the end.
    if(name IN_LIST PI_WINDOWS_SAMPLE)
        list(APPEND T_LABEL windows-sample)
    endif()
    get_property(not_on GLOBAL PROPERTY PI_TESTS_NOT_ON_windows)
    if(name IN_LIST not_on)
        list(APPEND T_LABEL no-windows)
        if(WIN32)
            set_target_properties(test_${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
        endif()
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABEL}" TIMEOUT ${T_TIMEOUT}
        COST ${T_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

# pi_not_under(SANITIZER "reason" TESTS...): tests that a sanitizer suite, `asan` or `tsan`, neither runs
# nor builds; their label is no-SANITIZER. The reason is for readers, and every test has one.
function(pi_not_under sanitizer reason)
    set(asan_is address)
    set(tsan_is thread)
    foreach(name IN LISTS ARGN)
        if(NOT TEST ${name}) # a build may lack a test, but pi_test must not follow this call
            set_property(GLOBAL APPEND PROPERTY PI_TESTS_LEFT_OUT ${name})
        else()
            set_property(TEST ${name} APPEND PROPERTY LABELS no-${sanitizer})
            if(PI_SANITIZE MATCHES "${${sanitizer}_is}" AND TARGET test_${name})
                set_target_properties(test_${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
            endif()
        endif()
    endforeach()
endfunction()

# pi_not_on(SYSTEM "reason" TESTS...): tests that a build for this system, `windows`, neither builds nor
# runs; their label is no-SYSTEM. Call it before their pi_test: tests/not_on_windows.cmake is the list.
function(pi_not_on system reason)
    set_property(GLOBAL APPEND PROPERTY PI_TESTS_NOT_ON_${system} ${ARGN})
endfunction()

# pi_vulkan_test(NAME [LONG] [WINDOWS] [LANES N] [ONLY PATTERN] [AS NAME] [ARGS arguments...]): a pi_test
# that accepts --device also runs with the Vulkan backend, on the first device of the loader, with the
# validation layer's core and synchronization checks where it is installed: its messages end the test.
# LONG: only with `ctest -C long`. WINDOWS: also in the build for Windows, under wine with an X server,
# where there is one, and without the validation layer. LANES: subgroups of this many lanes, if the driver
# is Mesa's lavapipe. Mesa's cache of shaders on disk does not know their number, so each number has a
# separate folder. ONLY: the cases that match. AS: the end of its name, when a test runs twice; LANES
# adds the number.
set(PI_VULKAN_SETTINGS ${PROJECT_SOURCE_DIR}/tests/gpu/vulkan)
find_file(PI_VULKAN_VALIDATION VkLayer_khronos_validation.json
    PATHS /usr/share/vulkan/explicit_layer.d /usr/local/share/vulkan/explicit_layer.d NO_DEFAULT_PATH)
function(pi_vulkan_test name)
    cmake_parse_arguments(T "LONG;WINDOWS" "AS;LANES;ONLY" "ARGS" ${ARGN})
    get_property(built GLOBAL PROPERTY PI_VULKAN_BUILT)
    if(NOT built OR PI_SANITIZE OR (CMAKE_CROSSCOMPILING AND NOT (WIN32 AND T_WINDOWS)))
        return()
    endif()
    set(program test_${name})
    if(WIN32)
        set(program ${PROJECT_SOURCE_DIR}/scripts/wine-display.sh $<TARGET_FILE:test_${name}>)
    endif()
    set(when)
    if(T_LONG)
        set(when CONFIGURATIONS long)
    endif()
    set(environment VK_LAYER_SETTINGS_PATH=${PI_VULKAN_SETTINGS})
    if(NOT WIN32)
        list(APPEND environment MESA_SHADER_CACHE_DIR=${PROJECT_BINARY_DIR}/shader_cache${T_LANES})
    endif()
    if(T_LANES)
        math(EXPR bits "32 * ${T_LANES}")
        list(APPEND environment LP_NATIVE_VECTOR_WIDTH=${bits})
        string(APPEND T_AS _${T_LANES})
    endif()
    if(T_ONLY)
        list(APPEND environment CASE_ONLY=${T_ONLY})
    endif()
    if(PI_VULKAN_VALIDATION)
        list(APPEND environment VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation)
    endif()
    get_test_property(${name} TIMEOUT timeout)
    math(EXPR timeout "2 * ${timeout}") # a driver that runs on the CPU
    if(T_LONG)
        math(EXPR timeout "5 * ${timeout}")
    endif()
    add_test(NAME vulkan_${name}${T_AS} ${when}
        COMMAND ${program} --device vulkan ${T_ARGS})
    set_tests_properties(vulkan_${name}${T_AS} PROPERTIES LABELS vulkan TIMEOUT ${timeout}
        ENVIRONMENT "${environment}")
    if(WIN32) # wine has one display at a time
        set_tests_properties(vulkan_${name}${T_AS} PROPERTIES
            RESOURCE_LOCK wine-display SKIP_RETURN_CODE 77)
    endif()
endfunction()

# pi_device_test(NAME): a pi_test that accepts --device. It runs on the simulated GPU. With
# PI_TEST_DEVICE it also runs on that device (label `device`), under the program PI_TEST_UNDER if one
# is given, such as compute-sanitizer, which may take ten times as long.
set(PI_TEST_DEVICE "" CACHE STRING "device of `make test-gpu`: cuda, hip, sim")
set(PI_TEST_UNDER "" CACHE STRING "program that runs these tests, with its arguments")
function(pi_device_test name)
    add_dependencies(test_${name} powerinfer_sim)
    if(NOT PI_TEST_DEVICE)
        return()
    endif()
    separate_arguments(under UNIX_COMMAND "${PI_TEST_UNDER}")
    get_test_property(${name} TIMEOUT timeout)
    math(EXPR timeout "10 * ${timeout}")
    add_test(NAME ${PI_TEST_DEVICE}_${name}
        COMMAND ${under} $<TARGET_FILE:test_${name}> --device ${PI_TEST_DEVICE})
    set_tests_properties(${PI_TEST_DEVICE}_${name} PROPERTIES LABELS device TIMEOUT ${timeout})
endfunction()
