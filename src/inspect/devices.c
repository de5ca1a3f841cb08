/* devices.c: the devices that the backends find on this machine. A backend that is missing or has
 * no device is an entry with a reason, not an error: the CPU still works. */
#include <stdio.h>

#include "gpu.h"
#include "powerinfer_tools.h"

typedef struct device_list {
    pi_device *devices;
    size_t capacity, n;
} device_list;

/* The next entry, zeroed except its name; `spare` when the list is full. */
static pi_device *next_entry(device_list *l, pi_device *spare, const char *backend) {
    pi_device *d = l->n < l->capacity ? &l->devices[l->n] : spare;
    l->n++;
    *d = (pi_device){0};
    snprintf(d->backend, sizeof d->backend, "%s", backend);
    return d;
}

static void add_reason(device_list *l, const char *backend, const pi_error *why) {
    pi_device spare;
    pi_device *d = next_entry(l, &spare, backend);
    snprintf(d->reason, sizeof d->reason, "%s", why->message);
}

static void add_device(device_list *l, const gpu_backend *b, int index) {
    pi_device spare;
    gpu_info info;
    pi_error err;
    if (b->describe(index, &info, &err)) {
        add_reason(l, b->name, &err);
        return;
    }
    pi_device *d = next_entry(l, &spare, b->name);
    d->index = index;
    d->available = true;
    d->shared_memory = info.shared_memory;
    snprintf(d->name, sizeof d->name, "%s", info.name);
    snprintf(d->arch, sizeof d->arch, "%s", info.arch);
    d->memory_total = info.memory_total;
    d->memory_free = info.memory_free;
    d->bandwidth = info.bandwidth;
}

pi_status pi_devices(const char *folder, pi_device *devices, size_t capacity, size_t *n_devices,
                     pi_error *err) {
    (void)err; /* errors are in the entries */
    device_list l = {.devices = devices, .capacity = capacity};
    const gpu_backend_row *row;
    for (int i = 0; (row = gpu_backend_at(i)); i++) {
        gpu_library library;
        pi_error why;
        int n = 0;
        pi_status status = gpu_library_open(row->name, folder, &library, &why);
        if (!status) status = library.backend->count(&n, &why);
        if (status) add_reason(&l, row->name, &why);
        for (int index = 0; index < n; index++) add_device(&l, library.backend, index);
        gpu_library_close(&library);
    }
    *n_devices = l.n;
    return PI_OK;
}
