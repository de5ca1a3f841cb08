/* driver_images.c: the kernels of a device: PTX, which NVIDIA's driver translates for the GPU and
 * keeps translated (in ~/.nv/ComputeCache). The library has it compressed, an image for each source
 * file and architecture. */
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
enum { OVERLAP_ARCH = 90 }; /* kernels of this and later ones wait by griddepcontrol */
/* Loading what was translated before takes less. */
static const double TRANSLATION_S = 1.0;

/* The newest architecture up to `newest`: PTX runs on GPUs of its architecture and later ones.
 * 0: none. *n: its number of images. */
static int best_arch(int newest, size_t *n) {
    int best = 0;
    *n = 0;
    for (size_t i = 0; i < driver_n_images; i++) {
        const int arch = driver_images[i].arch;
        if (arch > newest || arch < best) continue;
        *n = arch > best ? 1 : *n + 1;
        best = arch;
    }
    return best;
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

/* *result: the driver's. */
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
    *result = status ? DRIVER_OK : v->calls.module_load(out, text, 2, options, values);
    mem_free(text);
    if (*result == DRIVER_OK) return status;
    status = driver_error(v, err, *result, "cannot load kernels");
    return log[0] ? error_prefix(err, status, "%s: %s", image->file, log) : status;
}

/* Loads the images of one architecture. After a second the driver must be translating, which may
 * take a minute: a line says so, then reports of the progress follow. *result: the driver's. */
static pi_status load_modules(driver_vendor *v, const char *gpu, int arch, size_t n,
                              driver_module *modules, int *result, const gpu_host *host,
                              pi_error *err) {
    static const char stage[] = "translating kernels";
    const double start = clock_seconds();
    bool slow = false;
    size_t n_loaded = 0;
    pi_status status = PI_OK;
    for (size_t i = 0; i < driver_n_images && status == PI_OK; i++) {
        if (driver_images[i].arch != arch) continue;
        status = load_module(v, &driver_images[i], &modules[n_loaded++], result, err);
        if (!slow && clock_seconds() - start > TRANSLATION_S) {
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

pi_status driver_load_kernels(driver_vendor *v, int index, const char *gpu, int capability,
                              const gpu_host *host, pi_error *err) {
    driver_slot *slot = &v->slots[index];
    driver_module modules[MAX_FILES];
    size_t n_modules = 0, last = 0;
    int result = DRIVER_OK, arch;
    pi_status status = PI_OK;
    /* An older driver may know only the PTX of older architectures. */
    for (arch = best_arch(capability, &n_modules); arch > 0;
         arch = best_arch(arch - 1, &n_modules)) {
        assert(n_modules <= MAX_FILES);
        status = load_modules(v, gpu, arch, n_modules, modules, &result, host, err);
        if (result != DRIVER_OLD_FOR_PTX) break;
    }
    if (arch == 0 && result == DRIVER_OK)
        return error_set(err, PI_ERR_UNSUPPORTED, "no kernels for this GPU: %s: %s is too old",
                         v->name, gpu);
    if (arch == 0)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "driver too old: %s: it cannot translate the kernels for %s: update it",
                         v->name, gpu);
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
    slot->overlaps = arch >= OVERLAP_ARCH && v->calls.launch_with;
    return PI_OK;
}
