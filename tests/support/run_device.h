/* run_device.h: the device that a test program runs on: the simulated one, or the one that --device
 * names, so that the same tests run on a real GPU; where there is no such device the program is
 * skipped, loudly. --folder: another build of the backend. */
#ifndef TEST_RUN_DEVICE_H
#define TEST_RUN_DEVICE_H

#include "gpu.h"

enum { RUN_DEVICE_WAIT_MS = 60000 }; /* a simulated device under a sanitizer is slow */

/* Opens what the command line says. `wait_ms`: how long kernels wait for a flag; 0: as usual. False
 * without a device, and then *status is what main returns: 1 for the simulated one, which is
 * everywhere. */
bool run_device_open(int argc, char **argv, uint32_t wait_ms, gpu_library *library,
                     gpu_device **device, int *status);
void run_device_close(gpu_library *library, gpu_device *device);
/* One more, of `index`; `memory_limit`: bytes that it has, 0: all. The test fails without one.
 * Closed by the backend's close. */
gpu_device *run_device_another(const gpu_library *library, int index, uint64_t memory_limit,
                               uint32_t wait_ms);

#endif
