/* run_device.c: see run_device.h. */
#include "run_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef TEST_VULKAN
#include "vulkan_backend.h"
#endif

static void lower_limits(void) {
#ifdef TEST_VULKAN
    vulkan_lower_limits();
#endif
}

uint64_t run_device_dispatches(const gpu_library *library, gpu_device *device) {
#ifdef TEST_VULKAN
    if (strcmp(library->backend->name, "vulkan") == 0) return vulkan_dispatches(device);
#endif
    (void)library;
    (void)device;
    return 0;
}

bool run_device_open(int argc, char **argv, uint32_t wait_ms, gpu_library *library,
                     gpu_device **device, int *status) {
    const char *name = "sim", *folder = NULL, *only = getenv("CASE_ONLY");
    if (only) cmocka_set_test_filter(only);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--device") == 0) name = argv[i + 1];
        if (strcmp(argv[i], "--folder") == 0) folder = argv[i + 1];
        if (strcmp(argv[i], "--limits") == 0 && strcmp(argv[i + 1], "low") == 0) lower_limits();
    }
    const gpu_open_options options = {.wait_ms = wait_ms};
    pi_error err = {.status = PI_OK};
    int n = 0;
    pi_status opened = gpu_library_open(name, folder, library, &err);
    if (!opened) opened = library->backend->count(&n, &err);
    if (!opened) opened = library->backend->open(0, gpu_host_default(), &options, device, &err);
    if (!opened) return true;
    fprintf(stderr, "device %s: %s\n", name, err.message);
    *status = strcmp(name, "sim") == 0;
    if (!*status) fprintf(stderr, "*** SKIPPED: no device %s here ***\n", name);
    return false;
}

void run_device_close(gpu_library *library, gpu_device *device) {
    library->backend->close(device);
    gpu_library_close(library);
}

gpu_device *run_device_another(const gpu_library *library, int index, uint64_t memory_limit,
                               uint32_t wait_ms) {
    const gpu_open_options options = {.wait_ms = wait_ms, .memory_limit = memory_limit};
    gpu_device *device;
    pi_error err;
    if (library->backend->open(index, gpu_host_default(), &options, &device, &err))
        fail_msg("%s", err.message);
    return device;
}
