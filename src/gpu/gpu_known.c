/* gpu_known.c: see gpu_known.h. */
#include "gpu_known.h"

#include <string.h>

#include "os_thread.h"

enum { MAX_KNOWN = 64 };

static struct {
    os_mutex mutex;
    struct {
        const char *backend; /* a row's name (gpu_backend_at) */
        int index;
        gpu_known known;
    } entries[MAX_KNOWN];
    int n;
    gpu_known spare; /* of devices beyond MAX_KNOWN, and of backends that are no row: not kept */
} table;

static void make_mutex(void) {
    os_mutex_init(&table.mutex);
}

gpu_known *gpu_known_lock(const char *backend, int index) {
    static os_once once;
    os_once_run(&once, make_mutex);
    os_mutex_lock(&table.mutex);
    for (int i = 0; i < table.n; i++)
        if (table.entries[i].index == index && strcmp(table.entries[i].backend, backend) == 0)
            return &table.entries[i].known;
    const gpu_backend_row *row = gpu_backend_find(backend);
    table.spare = (gpu_known){0};
    if (!row || table.n == MAX_KNOWN) return &table.spare;
    table.entries[table.n].backend = row->name;
    table.entries[table.n].index = index;
    return &table.entries[table.n++].known;
}

void gpu_known_unlock(void) {
    os_mutex_unlock(&table.mutex);
}
