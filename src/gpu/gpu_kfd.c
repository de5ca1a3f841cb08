/* gpu_kfd.c: see gpu_kfd.h. A node's file `properties` has a line "gfx_target_version V", where V
 * is 10000 * major + 100 * minor + stepping, 0 for a CPU; "gfx90a" is 9, 0, 10. Nodes are numbered
 * from 0 on; the runtime numbers GPUs in their order. */
#include "gpu_kfd.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "os_file.h"

enum { NAME_BYTES = 32 };

static bool is_target(const char *targets, const char *name) {
    for (const char *at = targets; *at;) {
        size_t word = strcspn(at, ", "), own = strcspn(at, ":, ");
        if (own == strlen(name) && strncmp(at, name, own) == 0) return true;
        at += word;
        at += strspn(at, ", ");
    }
    return false;
}

/* gfx_target_version of a node; 0: a CPU. False: there is no such node. */
static bool version_of(const char *folder, int node, unsigned long *version) {
    char path[OS_PATH_MAX], line[256];
    unsigned long value;
    int n = snprintf(path, sizeof path, "%s/%d/properties", folder, node);
    FILE *file = n > 0 && (size_t)n < sizeof path ? fopen(path, "r") : NULL;
    *version = 0;
    if (!file) return false;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "gfx_target_version %lu", &value) == 1) *version = value;
    fclose(file);
    return true;
}

pi_status gpu_kfd_check(const char *folder, const char *targets, char visible[GPU_KFD_VISIBLE],
                        pi_error *err) {
    char missing[NAME_BYTES] = "";
    size_t n_text = 0;
    unsigned long v;
    int n = 0;
    visible[0] = '\0';
    for (int node = 0; version_of(folder, node, &v); node++) {
        char name[NAME_BYTES];
        if (v == 0) continue;
        snprintf(name, sizeof name, "gfx%lu%lx%lx", v / 10000, v / 100 % 100, v % 100);
        if (!is_target(targets, name))
            memcpy(missing, name, sizeof name);
        else if (n_text + 8 < GPU_KFD_VISIBLE)
            n_text += (size_t)snprintf(visible + n_text, GPU_KFD_VISIBLE - n_text, "%s%d",
                                       n_text ? "," : "", n);
        n++;
    }
    if (missing[0] && !visible[0])
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "no code for this GPU: %s: the backend was built for %.200s: build it for "
                         "a GPU of this machine",
                         missing, targets);
    if (!missing[0]) visible[0] = '\0';
    return PI_OK;
}

int gpu_kfd_count(const char *folder) {
    unsigned long v;
    int n = 0, node = 0;
    for (; version_of(folder, node, &v); node++) n += v > 0;
    return node > 0 ? n : -1;
}
