/* vulkan_backend.h: the backend as a part of the library. */
#ifndef GPU_VULKAN_VULKAN_BACKEND_H
#define GPU_VULKAN_VULKAN_BACKEND_H

#include "gpu.h"

const gpu_backend *vulkan_backend(void); /* opens nothing */

/* For tests, before a device is opened: devices have no more than the weakest that is supported:
 * allocations of 2 GiB, no integer dot products, no imported memory. */
void vulkan_lower_limits(void);
/* For tests: dispatches that contexts have recorded for the physical device of `d`. */
uint64_t vulkan_dispatches(gpu_device *d);

#endif
