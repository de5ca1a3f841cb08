/* driver_backend.h: the backends that are parts of the library. */
#ifndef GPU_DRIVER_DRIVER_BACKEND_H
#define GPU_DRIVER_DRIVER_BACKEND_H

#include "gpu.h"

/* By its name, "cuda" or "hip"; NULL: this build has no kernels for it. Opens nothing. */
const gpu_backend *driver_backend(const char *name);

#endif
