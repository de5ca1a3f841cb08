/* os_cpu.h: CPU features, and how threads and memory use CPUs. cpu_topology.h counts cores. */
#ifndef BASE_OS_CPU_H
#define BASE_OS_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu_topology.h"

/* x86: lets this process use the tile registers of AMX; threads created later inherit the
 * permission. False: refused. */
bool os_cpu_allow_tiles(void);
/* ARM: words of feature bits, numbered as in Linux's elf_hwcaps.rst; 0 elsewhere. */
void os_cpu_features(uint32_t words[2]);

/* The CPU's name as the system has it, possibly padded with blanks; "": unknown. */
void os_cpu_name(char *name, size_t n_name);

/* Niceness: -20 (first) to 19 (last), of the calling thread and threads that it creates later.
 * Setting it returns 0 or an error number. */
int os_thread_nice(void);
int os_thread_set_nice(int nice);

/* Spreads memory that is first touched later over these NUMA nodes, page by page, for the calling
 * thread and threads that it creates later. Returns 0 or an error number. */
int os_memory_interleave(const cpu_set *nodes);

#endif
