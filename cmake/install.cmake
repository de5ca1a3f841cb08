# `cmake --install` installs the program, both libraries, the headers, a pkg-config file and the bundled
# model.
include(GNUInstallDirs)

install(TARGETS powerinfer_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET powerinfer_archive)
    install(FILES ${PI_ARCHIVE} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET powerinfer)
    install(TARGETS powerinfer RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET powerinfer_pages)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/share/ DESTINATION ${CMAKE_INSTALL_DATADIR})
endif()
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES src/base/powerinfer_status.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY models/ DESTINATION ${CMAKE_INSTALL_DATADIR}/powerinfer/models
    OPTIONAL FILES_MATCHING PATTERN "*.gguf" PATTERN "calibration.txt")

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
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
