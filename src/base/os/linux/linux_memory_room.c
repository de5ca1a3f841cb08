/* linux_memory_room.c: memory limits from the files that Linux exposes. A file that cannot be read
 * imposes no limit. */
#include "memory_room.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "linux_cgroup.h"
#include "linux_memory_room.h"

enum { ROOM_PATH_MAX = 1024, ROOM_LINE_MAX = 1024 }; /* bytes */

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t less(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

/* The number after `key` and white space (or a colon), in a file of such lines. */
static bool read_key(const char *path, const char *key, uint64_t *out) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    char line[ROOM_LINE_MAX];
    size_t n = strlen(key);
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n) != 0 || !strchr(": \t", line[n])) continue;
        *out = strtoull(line + n + 1, NULL, 10);
        found = true;
    }
    fclose(f);
    return found;
}

/* Reads a file of one number; false for "max". */
static bool read_number(const char *folder, const char *name, uint64_t *out) {
    char path[ROOM_PATH_MAX + 64], line[ROOM_LINE_MAX], *end;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    if (!ok) return false;
    *out = strtoull(line, &end, 10);
    return end != line;
}

uint64_t memory_room_machine(const char *meminfo) {
    uint64_t kib;
    return read_key(meminfo, "MemAvailable", &kib) && kib < UINT64_MAX / 1024 ? kib * 1024
                                                                              : UINT64_MAX;
}

static uint64_t room_of(const char *folder) {
    char stat[ROOM_PATH_MAX + 64];
    uint64_t limit, usage, cache = 0;
    if (read_number(folder, "memory.max", &limit)) {
        if (!read_number(folder, "memory.current", &usage)) return UINT64_MAX;
    } else if (!read_number(folder, "memory.limit_in_bytes", &limit) ||
               !read_number(folder, "memory.usage_in_bytes", &usage)) {
        return UINT64_MAX;
    }
    snprintf(stat, sizeof stat, "%s/memory.stat", folder);
    uint64_t active = 0, inactive = 0; /* bytes of file pages, without shared memory */
    if (read_key(stat, "total_active_file", &active) &&
        read_key(stat, "total_inactive_file", &inactive)) /* version 1, including child groups */
        cache = active + inactive;
    else if (read_key(stat, "active_file", &active) && read_key(stat, "inactive_file", &inactive))
        cache = active + inactive;
    return less(limit, less(usage, cache));
}

static void take_room(const char *folder, void *user) {
    uint64_t *room = user;
    *room = least(*room, room_of(folder));
}

uint64_t memory_room_group(const char *root, const char *group) {
    uint64_t room = UINT64_MAX;
    cgroup_walk(root, group, take_room, &room);
    return room;
}

/* Memory left by RLIMIT_AS and RLIMIT_DATA. */
static uint64_t process_room(void) {
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f) return UINT64_MAX;
    /* pages: size resident shared text lib data dirty */
    unsigned long long size, resident, shared, text, lib, data;
    int n = fscanf(f, "%llu %llu %llu %llu %llu %llu", &size, &resident, &shared, &text, &lib,
                   &data);
    fclose(f);
    if (n != 6) return UINT64_MAX;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), room = UINT64_MAX;
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        room = least(room, less(limit.rlim_cur, size * page));
    if (getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        room = least(room, less(limit.rlim_cur, data * page));
    return room;
}

/* The minimum of the three. */
uint64_t memory_room(void) {
    uint64_t room = memory_room_machine("/proc/meminfo");
    cgroup_walk_own("memory", take_room, &room);
    return least(room, process_room());
}
