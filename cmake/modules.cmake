# The dependency law: a module is an object library that can include its own folder and the folders
# of the modules it SEES, and nothing else. The list in src/CMakeLists.txt is the law's text.

# pi_module(NAME [SOURCES files...] [SEES modules...] [PUBLIC_HEADERS] [USES imported targets...])
#   SEES            modules whose headers may be included
#   PUBLIC_HEADERS  may include powerinfer.h and powerinfer_tools.h too
function(pi_module name)
    cmake_parse_arguments(M "PUBLIC_HEADERS" "" "SOURCES;SEES;USES" ${ARGN})
    add_library(pi_${name} OBJECT ${M_SOURCES})
    target_include_directories(pi_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    foreach(seen IN LISTS M_SEES)
        target_include_directories(pi_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/${seen})
    endforeach()
    if(M_PUBLIC_HEADERS)
        target_include_directories(pi_${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    endif()
    foreach(target IN LISTS M_USES)
        if(TARGET ${target})
            target_link_libraries(pi_${name} PRIVATE ${target})
        endif()
    endforeach()
    set_property(GLOBAL APPEND PROPERTY PI_MODULES pi_${name})
endfunction()

# pi_test(NAME SOURCES files... SEES modules... [ARGS ...]): a cmocka program, run by CTest. It knows
# by TEST_HAS_JSON whether there is conversion, by TEST_EMULATED that it runs on another processor's
# emulator, where long comparisons of numbers take a sample, and by TEST_SANITIZED that a sanitizer
# slows it down.
function(pi_test name)
    cmake_parse_arguments(T "" "LABEL;TIMEOUT" "SOURCES;SEES;USES" ${ARGN})
    add_executable(test_${name} ${T_SOURCES})
    target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/include
                               ${PROJECT_SOURCE_DIR}/tests/support)
    foreach(seen IN LISTS T_SEES)
        target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/${seen})
    endforeach()
    target_compile_definitions(test_${name} PRIVATE
        TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}" TEST_BINARY_DIR="${PROJECT_BINARY_DIR}")
    if(TARGET PkgConfig::JANSSON)
        target_compile_definitions(test_${name} PRIVATE TEST_HAS_JSON)
    endif()
    if(CMAKE_CROSSCOMPILING)
        target_compile_definitions(test_${name} PRIVATE TEST_EMULATED)
    endif()
    if(PI_SANITIZE)
        target_compile_definitions(test_${name} PRIVATE TEST_SANITIZED)
    endif()
    target_link_libraries(test_${name} PRIVATE powerinfer_static PkgConfig::CMOCKA ${T_USES})
    add_test(NAME ${name} COMMAND test_${name})
    if(NOT T_TIMEOUT)
        set(T_TIMEOUT 120)
    endif()
    if(PI_SANITIZE OR CMAKE_CROSSCOMPILING) # both make code five to fifteen times slower
        math(EXPR T_TIMEOUT "10 * ${T_TIMEOUT}")
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABEL}" TIMEOUT ${T_TIMEOUT})
endfunction()
