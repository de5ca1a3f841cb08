/* cuda_look.cu: free memory of a device without a context: from NVIDIA's management library (NVML),
 * opened at run time, or from the files of AMD's kernel driver. Where neither reports it, as on
 * integrated GPUs, all memory counts as free: opening the device queries the free memory again. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_backend.h"

enum { BUS_TEXT = 32 };

static bool read_number(const char *bus, const char *name, uint64_t *out) {
    char path[128], text[32];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", bus, name);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool there = fgets(text, sizeof text, file) != nullptr;
    fclose(file);
    if (there) *out = strtoull(text, nullptr, 10);
    return there;
}

static bool ask(const char *bus, uint64_t *free_bytes) {
    uint64_t used = 0, total = 0;
    if (!read_number(bus, "mem_info_vram_used", &used) ||
        !read_number(bus, "mem_info_vram_total", &total) || used > total)
        return false;
    *free_bytes = total - used;
    return true;
}
#else
#include <dlfcn.h>

/* From nvml.h; its library comes with the driver. */
struct nvml_memory {
    unsigned long long total, free, used;
};
typedef struct nvml_device_of_driver *nvml_device;
typedef int nvml_plain(void);
typedef int nvml_find(const char *bus, nvml_device *out);
typedef int nvml_look(nvml_device device, nvml_memory *out);

template <class F> static F *function(void *library, const char *name) {
    return reinterpret_cast<F *>(dlsym(library, name));
}

static bool ask_library(void *library, const char *bus, uint64_t *free_bytes) {
    nvml_plain *start = function<nvml_plain>(library, "nvmlInit_v2");
    nvml_plain *stop = function<nvml_plain>(library, "nvmlShutdown");
    nvml_find *find = function<nvml_find>(library, "nvmlDeviceGetHandleByPciBusId_v2");
    nvml_look *look = function<nvml_look>(library, "nvmlDeviceGetMemoryInfo");
    nvml_device device = nullptr;
    nvml_memory memory = {};
    if (!start || !stop || !find || !look || start() != 0) return false;
    bool known = find(bus, &device) == 0 && look(device, &memory) == 0;
    stop();
    if (known) *free_bytes = memory.free;
    return known;
}

static bool ask(const char *bus, uint64_t *free_bytes) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    bool known = ask_library(library, bus, free_bytes);
    dlclose(library);
    return known;
}
#endif

uint64_t cuda_look_free(int index, uint64_t total) {
    char bus[BUS_TEXT];
    uint64_t free_bytes = total;
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, index) != cudaSuccess) {
        (void)cudaGetLastError();
        return total;
    }
    for (char *c = bus; *c; c++) *c = static_cast<char>(tolower(static_cast<unsigned char>(*c)));
    return ask(bus, &free_bytes) && free_bytes < total ? free_bytes : total;
}
