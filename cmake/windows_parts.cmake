# Parts of Windows programs and DLLs: resources, and the list of exported functions. Nothing on other
# systems.

# pi_windows_resource(TARGET file-name): the file's version and, in a program, the manifest: UTF-8 for
# arguments and paths. CMake's own rules would give windres the compiler's options.
function(pi_windows_resource target name)
    if(NOT WIN32)
        return()
    endif()
    set(manifest ${PROJECT_SOURCE_DIR}/src/cli/windows/powerinfer.manifest)
    get_target_property(kind ${target} TYPE)
    if(kind STREQUAL "EXECUTABLE")
        set(type VFT_APP)
        set(include_manifest "1 24 \"${manifest}\"")
    else()
        set(type VFT_DLL)
        set(include_manifest "")
    endif()
    set(script ${CMAKE_CURRENT_BINARY_DIR}/${target}.rc)
    configure_file(${PROJECT_SOURCE_DIR}/src/cli/windows/powerinfer.rc.in ${script} @ONLY)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}.rc.obj)
    add_custom_command(OUTPUT ${object} DEPENDS ${script} ${manifest}
        COMMAND ${CMAKE_RC_COMPILER} -O coff -i ${script} -o ${object} VERBATIM)
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    target_sources(${target} PRIVATE ${object})
endfunction()

# pi_write_def(FILE): a module-definition file with the functions that the public headers declare.
# It is the linker's list of exports, and makes import libraries for other compilers.
function(pi_write_def path)
    set(functions)
    file(GLOB headers ${PROJECT_SOURCE_DIR}/include/*.h)
    foreach(header IN LISTS headers ITEMS ${PROJECT_SOURCE_DIR}/src/base/powerinfer_status.h)
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
        file(READ ${header} text)
        string(REGEX MATCHALL "\nPI_API [^;(]*[ *]pi_[a-z0-9_]+\\(" found "${text}")
        foreach(function IN LISTS found)
            string(REGEX REPLACE ".*[ *](pi_[a-z0-9_]+)\\($" "\\1" symbol "${function}")
            list(APPEND functions ${symbol})
        endforeach()
    endforeach()
    list(SORT functions)
    list(JOIN functions "\n    " functions)
    file(CONFIGURE OUTPUT ${path} CONTENT "LIBRARY powerinfer.dll\nEXPORTS\n    ${functions}\n" @ONLY)
endfunction()
