/* vulkan_cache.c: the driver's pipeline cache in a file, for drivers that do not keep one
 * themselves. The name of the file is a digest of the device, its driver and the program's shaders,
 * so that versions do not replace each other's. The file begins with the digest of the rest,
 * because a driver may not check the data. Errors only cost time: without a file the driver
 * compiles. */
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "mem.h"
#include "sha256.h"
#include "vulkan.h"
#include "vulkan_shaders.h"

enum { MOST_BYTES = 256 << 20 };

void vulkan_cache_name(const vulkan_abilities *can, char *out, size_t n_out) {
    char hex[SHA256_HEX + 1];
    sha256 s;
    sha256_begin(&s);
    sha256_add(&s, can->device_uuid, sizeof can->device_uuid);
    sha256_add(&s, can->properties.pipelineCacheUUID, sizeof can->properties.pipelineCacheUUID);
    sha256_add(&s, &can->properties.driverVersion, sizeof can->properties.driverVersion);
    for (int k = 0; k < VULKAN_KERNEL_COUNT; k++) {
        const vulkan_shader *shader = &vulkan_shaders[k];
        sha256_add(&s, shader->begin, (size_t)(shader->end - shader->begin));
    }
    sha256_end(&s, hex);
    snprintf(out, n_out, "vulkan-%.32s.bin", hex);
}

size_t vulkan_cache_read(vulkan_slot *slot, char **data) {
    char hex[SHA256_HEX + 1];
    size_t n_bytes;
    *data = NULL;
    if (!slot->cache_path[0] ||
        file_read(slot->cache_path, MOST_BYTES, data, &n_bytes, NULL) != PI_OK)
        return 0;
    if (n_bytes > SHA256_HEX) {
        sha256_hex(*data + SHA256_HEX, n_bytes - SHA256_HEX, hex);
        if (memcmp(*data, hex, SHA256_HEX) == 0) {
            memcpy(slot->cached, hex, sizeof slot->cached);
            return n_bytes - SHA256_HEX;
        }
    }
    mem_free(*data);
    *data = NULL;
    return 0;
}

static void write_file(const char *path, const char *hex, const void *data, size_t n_bytes) {
    char folder[VULKAN_PATH_BYTES];
    file_writer *w = NULL;
    snprintf(folder, sizeof folder, "%.*s", (int)file_folder_length(path), path);
    pi_status status = file_create_folders(folder, true, NULL);
    if (status == PI_OK) status = file_writer_open(path, &w, NULL);
    if (status == PI_OK) status = file_writer_write(w, hex, SHA256_HEX, NULL);
    if (status == PI_OK) status = file_writer_write(w, data, n_bytes, NULL);
    if (status == PI_OK)
        file_writer_commit(w, NULL);
    else
        file_writer_abort(w);
}

void vulkan_cache_write(vulkan_slot *slot) {
    char hex[SHA256_HEX + 1];
    size_t n_bytes = 0;
    if (!slot->cache_path[0] || slot->lost ||
        slot->call.GetPipelineCacheData(slot->device, slot->cache, &n_bytes, NULL) != VK_SUCCESS ||
        n_bytes == 0 || n_bytes > MOST_BYTES - SHA256_HEX)
        return;
    void *data = mem_alloc(n_bytes);
    if (data &&
        slot->call.GetPipelineCacheData(slot->device, slot->cache, &n_bytes, data) == VK_SUCCESS) {
        sha256_hex(data, n_bytes, hex);
        if (memcmp(hex, slot->cached, sizeof slot->cached) != 0) {
            write_file(slot->cache_path, hex, data, n_bytes);
            memcpy(slot->cached, hex, sizeof slot->cached);
        }
    }
    mem_free(data);
}
