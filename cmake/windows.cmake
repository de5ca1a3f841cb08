# Builds for Windows on x86-64 with Debian's mingw-w64; tests run under wine. See `make windows`.
#   PI_WINDOWS_LIBS   where scripts/windows-libs.sh has put the libraries
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
# The variants with POSIX threads: their C++ library has std::thread, and tests use pthread.h.
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_CROSSCOMPILING_EMULATOR ${CMAKE_CURRENT_LIST_DIR}/../scripts/wine.sh)

if(NOT PI_WINDOWS_LIBS)
    execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/../scripts/windows-libs.sh --where
        OUTPUT_VARIABLE PI_WINDOWS_LIBS OUTPUT_STRIP_TRAILING_WHITESPACE)
    set(PI_WINDOWS_LIBS ${PI_WINDOWS_LIBS} CACHE PATH "libraries for Windows")
endif()
set(CMAKE_FIND_ROOT_PATH ${PI_WINDOWS_LIBS} /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${PI_WINDOWS_LIBS}/lib/pkgconfig)
set(ENV{PKG_CONFIG_PATH} "")
