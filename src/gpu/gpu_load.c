/* gpu_load.c: finds and opens backends. A backend's table is used only when its version is
 * GPU_VERSION: layouts of the structs of gpu.h change, and only the version identifies them. */
#include <stdio.h>
#include <string.h>

#include "dynlib.h"
#include "file.h"
#include "gpu.h"
#include "log.h"
#include "mem.h"
#include "os_file.h"
#include "own_library.h"
#include "powerinfer.h"

#if GPU_BUILT_CUDA || GPU_BUILT_HIP
#include "driver_backend.h"
#endif
#if GPU_BUILT_VULKAN
#include "vulkan_backend.h"
#endif

const gpu_backend_row *gpu_backend_at(int i) {
    static const gpu_backend_row rows[] = {
#define ROW(id, name, title, real) {name, title, real, GPU_BUILT_##id},
        PI_BACKENDS(ROW)
#undef ROW
    };
    return i >= 0 && i < (int)(sizeof rows / sizeof *rows) ? &rows[i] : NULL;
}

const gpu_backend_row *gpu_backend_find(const char *name) {
    const gpu_backend_row *row;
    for (int i = 0; (row = gpu_backend_at(i)); i++)
        if (strcmp(row->name, name) == 0) return row;
    return NULL;
}

static void warn(const char *line) {
    log_line(LOG_LEVEL_WARN, "%s", line);
}

const gpu_host *gpu_host_default(void) {
    static const gpu_host host = {.version = GPU_VERSION,
                                  .size = sizeof host,
                                  .alloc = mem_alloc,
                                  .free = mem_free,
                                  .warn = warn};
    return &host;
}

static pi_status open_file(const char *path, const char *name, gpu_library *out, pi_error *err) {
    void *handle = NULL;
    pi_status status = dynlib_open(path, &handle, err);
    if (status) return error_prefix(err, status, "backend %s cannot be loaded", name);
    gpu_entry entry = (gpu_entry)dynlib_symbol(handle, GPU_ENTRY);
    const gpu_backend *b = entry ? entry() : NULL;
    if (!b) {
        status = error_set(err, PI_ERR_UNSUPPORTED, "not a backend: %s: no symbol %s: remove it",
                           path, GPU_ENTRY);
    } else if (b->version != GPU_VERSION || b->size != sizeof *b) {
        status = error_set(err, PI_ERR_UNSUPPORTED,
                           "backend of another version: %s: version %u (%u bytes), this program "
                           "has %d (%zu bytes): install both from the same release",
                           path, b->version, b->size, GPU_VERSION, sizeof *b);
    }
    if (status) {
        dynlib_close(handle);
        return status;
    }
    out->backend = b;
    out->handle = handle;
    return PI_OK;
}

pi_status gpu_library_open(const char *name, const char *folder, gpu_library *out, pi_error *err) {
    char path[OS_PATH_MAX];
    *out = (gpu_library){0};
#if GPU_BUILT_CUDA || GPU_BUILT_HIP /* in this library */
    out->backend = driver_backend(name);
    if (out->backend) return PI_OK;
#endif
#if GPU_BUILT_VULKAN
    if (strcmp(name, "vulkan") == 0) {
        out->backend = vulkan_backend();
        return PI_OK;
    }
#endif
    if (folder) {
        if (own_library_in(folder, name, path, sizeof path)) return open_file(path, name, out, err);
        return error_set(err, PI_ERR_NOT_FOUND, "no backend %s: %.200s: there is no %s", name,
                         folder, file_name(path));
    }
    pi_status status = own_library_find(name, path, sizeof path, err);
    if (status == PI_OK) return open_file(path, name, out, err);
    const gpu_backend_row *row = gpu_backend_find(name);
    if (row && !row->built) return error_set(err, PI_ERR_NOT_FOUND, "built without %s", row->title);
    return error_prefix(err, status, "no backend %s", name);
}

void gpu_library_close(gpu_library *l) {
    dynlib_close(l->handle);
    *l = (gpu_library){0};
}
