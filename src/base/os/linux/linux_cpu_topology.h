/* linux_cpu_topology.h: counts CPU cores from the files that Linux exposes. The folder is a
 * parameter so that tests can describe other machines. */
#ifndef BASE_LINUX_CPU_TOPOLOGY_H
#define BASE_LINUX_CPU_TOPOLOGY_H

#include "cpu_topology.h"

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

#endif
