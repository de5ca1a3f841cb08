/* linux_memory_room.h: the limits of the machine and of its control groups. Paths are parameters so
 * that tests can describe other machines. All results are bytes; UINT64_MAX: no known limit. */
#ifndef BASE_LINUX_MEMORY_ROOM_H
#define BASE_LINUX_MEMORY_ROOM_H

#include <stdint.h>

/* MemAvailable of the file `meminfo` (/proc/meminfo). */
uint64_t memory_room_machine(const char *meminfo);
/* Limit minus usage of a group ("/a/b") below `root`; the minimum over the group and its parents.
 * Page cache counts as free because the kernel can reclaim it. The files in the folder distinguish
 * version 2 groups from version 1 groups (root: ".../memory"). */
uint64_t memory_room_group(const char *root, const char *group);

#endif
