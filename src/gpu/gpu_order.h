/* gpu_order.h: which kernels of a recording may overlap the previous one (gpu_begin): their blocks
 * start early and wait on a multiprocessor until it has ended. Not behind a copy, a fill or a wait
 * for another stream, where there is no previous kernel; and not behind a kernel that waits for its
 * host, since the multiprocessors would be taken from other contexts for as long as the host
 * takes. In C, for all backends. */
#ifndef GPU_GPU_ORDER_H
#define GPU_GPU_ORDER_H

#include <stdbool.h>

/* Of a stream; all zero when a recording begins. */
typedef struct gpu_order {
    bool after_kernel; /* the last command is a kernel */
    bool waits;        /* the next kernel waits for its host */
    bool behind_wait;  /* the last kernel does */
} gpu_order;

/* A kernel is recorded: whether it may overlap. */
static inline bool gpu_order_kernel(gpu_order *o) {
    const bool overlaps = o->after_kernel && !o->behind_wait;
    o->behind_wait = o->waits;
    o->waits = false;
    o->after_kernel = true;
    return overlaps;
}

/* Anything else is recorded. */
static inline void gpu_order_other(gpu_order *o) {
    o->after_kernel = false;
}

#endif
