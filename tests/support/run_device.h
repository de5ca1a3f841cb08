/* run_device.h: the device of a test program: the simulated GPU, or the device that --device names,
 * so that the tests also run on a real GPU. Without such a device the program prints SKIPPED and is
 * skipped. --limits low: a Vulkan device has no more than the weakest that is supported. --folder:
 * another build of the backend. The environment's CASE_ONLY: only the test functions with this
 * name, in which * matches any letters. */
#ifndef TEST_RUN_DEVICE_H
#define TEST_RUN_DEVICE_H

#include "gpu.h"

enum { RUN_DEVICE_WAIT_MS = 60000 }; /* a simulated device under a sanitizer is slow */

/* Opens the device of the command line. `wait_ms`: how long kernels wait for a flag; 0: the
 * default. Returns false without a device; *status is then the exit status for main: 1 for the
 * simulated device, which always exists. */
bool run_device_open(int argc, char **argv, uint32_t wait_ms, gpu_library *library,
                     gpu_device **device, int *status);
void run_device_close(gpu_library *library, gpu_device *device);
/* Opens another device, number `index`; `memory_limit`: its bytes of memory, 0: all. Fails the test
 * without such a device. Close it with the backend's close. */
gpu_device *run_device_another(const gpu_library *library, int index, uint64_t memory_limit,
                               uint32_t wait_ms);
/* Of a Vulkan device: dispatches recorded so far by all contexts; other devices: 0. */
uint64_t run_device_dispatches(const gpu_library *library, gpu_device *device);

#endif
