/* driver_stream.c: streams, events, copies, launches and programs. Programs are graphs captured
 * from a stream, in the mode that restricts no other thread.
 *
 * A driver may load a kernel at its first use. For that it may wait until the device is idle, or
 * end a capture. So opening a device gets all functions of its kernels (driver_images.c), which
 * loads them: then a program that waits for the host never waits for the loading of a kernel, of
 * any context. */
#include <assert.h>
#include <string.h>

#include "driver.h"

struct gpu_event {
    gpu_device *device;
    driver_event event;
    bool recorded;
};

struct gpu_program {
    gpu_device *device;
    driver_graph graph;
    driver_program exec;
};

/* ---- streams --------------------------------------------------------------------------------- */

pi_status driver_stream_create(gpu_device *d, gpu_stream **out, pi_error *err) {
    if (!driver_use(d)) return driver_status(d, err);
    gpu_stream *s = d->host->alloc(sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, "a stream");
    memset(s, 0, sizeof *s);
    s->device = d;
    const int e = d->calls->stream_create(&s->stream, DRIVER_STREAM_APART);
    if (e != DRIVER_OK) {
        d->host->free(s);
        return driver_error(d->vendor, err, e, "cannot create a stream");
    }
    *out = s;
    return PI_OK;
}

void driver_stream_destroy(gpu_stream *s) {
    if (!s) return;
    if (driver_use(s->device)) {
        if (s->recording) {
            driver_graph graph = NULL;
            if (s->device->calls->capture_end(s->stream, &graph) == DRIVER_OK && graph)
                s->device->calls->graph_destroy(graph);
        }
        s->device->calls->stream_sync(s->stream);
        s->device->calls->stream_destroy(s->stream);
    }
    gpu_late_end(&s->busy);
    s->device->host->free(s);
}

pi_status driver_stream_sync(gpu_stream *s, pi_error *err) {
    if (driver_use(s->device))
        driver_stick(s->device, s->device->calls->stream_sync(s->stream),
                     "work on the device failed");
    gpu_late_end(&s->busy);
    return driver_status(s->device, err);
}

/* ---- events ---------------------------------------------------------------------------------- */

pi_status driver_event_create(gpu_device *d, gpu_event **out, pi_error *err) {
    if (!driver_use(d)) return driver_status(d, err);
    gpu_event *e = d->host->alloc(sizeof *e);
    if (!e) return error_nomem(err, sizeof *e, "an event");
    memset(e, 0, sizeof *e);
    e->device = d;
    const int rc = d->calls->event_create(&e->event, 0);
    if (rc != DRIVER_OK) {
        d->host->free(e);
        return driver_error(d->vendor, err, rc, "cannot create an event");
    }
    *out = e;
    return PI_OK;
}

void driver_event_destroy(gpu_event *e) {
    if (!e) return;
    if (driver_use(e->device)) e->device->calls->event_destroy(e->event);
    e->device->host->free(e);
}

void driver_event_record(gpu_stream *s, gpu_event *e) {
    if (!driver_use(s->device)) return;
    assert(!s->recording);
    e->recorded = true;
    driver_stick(s->device, s->device->calls->event_record(e->event, s->stream),
                 "cannot record an event");
}

bool driver_event_done(gpu_event *e) {
    if (!driver_use(e->device)) return true; /* the device is lost: no event follows */
    int rc = e->device->calls->event_query(e->event);
    if (rc == DRIVER_NOT_READY) {
        return false;
    }
    driver_stick(e->device, rc, "work on the device failed");
    return true;
}

void driver_stream_wait(gpu_stream *s, gpu_event *e) {
    if (!driver_use(s->device)) return;
    assert(!s->recording);
    gpu_order_other(&s->order);
    driver_stick(s->device, s->device->calls->stream_wait(s->stream, e->event, 0),
                 "cannot wait for an event");
}

double driver_event_elapsed(gpu_event *from, gpu_event *to) {
    float ms = -1;
    if (!driver_use(from->device) || !from->recorded || !to->recorded) return -1;
    if (!driver_event_done(from) || !driver_event_done(to)) return -1;
    if (from->device->calls->event_elapsed(&ms, from->event, to->event) == DRIVER_OK) return ms;
    return -1;
}

/* ---- work ------------------------------------------------------------------------------------ */

void driver_stream_waits(gpu_stream *s) {
    s->order.waits = true;
    if (!s->recording) gpu_late_begin(&s->busy);
}

/* With `overlap` the kernel's blocks start when those of the previous kernel have begun and leave
 * room, instead of when they have ended: this saves the time between the two (programmatic
 * dependent launch). */
void driver_launch(gpu_stream *s, size_t kernel, const unsigned blocks[3], unsigned threads,
                   const void *args) {
    if (!driver_use(s->device)) return;
    const driver_calls *call = s->device->calls;
    const bool overlap = gpu_order_kernel(&s->order) && s->recording && s->device->overlaps;
    driver_function f = s->device->slot->functions[kernel];
    void *params[] = {(void *)(uintptr_t)args};
    driver_attribute attribute = {.id = DRIVER_OVERLAP, .value.flag = 1};
    const driver_config config = {.grid = {blocks[0], blocks[1], blocks[2]},
                                  .block = {threads, 1, 1},
                                  .stream = s->stream,
                                  .attributes = &attribute,
                                  .n_attributes = 1};
    const int e = overlap ? call->launch_with(&config, f, params, NULL)
                          : call->launch(f, blocks[0], blocks[1], blocks[2], threads, 1, 1, 0,
                                         s->stream, params, NULL);
    driver_stick(s->device, e, "cannot launch a kernel");
}

void driver_upload(gpu_stream *s, void *device, const void *host, size_t n_bytes) {
    if (n_bytes == 0 || !driver_use(s->device)) return;
    gpu_order_other(&s->order);
    driver_stick(s->device, s->device->calls->upload(device, host, n_bytes, s->stream),
                 "a copy failed");
}

void driver_download(gpu_stream *s, void *host, const void *device, size_t n_bytes) {
    if (n_bytes == 0 || !driver_use(s->device)) return;
    gpu_order_other(&s->order);
    driver_stick(s->device, s->device->calls->download(host, device, n_bytes, s->stream),
                 "a copy failed");
}

void driver_copy(gpu_stream *s, void *device_to, const void *device_from, size_t n_bytes) {
    if (n_bytes == 0 || !driver_use(s->device)) return;
    gpu_order_other(&s->order);
    driver_stick(s->device, s->device->calls->copy(device_to, device_from, n_bytes, s->stream),
                 "a copy failed");
}

void driver_fill(gpu_stream *s, void *device, uint8_t value, size_t n_bytes) {
    if (n_bytes == 0 || !driver_use(s->device)) return;
    gpu_order_other(&s->order);
    driver_stick(s->device, s->device->calls->fill(device, value, n_bytes, s->stream),
                 "a fill failed");
}

/* ---- programs -------------------------------------------------------------------------------- */

pi_status driver_record_begin(gpu_stream *s, pi_error *err) {
    gpu_device *d = s->device;
    if (s->recording)
        return error_set(err, PI_ERR_ARG, "a program is being recorded already: end it first");
    if (!driver_use(s->device)) return driver_status(s->device, err);
    int e = d->calls->capture_begin(s->stream, DRIVER_CAPTURE_FREELY);
    if (e != DRIVER_OK) return driver_error(d->vendor, err, e, "cannot capture a program");
    s->recording = true;
    s->order = (gpu_order){0};
    return PI_OK;
}

pi_status driver_record_end(gpu_stream *s, gpu_program **out, pi_error *err) {
    gpu_device *d = s->device;
    if (!s->recording) return error_set(err, PI_ERR_ARG, "no program is being recorded: begin one");
    s->recording = false;
    if (!driver_use(d)) return driver_status(d, err);
    driver_graph graph = NULL;
    int e = s->device->calls->capture_end(s->stream, &graph);
    if (e != DRIVER_OK) {
        d->overlaps = false; /* retry without: the driver may not support it */
        return driver_error(d->vendor, err, e, "cannot capture a program");
    }
    gpu_program *p = d->host->alloc(sizeof *p);
    if (!p) {
        s->device->calls->graph_destroy(graph);
        return error_nomem(err, sizeof *p, "a program");
    }
    memset(p, 0, sizeof *p);
    p->device = d;
    p->graph = graph;
    e = d->calls->program_create(&p->exec, graph, 0);
    d->overlaps = d->overlaps && e == DRIVER_OK;
    if (e == DRIVER_OK && d->calls->program_upload)
        e = d->calls->program_upload(p->exec, s->stream);
    pi_status status = driver_status(d, err); /* of what was enqueued */
    if (e != DRIVER_OK) status = driver_error(d->vendor, err, e, "cannot instantiate a program");
    if (status) {
        driver_program_free(p);
        return status;
    }
    *out = p;
    return PI_OK;
}

void driver_program_launch(gpu_stream *s, gpu_program *p) {
    if (!driver_use(s->device)) return;
    gpu_late_begin(&s->busy);
    driver_stick(s->device, s->device->calls->program_launch(p->exec, s->stream),
                 "cannot launch a program");
}

void driver_program_free(gpu_program *p) {
    if (!p) return;
    if (driver_use(p->device)) {
        if (p->exec) p->device->calls->program_destroy(p->exec);
        p->device->calls->graph_destroy(p->graph);
    }
    p->device->host->free(p);
}
