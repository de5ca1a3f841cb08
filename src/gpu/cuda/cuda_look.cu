/* cuda_look.cu: free memory of a device without a context, from the files of AMD's kernel driver.
 * If they are missing, as on integrated GPUs, all memory counts as free: the free memory is queried
 * again when the device is opened. */
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
