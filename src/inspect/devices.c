/* devices.c: the devices that the backends find on this machine. A backend that is missing or has
 * no device is an entry with a reason, not an error: the CPU still works. Users attach this list to
 * bug reports, so an entry also has the kernel driver and every call that failed. */
#include <stdio.h>

#include "gpu_presence.h"
#include "place_profile.h"
#include "powerinfer_tools.h"

static const double GIGA = 1e9;

typedef struct device_list {
    pi_device *devices;
    size_t capacity, n;
    const gpu_backend_row *row; /* of the next entries */
    gpu_presence presence;      /* of its GPUs */
    const char *machine;        /* file with measured rates, or NULL */
} device_list;

static void add_failure(pi_device *d, const char *call, const char *error) {
    if (d->n_failures == PI_DEVICE_FAILURES) return;
    pi_device_failure *f = &d->failures[d->n_failures++];
    snprintf(f->call, sizeof f->call, "%s", call);
    snprintf(f->error, sizeof f->error, "%.255s", error);
}

/* The next entry, with the driver and what failed there; `spare` when the list is full. */
static pi_device *next_entry(device_list *l, pi_device *spare) {
    const gpu_presence *p = &l->presence;
    pi_device *d = l->n < l->capacity ? &l->devices[l->n] : spare;
    l->n++;
    *d = (pi_device){0};
    snprintf(d->backend, sizeof d->backend, "%s", l->row->name);
    if (p->driver)
        snprintf(d->driver, sizeof d->driver, "%s%s%s", p->windows ? "Windows" : p->vendor,
                 p->version[0] ? " " : "", p->version);
    for (int i = 0; i < p->n_failures; i++)
        add_failure(d, p->failures[i].call, p->failures[i].error);
    return d;
}

/* The entry of a backend that has no device because of a failed call. */
static void add_reason(device_list *l, const char *call, bool opened, bool named, pi_error *why) {
    pi_device spare;
    pi_device *d = next_entry(l, &spare);
    add_failure(d, call, why->message);
    gpu_presence_explain(&l->presence, l->row, opened, named, why);
    snprintf(d->reason, sizeof d->reason, "%s", why->message);
}

static void add_rates(const char *machine, pi_device *d) {
    place_machine m;
    if (!place_profile_has_gpu(machine, d->name, &m)) return;
    d->measured_stream = m.device[SIDE_GPU].stream_gbps * GIGA;
    d->measured_gather = m.device[SIDE_GPU].gather_gbps * GIGA;
    d->measured_step = m.device[SIDE_GPU].step;
    d->measured_sync = m.sync;
}

static void add_device(device_list *l, const gpu_backend *b, int index) {
    pi_device spare;
    gpu_info info;
    pi_error err;
    char call[64];
    snprintf(call, sizeof call, "describe device %d", index);
    pi_status status = b->describe(index, &info, &err);
    if (status != PI_OK) {
        add_reason(l, call, true, false, &err);
        return;
    }
    pi_device *d = next_entry(l, &spare);
    d->index = index;
    d->available = gpu_device_check(l->row, &info, &err) == PI_OK;
    if (!d->available) {
        snprintf(call, sizeof call, "use device %d", index);
        add_failure(d, call, err.message);
        snprintf(d->reason, sizeof d->reason, "%s", err.message);
    }
    d->shared_memory = info.shared_memory;
    snprintf(d->name, sizeof d->name, "%s", info.name);
    snprintf(d->arch, sizeof d->arch, "%s", info.arch);
    d->memory_total = info.memory_total;
    d->memory_free = info.memory_free;
    d->bandwidth = info.bandwidth;
    add_rates(l->machine, d);
}

pi_status pi_devices(const char *folder, const char *machine, pi_device *devices, size_t capacity,
                     size_t *n_devices, pi_error *err) {
    (void)err; /* errors are in the entries */
    device_list l = {.devices = devices, .capacity = capacity, .machine = machine};
    for (int i = 0; (l.row = gpu_backend_at(i)); i++) {
        gpu_library library;
        pi_error why;
        int n = 0;
        gpu_presence_find("", l.row, &l.presence);
        pi_status status = gpu_library_open(l.row->name, folder, &library, &why);
        const bool opened = status == PI_OK;
        if (opened) status = library.backend->count(&n, &why);
        if (status)
            add_reason(&l, opened ? "count devices" : "open the backend", opened, folder != NULL,
                       &why);
        for (int index = 0; index < n; index++) add_device(&l, library.backend, index);
        gpu_library_close(&library);
    }
    *n_devices = l.n;
    return PI_OK;
}
