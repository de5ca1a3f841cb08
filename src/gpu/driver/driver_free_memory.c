/* driver_free_memory.c: free memory of a device without a context: from NVIDIA's management library
 * (NVML), opened at run time, or from the files of AMD's kernel driver. Where these have no figure,
 * as for integrated GPUs, all memory counts as free: the free memory is queried again when the
 * device is opened. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "dynlib.h"

enum { BUS_TEXT = 32 };

#if defined(_WIN32)
static const char nvml_library[] = "nvml.dll";
#else
static const char nvml_library[] = "libnvidia-ml.so.1";
#endif

/* Of nvml.h, whose library comes with the driver. */
typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;
typedef struct nvml_device_of_driver *nvml_device;
typedef struct nvml_calls {
    int (*start)(void);
    int (*stop)(void);
    int (*find)(const char *bus, nvml_device *out);
    int (*look)(nvml_device device, nvml_memory *out);
} nvml_calls;

static bool ask(void *library, const char *bus, uint64_t *free_bytes) {
    const nvml_calls call = {.start = (int (*)(void))dynlib_symbol(library, "nvmlInit_v2"),
                             .stop = (int (*)(void))dynlib_symbol(library, "nvmlShutdown"),
                             .find = (int (*)(const char *, nvml_device *))dynlib_symbol(
                                 library, "nvmlDeviceGetHandleByPciBusId_v2"),
                             .look = (int (*)(nvml_device, nvml_memory *))dynlib_symbol(
                                 library, "nvmlDeviceGetMemoryInfo")};
    nvml_device device = NULL;
    nvml_memory memory = {0};
    if (!call.start || !call.stop || !call.find || !call.look || call.start() != 0) return false;
    const bool known = call.find(bus, &device) == 0 && call.look(device, &memory) == 0;
    call.stop();
    if (known) *free_bytes = memory.free;
    return known;
}

static void lower(const char *bus, char name[BUS_TEXT]) {
    size_t i = 0;
    for (; bus[i] && i + 1 < BUS_TEXT; i++) name[i] = (char)tolower((unsigned char)bus[i]);
    name[i] = '\0';
}

uint64_t driver_nvidia_free(const char *bus, uint64_t total) {
    char name[BUS_TEXT];
    uint64_t free_bytes = total;
    void *library = NULL;
    lower(bus, name);
    if (dynlib_open(nvml_library, &library, NULL) != PI_OK) return total;
    const bool known = ask(library, name, &free_bytes);
    dynlib_close(library);
    return known && free_bytes < total ? free_bytes : total;
}

static bool read_number(const char *bus, const char *name, uint64_t *out) {
    char path[128], text[32];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", bus, name);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    const bool there = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    if (there) *out = strtoull(text, NULL, 10);
    return there;
}

uint64_t driver_amd_free(const char *bus, uint64_t total) {
    char name[BUS_TEXT];
    uint64_t used = 0, all = 0;
    lower(bus, name);
    if (!read_number(name, "mem_info_vram_used", &used) ||
        !read_number(name, "mem_info_vram_total", &all) || used > all || all - used > total)
        return total;
    return all - used;
}
