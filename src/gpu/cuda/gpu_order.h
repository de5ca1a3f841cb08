/* gpu_order.h: which kernels of a recording may overlap the previous one (gpu_begin): their blocks
 * start early and wait on a multiprocessor until it has ended. Not behind a copy, a fill or a wait
 * for another stream, where there is no previous kernel; and not behind a kernel that waits for its
 * host, since the multiprocessors would be taken from other contexts for as long as the host
 * takes. */
#ifndef GPU_CUDA_GPU_ORDER_H
#define GPU_CUDA_GPU_ORDER_H

/* Of a stream; all zero when a recording begins. */
struct gpu_order {
    bool after_kernel; /* the last command is a kernel */
    bool waits;        /* the next kernel waits for its host */
    bool behind_wait;  /* the last kernel does */

    /* A kernel is recorded: whether it may overlap. */
    bool kernel() {
        const bool overlaps = after_kernel && !behind_wait;
        behind_wait = waits;
        waits = false;
        after_kernel = true;
        return overlaps;
    }
    /* Anything else is. */
    void other() { after_kernel = false; }
};

#endif
