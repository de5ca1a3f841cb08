/* driver_backend.h: the backends that are parts of the library. */
#ifndef GPU_DRIVER_DRIVER_BACKEND_H
#define GPU_DRIVER_DRIVER_BACKEND_H

#include "gpu.h"

/* By its name, "cuda"; NULL: there is none of that name. Opens nothing. */
const gpu_backend *driver_backend(const char *name);

#endif
