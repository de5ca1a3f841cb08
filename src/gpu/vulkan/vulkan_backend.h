/* vulkan_backend.h: the backend as a part of the library. */
#ifndef GPU_VULKAN_VULKAN_BACKEND_H
#define GPU_VULKAN_VULKAN_BACKEND_H

#include "gpu.h"

const gpu_backend *vulkan_backend(void); /* opens nothing */

#endif
