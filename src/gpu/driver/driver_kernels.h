/* driver_kernels.h: between the host side (C) and the operations (C++). */
#ifndef GPU_DRIVER_DRIVER_KERNELS_H
#define GPU_DRIVER_DRIVER_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu_fault.h"
#include "gpu_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A kernel of this library. They make a list before the program begins; `number` is the place in
 * it, from the end. */
typedef struct driver_kernel {
    const char *host_name; /* of the kernel's function, see driver_images.c */
    size_t number;
    const struct driver_kernel *next;
#ifdef __cplusplus
    explicit driver_kernel(const char *name);
#endif
} driver_kernel;

/* By the operations (driver_ops.cu): the last kernel, and the table. */
extern const driver_kernel *driver_kernels;
extern const gpu_ops driver_ops;

/* By the host side. */
struct gpu_fault *driver_stream_fault(const gpu_stream *s); /* device address */
uint64_t driver_stream_wait_ns(const gpu_stream *s);
uint32_t driver_stream_clock_khz(const gpu_stream *s);
bool driver_stream_tensor_cores(const gpu_stream *s);
void driver_stream_waits(gpu_stream *s);
void driver_launch(gpu_stream *s, size_t kernel, const unsigned blocks[3], unsigned threads,
                   const void *args);

#ifdef __cplusplus
}

/* On the host a kernel is a function that clang makes, and nothing calls. Its name has a mark,
 * "_ZL26__device_stub__norm_kernel8gpu_norm"; the assembler knows it. */
template <auto function> static const char *gpu_host_name() {
    const char *name;
#if defined(__x86_64__)
    asm("lea 1f(%%rip), %0\n"
#elif defined(__aarch64__)
    asm("adrp %0, 1f\nadd %0, %0, :lo12:1f\n"
#endif
#if defined(_WIN32)
        ".pushsection .rdata, \"dr\"\n"
#else
        ".pushsection .rodata.gpu_names, \"a\"\n"
#endif
        "1: .asciz \"%c1\"\n"
        ".popsection"
        : "=r"(name)
        : "i"(function));
    return name;
}

/* What the body of such a function names. */
extern "C" __attribute__((weak, visibility("hidden"))) int cudaSetupArgument(const void *, size_t,
                                                                             size_t) {
    return 1;
}
extern "C" __attribute__((weak, visibility("hidden"))) int cudaLaunch(const void *) {
    return 1;
}
#endif
#endif
