# Builds for 64-bit ARM Linux with Debian's cross compiler; tests run under qemu. See `make test-arm`.
#   PI_QEMU_CPU   the CPU that qemu emulates: max, or a model such as neoverse-n1
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(PI_QEMU_CPU max CACHE STRING "the CPU that qemu-aarch64 emulates")
# Programs find the libraries of the architecture where Debian installs them. (With the cross
# compiler's own copy of libc, -L /usr/aarch64-linux-gnu, threads hang under qemu 7.2.)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu ${PI_QEMU_CPU})

# Debian installs libraries of other architectures next to the native ones (multiarch), and headers
# and start files of the cross compiler in a separate folder.
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig)
