/* memory_room.h: memory that this process can still take before a limit stops or kills it: of the
 * machine, of the control groups it is in, and its own (ulimit). Paths are parameters so that tests
 * can describe machines they do not run on. All results are bytes; UINT64_MAX: no limit is known.
 */
#ifndef BASE_MEMORY_ROOM_H
#define BASE_MEMORY_ROOM_H

#include <stdint.h>

/* MemAvailable of the file `meminfo` (/proc/meminfo). */
uint64_t memory_room_machine(const char *meminfo);
/* Limit less usage of a group ("/a/b") below `root`, page cache counted as free as the kernel gives
 * it back; the least of it and the groups above. Version 2 groups and version 1 ones (root:
 * ".../memory") are told apart by their files. */
uint64_t memory_room_group(const char *root, const char *group);
/* What RLIMIT_AS and RLIMIT_DATA leave, by the sizes in the file `statm` (/proc/self/statm). */
uint64_t memory_room_process(const char *statm);

/* The least of the three, for this process. */
uint64_t memory_room(void);

#endif
