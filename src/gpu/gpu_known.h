/* gpu_known.h: what this process has found out about a device by trying, kept so that further
 * contexts need not try again. */
#ifndef GPU_GPU_KNOWN_H
#define GPU_GPU_KNOWN_H

#include "gpu.h"

typedef struct gpu_known {
    bool probed, serial; /* whether launches wait until kernels have ended (gpu_probe.c) */
    bool timed;          /* reading its memory was timed (place_device.c) */
    double stream_gbps, gather_gbps; /* gpu_reading.h; 0: the times were not plausible */
    double sync;                     /* gpu_reading.h, where kernels may not wait; 0: not timed */
} gpu_known;

/* The entry of a device; at first all zeros. Other threads wait until gpu_known_unlock, so that one
 * of them tries, and two measurements do not disturb each other. The caller must not lock a second
 * entry. */
gpu_known *gpu_known_lock(const char *backend, int index);
void gpu_known_unlock(void);

#endif
