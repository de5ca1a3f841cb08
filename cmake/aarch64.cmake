# Builds for 64-bit ARM Linux with Debian's cross compiler; tests run under qemu. See `make test-arm`.
#   PI_QEMU_CPU   the processor that qemu plays: max, or a model such as neoverse-n1
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(PI_QEMU_CPU max CACHE STRING "the processor that qemu-aarch64 plays")
# Programs find the libraries of the architecture where Debian installs them. (With the cross
# compiler's own copy of libc, -L /usr/aarch64-linux-gnu, threads hang under qemu 7.2.)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu ${PI_QEMU_CPU})

# Debian keeps libraries of other architectures beside its own (multiarch), and headers and start
# files of the cross compiler apart.
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig)
