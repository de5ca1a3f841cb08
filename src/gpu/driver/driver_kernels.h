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
#endif
#endif
