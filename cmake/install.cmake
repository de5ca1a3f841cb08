# What `cmake --install` puts in place: program, both libraries, headers, a pkg-config file and the
# bundled model.
include(GNUInstallDirs)

install(TARGETS powerinfer_static powerinfer_shared
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET powerinfer)
    install(TARGETS powerinfer RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES include/powerinfer.h include/powerinfer_session.h include/powerinfer_tools.h src/base/powerinfer_status.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY models/ DESTINATION ${CMAKE_INSTALL_DATADIR}/powerinfer/models
    OPTIONAL FILES_MATCHING PATTERN "*.gguf" PATTERN "calibration.txt")

# For programs that link the static library: what it was built with.
set(PC_REQUIRES_PRIVATE)
foreach(pair PCRE2:libpcre2-8 UTF8PROC:libutf8proc JANSSON:jansson)
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 name)
    list(GET pair 1 package)
    if(${name}_FOUND)
        string(APPEND PC_REQUIRES_PRIVATE " ${package}")
    endif()
endforeach()
# The way from the .pc file to the prefix: libdir may have one level (lib) or two (lib/<triplet>).
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
    message(FATAL_ERROR "CMAKE_INSTALL_LIBDIR must be relative to the prefix")
endif()
file(RELATIVE_PATH PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" PC_TO_PREFIX ${PC_TO_PREFIX})
configure_file(cmake/powerinfer.pc.in powerinfer.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/powerinfer.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
