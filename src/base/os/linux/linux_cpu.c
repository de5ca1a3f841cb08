/* linux_cpu.c: CPU features, scheduling and NUMA policy. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os_cpu.h"

/* Linux lets a process use tile registers only after it requested them, because they grow the state
 * of every thread by 8 KiB (Documentation/arch/x86/xstate.rst). */
bool os_cpu_allow_tiles(void) {
#ifdef SYS_arch_prctl
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

void os_cpu_features(uint32_t words[2]) {
#ifdef __aarch64__
    words[0] = (uint32_t)getauxval(AT_HWCAP);
    words[1] = (uint32_t)getauxval(AT_HWCAP2);
#else
    words[0] = words[1] = 0;
#endif
}

/* Finds the first line of a file that starts with `key` and copies what follows its colon; with an
 * empty key it copies the first line. */
static void name_from_file(const char *path, const char *key, char *name, size_t n_name) {
    FILE *f = fopen(path, "re");
    if (!f) return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        const char *colon = *key ? strchr(line, ':') : NULL;
        snprintf(name, n_name, "%.*s", (int)n_name - 1, colon ? colon + 1 : line);
        break;
    }
    fclose(f);
}

void os_cpu_name(char *name, size_t n_name) {
    static const char *const sources[][2] = {
        {"/proc/cpuinfo", "model name"},
        {"/proc/cpuinfo", "Hardware"},
        {"/proc/device-tree/model", ""},
    };
    name[0] = '\0';
    for (size_t i = 0; i < sizeof sources / sizeof sources[0] && !name[strspn(name, " \t\n")]; i++)
        name_from_file(sources[i][0], sources[i][1], name, n_name);
}

/* On Linux these two are properties of a thread. */
int os_thread_nice(void) {
    return getpriority(PRIO_PROCESS, 0);
}

int os_thread_set_nice(int nice) {
    return setpriority(PRIO_PROCESS, 0, nice) == 0 ? 0 : errno;
}

int os_memory_interleave(const cpu_set *nodes) {
    enum { INTERLEAVE = 3, NODES = 1024, BITS = 64 }; /* MPOL_INTERLEAVE of linux/mempolicy.h */
    uint64_t mask[NODES / BITS] = {0};
    for (int i = 0; i < NODES; i++)
        if (nodes->has[i]) mask[i / BITS] |= UINT64_C(1) << (i % BITS);
    long rc = syscall(SYS_set_mempolicy, INTERLEAVE, mask, (unsigned long)NODES);
    return rc == 0 ? 0 : errno;
}
