/* darwin_cpu_topology.c: cores and caches. The system has neither sets of CPUs for a thread nor
 * NUMA nodes. */
#include <errno.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include "cpu_topology.h"

/* A number from sysctl; 0: the system does not have it. */
static size_t number(const char *name) {
    union {
        uint32_t four;
        uint64_t eight;
    } value = {.eight = 0};
    size_t n = sizeof value;
    if (sysctlbyname(name, &value, &n, NULL, 0) != 0) return 0;
    return n == sizeof value.four ? value.four : (size_t)value.eight;
}

void cpu_set_own(cpu_set *set) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    *set = (cpu_set){0};
    for (long i = 0; i < n && i < CPU_TOPOLOGY_MAX; i++) set->has[i] = true;
    set->has[0] = true;
}

int cpu_set_use(const cpu_set *set) {
    (void)set;
    return ENOSYS;
}

int cpu_count_available(void) {
    cpu_set set;
    cpu_set_own(&set);
    return cpu_set_count(&set);
}

/* perflevel0: the performance cores. */
int cpu_count_physical(void) {
    size_t n = number("hw.perflevel0.physicalcpu");
    if (n == 0) n = number("hw.physicalcpu");
    return n > 0 ? (int)n : 1;
}

/* Apple's CPUs have a level-2 cache per cluster of performance cores; the system does not describe
 * the cache behind it. Intel's CPUs have a level-3 cache. */
size_t cpu_last_cache(void) {
    const size_t usual = (size_t)32 << 20;
    size_t third = number("hw.l3cachesize");
    if (third > 0) return third;
    size_t second = number("hw.perflevel0.l2cachesize");
    size_t sharers = number("hw.perflevel0.cpusperl2");
    if (second == 0 || sharers == 0) return usual;
    size_t n = number("hw.perflevel0.physicalcpu") / sharers;
    return second * (n > 0 ? n : 1);
}

int cpu_nodes(cpu_set *nodes) {
    *nodes = (cpu_set){0};
    return 0;
}

bool cpu_own_node(cpu_set *set) {
    (void)set;
    return false;
}
