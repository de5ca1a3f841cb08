/* cpu_topology.h: sets of CPUs, and how many cores and how much cache this process can use. */
#ifndef BASE_CPU_TOPOLOGY_H
#define BASE_CPU_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CPU_TOPOLOGY_MAX = 4096 }; /* logical CPUs; NR_CPUS of large Linux kernels is 8192 at most */

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
/* Restricts the calling thread, and threads it creates later, to `set`. 0 or an error number. */
int cpu_set_use(const cpu_set *set);

/* Logical CPUs that this process may use, limited by its quota; at least 1. */
int cpu_count_available(void);
/* Physical cores this process may use (affinity respected, SMT siblings counted once; on hybrid
 * CPUs the performance cores only). At least 1. */
int cpu_count_physical(void);
/* Last-level cache of this process's CPUs, in bytes; a common minimum when nothing is known. */
size_t cpu_last_cache(void);

/* Number of NUMA nodes that are online, and which; 0: the system does not report them. */
int cpu_nodes(cpu_set *nodes);
/* CPUs of the calling thread's NUMA node; false when there are no nodes. */
bool cpu_own_node(cpu_set *set);

#endif
