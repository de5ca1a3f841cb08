/* linux_cpu_topology.c: counts the cores that are worth one thread each.
 *
 * Token generation is limited by memory bandwidth and by the slowest thread: two threads on one
 * physical core, or one on an efficiency core, make the others wait. The default is therefore one
 * thread per physical performance core. The CPU quota of the control group also limits the count:
 * the kernel stops threads beyond the quota for the rest of each period. */
#include "linux_cpu_topology.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "linux_cgroup.h"

enum { LIST_MAX = 4096 };          /* bytes of a CPU list; one range per word is far less */
enum { TOPOLOGY_PATH_MAX = 1024 }; /* bytes */

static const char devices_folder[] = "/sys/devices";

static bool read_line(const char *path, char *line, int n_line) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(line, n_line, f) != NULL;
    fclose(f);
    return ok;
}

/* The lowest CPU of `allowed` that shares the core of `cpu`; `cpu` itself when unknown. */
static int first_sibling(const char *devices, const cpu_set *allowed, int cpu, cpu_set *siblings) {
    static const char *const names[] = {"core_cpus_list", "thread_siblings_list"};
    char path[TOPOLOGY_PATH_MAX], line[LIST_MAX];
    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof path, "%s/system/cpu/cpu%d/topology/%s", devices, cpu, names[k]);
        *siblings = (cpu_set){0};
        if (!read_line(path, line, sizeof line) || !cpu_set_parse(siblings, line)) continue;
        for (int i = 0; i < cpu; i++) {
            if (siblings->has[i] && allowed->has[i]) return i;
        }
        return cpu;
    }
    return cpu;
}

/* Speed of a core relative to the fastest, at most 1024; 0 where the kernel does not report it (it
 * does on ARM). */
static long capacity(const char *devices, int cpu) {
    char path[TOPOLOGY_PATH_MAX], line[64];
    snprintf(path, sizeof path, "%s/system/cpu/cpu%d/cpu_capacity", devices, cpu);
    return read_line(path, line, sizeof line) ? strtol(line, NULL, 10) : 0;
}

/* Removes efficiency cores, unless no core would remain. On Intel one file lists the performance
 * cores; on ARM each core has a capacity, and cores below half the largest are the efficiency cores
 * (a medium core has about three quarters). */
static void keep_performance_cores(const char *devices, cpu_set *set, cpu_set *scratch) {
    char path[TOPOLOGY_PATH_MAX], line[LIST_MAX];
    *scratch = (cpu_set){0};
    snprintf(path, sizeof path, "%s/cpu_core/cpus", devices);
    if (read_line(path, line, sizeof line) && cpu_set_parse(scratch, line)) {
        int common = 0;
        for (int i = 0; i < CPU_TOPOLOGY_MAX; i++) common += scratch->has[i] && set->has[i];
        for (int i = 0; common && i < CPU_TOPOLOGY_MAX; i++) set->has[i] &= scratch->has[i];
        return;
    }
    long largest = 0;
    for (int i = 0; i < CPU_TOPOLOGY_MAX; i++) {
        if (!set->has[i]) continue;
        long c = capacity(devices, i);
        if (c == 0) return; /* not reported for this core: treat all cores alike */
        if (c > largest) largest = c;
    }
    for (int i = 0; i < CPU_TOPOLOGY_MAX; i++) {
        if (set->has[i] && capacity(devices, i) < largest / 2) set->has[i] = false;
    }
}

int cpu_topology_cores(const char *devices, const cpu_set *allowed) {
    cpu_set set = *allowed, scratch;
    keep_performance_cores(devices, &set, &scratch);
    int n = 0;
    for (int i = 0; i < CPU_TOPOLOGY_MAX; i++) {
        if (set.has[i] && first_sibling(devices, &set, i, &scratch) == i) n++;
    }
    return n ? n : 1;
}

int cpu_topology_nodes(const char *devices, cpu_set *nodes) {
    char path[TOPOLOGY_PATH_MAX], line[LIST_MAX];
    *nodes = (cpu_set){0};
    snprintf(path, sizeof path, "%s/system/node/online", devices);
    return read_line(path, line, sizeof line) && cpu_set_parse(nodes, line) ? cpu_set_count(nodes)
                                                                            : 0;
}

bool cpu_topology_node(const char *devices, int cpu, cpu_set *set) {
    char path[TOPOLOGY_PATH_MAX], line[LIST_MAX];
    cpu_set nodes;
    cpu_topology_nodes(devices, &nodes);
    for (int i = 0; i < CPU_TOPOLOGY_MAX && cpu >= 0; i++) {
        if (!nodes.has[i]) continue;
        *set = (cpu_set){0};
        snprintf(path, sizeof path, "%s/system/node/node%d/cpulist", devices, i);
        if (read_line(path, line, sizeof line) && cpu_set_parse(set, line) && set->has[cpu])
            return true;
    }
    return false;
}

/* Size of the cache `index` as the kernel writes it ("32768K"), and the CPUs that share it. */
static bool read_cache(const char *devices, int cpu, int index, size_t *n_bytes, long *level,
                       cpu_set *sharers) {
    static const char *const names[] = {"level", "type", "size", "shared_cpu_list"};
    char path[TOPOLOGY_PATH_MAX], line[4][LIST_MAX], *unit;
    for (int k = 0; k < 4; k++) {
        snprintf(path, sizeof path, "%s/system/cpu/cpu%d/cache/index%d/%s", devices, cpu, index,
                 names[k]);
        if (!read_line(path, line[k], LIST_MAX)) return false;
    }
    *level = strcmp(line[1], "Instruction\n") == 0 ? 0 : strtol(line[0], NULL, 10);
    *n_bytes = strtoul(line[2], &unit, 10);
    *n_bytes <<= *unit == 'K' ? 10 : *unit == 'M' ? 20 : 0;
    *sharers = (cpu_set){0};
    return cpu_set_parse(sharers, line[3]);
}

size_t cpu_topology_cache(const char *devices, const cpu_set *allowed) {
    enum { MAX_INDEX = 16 };
    size_t total = 0;
    for (int i = 0; i < CPU_TOPOLOGY_MAX; i++) {
        if (!allowed->has[i]) continue;
        size_t last = 0, n_bytes;
        long last_level = 0, level;
        int first = i; /* lowest CPU that shares the last cache */
        cpu_set sharers;
        for (int k = 0; k < MAX_INDEX; k++) {
            if (!read_cache(devices, i, k, &n_bytes, &level, &sharers)) break;
            if (level <= last_level) continue;
            last = n_bytes;
            last_level = level;
            for (first = 0; first < i && !(sharers.has[first] && allowed->has[first]);) first++;
        }
        if (first == i) total += last;
    }
    return total;
}

/* cpu.max is "max 100000" or "150000 100000": microseconds of CPU time per period. */
static void take_quota(const char *folder, void *user) {
    char path[TOPOLOGY_PATH_MAX + 16], line[128], *end;
    int *least = user;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!read_line(path, line, sizeof line)) return;
    long quota = strtol(line, &end, 10);
    long period = end == line ? 0 : strtol(end, NULL, 10);
    if (quota <= 0 || period <= 0) return;
    int granted = quota / period < 1 ? 1 : (int)(quota / period);
    if (!*least || granted < *least) *least = granted;
}

int cpu_topology_quota(const char *root, const char *group) {
    int least = 0;
    cgroup_walk(root, group, take_quota, &least);
    return least;
}

/* Version 2 groups only: distributions no longer ship version 1. */
static int own_quota(void) {
    int least = 0;
    cgroup_walk_own(NULL, take_quota, &least);
    return least;
}

void cpu_set_own(cpu_set *set) {
    *set = (cpu_set){0};
    cpu_set_t *mask = CPU_ALLOC(CPU_TOPOLOGY_MAX);
    size_t n_mask = CPU_ALLOC_SIZE(CPU_TOPOLOGY_MAX);
    if (mask && sched_getaffinity(0, n_mask, mask) == 0) {
        for (int i = 0; i < CPU_TOPOLOGY_MAX; i++) {
            set->has[i] = CPU_ISSET_S((size_t)i, n_mask, mask) != 0;
        }
    }
    CPU_FREE(mask);
    if (cpu_set_count(set) > 0) return;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    for (long i = 0; i < n && i < CPU_TOPOLOGY_MAX; i++) set->has[i] = true;
    set->has[0] = true;
}

int cpu_set_use(const cpu_set *set) {
    cpu_set_t *mask = CPU_ALLOC(CPU_TOPOLOGY_MAX);
    size_t n_mask = CPU_ALLOC_SIZE(CPU_TOPOLOGY_MAX);
    if (!mask) return ENOMEM;
    CPU_ZERO_S(n_mask, mask);
    for (int i = 0; i < CPU_TOPOLOGY_MAX; i++) {
        if (set->has[i]) CPU_SET_S((size_t)i, n_mask, mask);
    }
    int problem = sched_setaffinity(0, n_mask, mask) == 0 ? 0 : errno;
    CPU_FREE(mask);
    return problem;
}

size_t cpu_last_cache(void) {
    const size_t usual = (size_t)32 << 20;
    cpu_set set;
    cpu_set_own(&set);
    size_t n_bytes = cpu_topology_cache(devices_folder, &set);
    return n_bytes ? n_bytes : usual;
}

static int cap(int n, int quota) {
    return quota && quota < n ? quota : n;
}

int cpu_count_available(void) {
    cpu_set set;
    cpu_set_own(&set);
    return cap(cpu_set_count(&set), own_quota());
}

int cpu_count_physical(void) {
    cpu_set set;
    cpu_set_own(&set);
    return cap(cpu_topology_cores(devices_folder, &set), own_quota());
}

int cpu_nodes(cpu_set *nodes) {
    return cpu_topology_nodes(devices_folder, nodes);
}

bool cpu_own_node(cpu_set *set) {
    return cpu_topology_node(devices_folder, sched_getcpu(), set);
}
