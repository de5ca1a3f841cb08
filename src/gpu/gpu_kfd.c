/* gpu_kfd.c: see gpu_kfd.h. A node's file `properties` has a line "gfx_target_version V", where V
 * is 10000 * major + 100 * minor + stepping, 0 for a CPU; "gfx90a" is 9, 0, 10. */
#include "gpu_kfd.h"

#include <inttypes.h>
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

/* gfx_target_version of a node; 0: no such file, or a CPU. */
static unsigned long version_of(const char *folder, const char *node) {
    char path[OS_PATH_MAX], line[256];
    unsigned long version = 0, value;
    int n = snprintf(path, sizeof path, "%s/%s/properties", folder, node);
    FILE *file = n > 0 && (size_t)n < sizeof path ? fopen(path, "r") : NULL;
    if (!file) return 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "gfx_target_version %lu", &value) == 1) version = value;
    fclose(file);
    return version;
}

pi_status gpu_kfd_check(const char *folder, const char *targets, pi_error *err) {
    os_folder *nodes = os_folder_open(folder);
    char missing[NAME_BYTES] = "";
    if (!nodes) return PI_OK;
    for (const char *node; (node = os_folder_next(nodes)) && !missing[0];) {
        char name[NAME_BYTES];
        unsigned long v = node[0] == '.' ? 0 : version_of(folder, node);
        if (v == 0) continue;
        snprintf(name, sizeof name, "gfx%lu%lx%lx", v / 10000, v / 100 % 100, v % 100);
        if (!is_target(targets, name)) memcpy(missing, name, sizeof name);
    }
    os_folder_close(nodes);
    if (!missing[0]) return PI_OK;
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "no code for this GPU: %s: the backend was built for %.200s: build it for all "
                     "GPUs of this machine",
                     missing, targets);
}
