/* cpu_topology.h: counts CPU cores from the files that Linux exposes. The folder is a parameter so
 * that tests can describe other machines. */
#ifndef BASE_CPU_TOPOLOGY_H
#define BASE_CPU_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CPU_TOPOLOGY_MAX = 4096 }; /* logical CPUs; NR_CPUS of large kernels is 8192 at most */

typedef struct cpu_set {
    bool has[CPU_TOPOLOGY_MAX];
} cpu_set;

/* Adds the CPUs of a list such as "0-3,8,10-11"; false when it is malformed. */
bool cpu_set_parse(cpu_set *set, const char *list);
/* Adds the CPUs of a hexadecimal mask, "0xff00": bit i is CPU i. False when malformed or 0. */
bool cpu_set_parse_mask(cpu_set *set, const char *mask);
int cpu_set_count(const cpu_set *set);
/* CPUs that the calling thread may use. */
void cpu_set_own(cpu_set *set);
/* Restricts the calling thread, and threads it creates later, to `set`. Returns 0 or an error
 * number. */
int cpu_set_use(const cpu_set *set);

/* Physical performance cores among `allowed`, described by the folder `devices` (/sys/devices).
 * Counts every allowed CPU where the description is missing. At least 1. */
int cpu_topology_cores(const char *devices, const cpu_set *allowed);

/* Number of NUMA nodes that are online; 0: the system does not report them. */
int cpu_topology_nodes(const char *devices, cpu_set *nodes);
/* CPUs of the NUMA node of `cpu`; false when there are no nodes. */
bool cpu_topology_node(const char *devices, int cpu, cpu_set *set);

/* CPU quota of the group `group` ("/a/b") below `root` (/sys/fs/cgroup) and of its parents, in CPUs
 * rounded down, at least 1; 0: no limit. */
int cpu_topology_quota(const char *root, const char *group);

/* Total bytes of last-level cache of the CPUs in `allowed`; 0: not described. */
size_t cpu_topology_cache(const char *devices, const cpu_set *allowed);

/* Last-level cache of this process's CPUs, in bytes; a common minimum when nothing is known. */
size_t cpu_last_cache(void);

/* Logical CPUs that this process may use, limited by its quota; at least 1. */
int cpu_count_available(void);
/* Physical cores this process may use (affinity respected, SMT siblings counted once; on hybrid
 * CPUs the performance cores only). At least 1. */
int cpu_count_physical(void);

#endif
