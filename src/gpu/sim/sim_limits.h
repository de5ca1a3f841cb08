/* sim_limits.h: launches that a driver refuses. The sizes are those of CUDA's devices from sm_75 to
 * sm_120 (CUDA C++ Programming Guide, "Compute Capabilities"); AMD's are not smaller. */
#ifndef GPU_SIM_SIM_LIMITS_H
#define GPU_SIM_SIM_LIMITS_H

#include <stdio.h>

#include "gpu_kernel.h"

enum : unsigned {
    SIM_MOST_BLOCKS_X = 0x7fffffff,
    SIM_MOST_BLOCKS_YZ = 65535,
    SIM_MOST_THREADS = 1024 /* of a block, all in x: in y and z it has one */
};

/* What a driver refuses about a grid; false: nothing. */
static inline bool sim_refuses(const gpu_grid &g, char *text, size_t n) {
    const struct {
        const char *what;
        unsigned is, most;
    } sizes[] = {{"blocks in x", g.x, SIM_MOST_BLOCKS_X},
                 {"blocks in y", g.y, SIM_MOST_BLOCKS_YZ},
                 {"blocks in z", g.z, SIM_MOST_BLOCKS_YZ},
                 {"threads per block", g.threads, SIM_MOST_THREADS}};
    for (const auto &size : sizes) {
        if (size.is >= 1 && size.is <= size.most) continue;
        snprintf(text, n, "%u %s, not 1 to %u", size.is, size.what, size.most);
        return true;
    }
    return false;
}

#endif
