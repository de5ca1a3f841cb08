# `cmake --install` installs the program with its bundled model, documentation, completions and man
# pages, both libraries, the headers and a pkg-config file. Packages take it in components: program,
# runtime (the shared library), development.
include(GNUInstallDirs)

if(WIN32)
    include(cmake/install_windows.cmake)
    return()
endif()
install(TARGETS powerinfer_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    COMPONENT runtime NAMELINK_COMPONENT development)
if(TARGET powerinfer_archive)
    install(FILES ${PI_ARCHIVE} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
endif()
if(TARGET powerinfer)
    install(TARGETS powerinfer RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()
if(TARGET powerinfer_pages)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/share/ DESTINATION ${CMAKE_INSTALL_DATADIR}
        COMPONENT program)
endif()
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program OPTIONAL
    FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
install(DIRECTORY models/ DESTINATION ${CMAKE_INSTALL_DATADIR}/powerinfer/models COMPONENT program
    OPTIONAL FILES_MATCHING PATTERN "*.gguf" PATTERN "calibration.txt")
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
    FILES_MATCHING PATTERN "*.h")
install(FILES src/base/powerinfer_status.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

# Libraries for programs that link the static library. They are listed as libraries and not as
# required packages, since pkg-config would pass the packages' definitions to every program.
set(PC_LIBS_PRIVATE "-lm -lpthread -ldl")
set(for_kernels)
if(TARGET gpu_kernels)
    set(for_kernels ZLIB)
endif()
foreach(name PCRE2 UTF8PROC JANSSON URING ${for_kernels})
    if(${name}_FOUND)
        string(REPLACE ";" " " flags "${${name}_STATIC_LDFLAGS}")
        string(PREPEND PC_LIBS_PRIVATE "${flags} ")
    endif()
endforeach()
# Path from the .pc file to the prefix: libdir has one level (lib) or two (lib/<triplet>).
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
    message(FATAL_ERROR "CMAKE_INSTALL_LIBDIR must be relative to the prefix")
endif()
file(RELATIVE_PATH PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" PC_TO_PREFIX ${PC_TO_PREFIX})
configure_file(cmake/powerinfer.pc.in powerinfer.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/powerinfer.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
