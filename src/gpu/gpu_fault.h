/* gpu_fault.h: where a device's kernels report that a wait failed. Pinned memory. */
#ifndef GPU_GPU_FAULT_H
#define GPU_GPU_FAULT_H

#include <stdint.h>

struct gpu_fault {
    uint64_t released;  /* set by the host: aborts all waits */
    uint64_t timed_out; /* set by a kernel */
};

#endif
