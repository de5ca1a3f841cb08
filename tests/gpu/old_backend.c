/* old_backend.c: a backend of another version, for test_gpu_runtime. */
#include "gpu.h"

const gpu_backend *powerinfer_gpu_backend(void);

PI_API const gpu_backend *powerinfer_gpu_backend(void) {
    static const gpu_backend old = {
        .version = GPU_VERSION + 1, .size = sizeof old - 8, .name = "sim"};
    return &old;
}
