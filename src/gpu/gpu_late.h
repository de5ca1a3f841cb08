/* gpu_late.h: frees that are deferred until no program waits for its host. In C, for all backends.
 *
 * A driver may let a free wait until the device has nothing to do, with locks held that other
 * threads need: while a program (of any context) waits for its host, both would stall. So a free
 * goes on a list while any stream has work that may wait (`begin` to `end`); the end of the last
 * such work empties the list. When an allocation fails, everything on the list is freed at once, at
 * the risk of stalling, and so is memory for which the list has no room. One list for all devices.
 */
#ifndef GPU_GPU_LATE_H
#define GPU_GPU_LATE_H

#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpu_put_off {
    gpu_device *device; /* of the memory; may be closed by then, unless the backend prevents that */
    int index;
    gpu_pinned pinned; /* host NULL: device memory */
    void *p;
    size_t n_bytes;
} gpu_put_off;

/* By the backend: frees it. `idle`: no work that waits is under way. */
void gpu_free_now(const gpu_put_off *m, bool idle);

/* Before a stream gets work that may wait for the host; its `busy` says that it has some. */
void gpu_late_begin(bool *busy);
/* When all work of the stream is done. */
void gpu_late_end(bool *busy);
void gpu_late_put(const gpu_put_off *m);
/* Frees what was freed from `d`, or everything for NULL; false: there was nothing. Without the
 * lock: programs whose host has to begin another stream go on. */
bool gpu_late_flush(const gpu_device *d);
/* Device memory of a device that is on the list. */
uint64_t gpu_late_bytes(int index);

#ifdef __cplusplus
}
#endif
#endif
