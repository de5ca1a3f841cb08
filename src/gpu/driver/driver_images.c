/* driver_images.c: the kernels of a device: PTX, which NVIDIA's driver translates for the GPU and
 * keeps translated (in ~/.nv/ComputeCache), or AMD's code objects. The library has them compressed,
 * an image for each source file and target. */
#include "driver_images.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "clock.h"
#include "driver.h"
#include "log.h"
#include "mem.h"

enum { MAX_FILES = 64, NAME_BYTES = 512 };
/* CUjit_option: where the translator says what is wrong. */
enum { JIT_ERROR_LOG = 5, JIT_ERROR_LOG_BYTES = 6, LOG_BYTES = 400 };
enum { OVERLAP_ARCH = 90 }; /* PTX of this and later ones waits by griddepcontrol */
/* Loading what was translated before takes less. */
static const double TRANSLATION_S = 1.0;

static int capability_of(const gpu_info *info) {
    return 10 * info->capability_major + info->capability_minor;
}

/* The target whose images a device gets: of PTX the newest one that runs on it, of a capability up
 * to `newest`. NULL: none. */
static const driver_image *best_target(const driver_vendor *v, const gpu_info *info, int newest) {
    const size_t n_name = strcspn(info->arch, ":"); /* "gfx90a:sramecc+:xnack-" */
    const driver_image *best = NULL;
    for (size_t i = 0; i < driver_n_images; i++) {
        const driver_image *image = &driver_images[i];
        if (strcmp(image->vendor, v->name) != 0) continue;
        if (v->amd && strlen(image->target) == n_name &&
            strncmp(image->target, info->arch, n_name) == 0)
            return image;
        if (!v->amd && image->capability <= newest &&
            (!best || image->capability > best->capability))
            best = image;
    }
    return best;
}

bool driver_image_targets(const char *vendor, char text[DRIVER_TARGETS_TEXT]) {
    size_t n = 0;
    const char *file = NULL; /* every target has this one */
    text[0] = '\0';
    for (size_t i = 0; i < driver_n_images; i++) {
        const driver_image *image = &driver_images[i];
        if (strcmp(image->vendor, vendor) != 0) continue;
        if (!file) file = image->file;
        if (strcmp(image->file, file) != 0) continue;
        if (n + strlen(image->target) + 2 > DRIVER_TARGETS_TEXT) break;
        n += (size_t)snprintf(text + n, DRIVER_TARGETS_TEXT - n, "%s%s", n ? "," : "",
                              image->target);
    }
    return n > 0;
}

/* Decompresses an image, whose text has n_text bytes. */
static pi_status decompress(const driver_image *image, uint8_t *text, size_t n_text,
                            pi_error *err) {
    enum { GZIP = 16 + MAX_WBITS };
    z_stream z = {.next_in = (z_const Bytef *)(uintptr_t)image->bytes,
                  .avail_in = (uInt)(image->end - image->bytes),
                  .next_out = text,
                  .avail_out = (uInt)n_text};
    if (inflateInit2(&z, GZIP) != Z_OK) return error_nomem(err, n_text, image->file);
    const int e = inflate(&z, Z_FINISH);
    inflateEnd(&z);
    if (e == Z_STREAM_END && z.avail_out == 0) return PI_OK;
    return error_set(err, PI_ERR_FORMAT, "damaged kernels: %s: install the program again",
                     image->file);
}

/* HIP reads a code object also later, when a function is looked up: it stays in memory, as the
 * module does. *result: the driver's. */
static pi_status load_module(driver_vendor *v, const driver_image *image, driver_module *out,
                             int *result, pi_error *err) {
    const uint8_t *size = image->end - 4;
    const size_t n_text = size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16 |
                          (size_t)size[3] << 24;
    char log[LOG_BYTES] = "";
    int options[] = {JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    uint8_t *text = mem_alloc(n_text + 1);
    if (!text) return error_nomem(err, n_text + 1, image->file);
    text[n_text] = '\0';
    pi_status status = decompress(image, text, n_text, err);
    *result = status   ? DRIVER_OK
              : v->amd ? v->calls.module_load(out, text, 0, NULL, NULL)
                       : v->calls.module_load(out, text, 2, options, values);
    if (!v->amd || status || *result != DRIVER_OK) mem_free(text);
    if (*result == DRIVER_OK) return status;
    status = driver_error(v, err, *result, "cannot load kernels");
    return log[0] ? error_prefix(err, status, "%s: %s", image->file, log) : status;
}

/* Loads the images of one target. After a second NVIDIA's driver must be translating, which may
 * take a minute: a line says so, then reports of the progress follow. *result: the driver's. */
static pi_status load_modules(driver_vendor *v, const driver_image *best, const char *gpu,
                              driver_module modules[MAX_FILES], size_t *n_modules, int *result,
                              const gpu_host *host, pi_error *err) {
    static const char stage[] = "translating kernels";
    const double start = clock_seconds();
    bool slow = false;
    size_t n = 0, n_loaded = 0;
    pi_status status = PI_OK;
    for (size_t i = 0; i < driver_n_images; i++)
        n += strcmp(driver_images[i].target, best->target) == 0; /* vendors differ */
    assert(n <= MAX_FILES);
    for (size_t i = 0; i < driver_n_images && status == PI_OK; i++) {
        if (strcmp(driver_images[i].target, best->target) != 0) continue;
        status = load_module(v, &driver_images[i], &modules[n_loaded++], result, err);
        if (!slow && !v->amd && clock_seconds() - start > TRANSLATION_S) {
            char line[160];
            snprintf(line, sizeof line,
                     "the driver translates the kernels for %s, once: this start takes longer",
                     gpu);
            host->warn(line);
            slow = true;
        }
        if (slow && n_loaded < n) log_progress(stage, (double)n_loaded / (double)n);
    }
    if (slow) log_progress(stage, 1);
    *n_modules = n_loaded;
    return status;
}

/* "_ZL26__device_stub__norm_kernel8gpu_norm" is the host's function of the kernel
 * "_ZL11norm_kernel8gpu_norm": the mark is a part of the name that the number counts. */
static bool kernel_name(const char *host_name, char name[NAME_BYTES]) {
    static const char mark[] = "__device_stub__";
    const char *at = strstr(host_name, mark);
    size_t n_prefix = at ? (size_t)(at - host_name) : 0;
    while (n_prefix > 0 && host_name[n_prefix - 1] >= '0' && host_name[n_prefix - 1] <= '9')
        n_prefix--;
    if (!at) return false;
    const int n = snprintf(name, NAME_BYTES, "%.*s%ld%s", (int)n_prefix, host_name,
                           strtol(host_name + n_prefix, NULL, 10) - (long)strlen(mark),
                           at + strlen(mark));
    return n > 0 && n < NAME_BYTES;
}

/* Kernels of a file follow each other on the list: the module of the last one is tried first. */
static pi_status find_function(driver_vendor *v, const driver_kernel *k,
                               const driver_module *modules, size_t n_modules, size_t *last,
                               driver_function *out, pi_error *err) {
    char name[NAME_BYTES];
    int e = DRIVER_NOT_FOUND;
    if (!kernel_name(k->host_name, name))
        return error_set(err, PI_ERR_DEVICE, "not a kernel: %s", k->host_name);
    for (size_t i = 0; i < n_modules && e == DRIVER_NOT_FOUND; i++) {
        const size_t at = (*last + i) % n_modules;
        e = v->calls.module_function(out, modules[at], name);
        if (e == DRIVER_OK) *last = at;
    }
    if (e == DRIVER_OK) return PI_OK;
    const pi_status status = driver_error(v, err, e, "cannot load a kernel");
    return error_prefix(err, status, "%s", name);
}

bool driver_overlaps(const driver_vendor *v, const gpu_info *info) {
    const driver_image *best = best_target(v, info, capability_of(info));
    return best && best->capability >= OVERLAP_ARCH && v->calls.launch_with;
}

pi_status driver_load_kernels(driver_vendor *v, int index, const gpu_info *info,
                              const gpu_host *host, pi_error *err) {
    driver_slot *slot = &v->slots[index];
    driver_module modules[MAX_FILES];
    size_t n_modules = 0, last = 0;
    int newest = capability_of(info), result = DRIVER_OK;
    const driver_image *best;
    pi_status status = PI_OK;
    /* An older driver may know only the PTX of older architectures. */
    while ((best = best_target(v, info, newest)) != NULL) {
        status = load_modules(v, best, info->arch, modules, &n_modules, &result, host, err);
        if (v->amd || result != DRIVER_OLD_FOR_PTX) break;
        newest = best->capability - 1;
    }
    if (!best && result == DRIVER_OK) {
        char targets[DRIVER_TARGETS_TEXT];
        driver_image_targets(v->name, targets);
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "no kernels for this GPU: %s: %s: this build has them for %s", v->name,
                         info->arch, targets);
    }
    if (!best)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "driver too old: %s: it cannot translate the kernels for %s: update it",
                         v->name, info->arch);
    const size_t n = driver_kernels ? driver_kernels->number + 1 : 0;
    driver_function *functions = status ? NULL : mem_alloc(n * sizeof *functions);
    if (!status && !functions) status = error_nomem(err, n * sizeof *functions, "kernels");
    for (const driver_kernel *k = driver_kernels; k && status == PI_OK; k = k->next)
        status = find_function(v, k, modules, n_modules, &last, &functions[k->number], err);
    if (status) {
        mem_free(functions);
        return status;
    }
    slot->functions = functions;
    slot->overlaps = best->capability >= OVERLAP_ARCH && v->calls.launch_with;
    return PI_OK;
}
