/* sim_stream.cpp: streams are worker threads with queues; events are counters; programs are stored
 * queues. Enqueueing copies a command with its arguments. */
#include "sim_limits.h"
#include "sim_runtime.h"

#include <assert.h>
#include <stdlib.h>

/* ---- queues ---------------------------------------------------------------------------------- */

static void queue_init(sim_queue *q) {
    q->first = nullptr;
    q->end = &q->first;
}

static void queue_append(sim_queue *q, sim_command *c) {
    *q->end = c;
    q->end = &c->next;
}

static void queue_clear(gpu_device *d, sim_queue *q) {
    while (q->first) {
        sim_command *c = q->first;
        q->first = c->next;
        d->host->free(c);
    }
    queue_init(q);
}

/* A zeroed command with space for n_args bytes of arguments; NULL: out of memory, a sticky error of
 * the device. */
static sim_command *new_command(gpu_stream *s, sim_kind kind, size_t n_args) {
    size_t n = sizeof(sim_command) + n_args;
    sim_command *c = static_cast<sim_command *>(s->device->host->alloc(n));
    if (!c) {
        sim_device_stick(s->device, PI_ERR_NOMEM,
                         "out of memory: sim: %zu bytes for a queued operation", n);
        return nullptr;
    }
    memset(static_cast<void *>(c), 0, n);
    c->kind = kind;
    return c;
}

static void enqueue(gpu_stream *s, sim_command *c) {
    if (s->recording) {
        queue_append(&s->recording->commands, c);
        return;
    }
    pthread_mutex_lock(&s->mutex);
    queue_append(&s->queue, c);
    s->busy = true;
    if (s->device->late) s->n_held++;
    s->n_queued++;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->mutex);
}

/* What is enqueued begins. */
static void submit(gpu_stream *s) {
    pthread_mutex_lock(&s->mutex);
    s->n_held = 0;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->mutex);
}

static void wait_idle(gpu_stream *s) {
    submit(s);
    pthread_mutex_lock(&s->mutex);
    while (s->busy) pthread_cond_wait(&s->idle, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
}

/* A launch has been enqueued. */
static void end_launch(gpu_stream *s) {
    if (s->device->serial && !s->recording) wait_idle(s);
}

/* ---- running --------------------------------------------------------------------------------- */

static void run_copy(gpu_device *d, const sim_command *c) {
    if ((c->to_device && !sim_device_owns(d, c->to, c->n_bytes)) ||
        (c->from_device && !sim_device_owns(d, c->from, c->n_bytes))) {
        sim_device_stick(d, PI_ERR_DEVICE,
                         "copy out of bounds: sim: %zu bytes reach outside of device memory",
                         c->n_bytes);
        return;
    }
    if (c->kind == SIM_FILL)
        memset(c->to, c->value, c->n_bytes);
    else
        memmove(c->to, c->from, c->n_bytes);
}

/* A driver made of this file may count time otherwise (tests/ptx). */
#ifdef SIM_EVENT_NS
uint64_t SIM_EVENT_NS();
#else
#define SIM_EVENT_NS gpu_clock_ns
#endif

static void run_event(const sim_command *c) {
    gpu_event *e = c->event;
    pthread_mutex_lock(&e->mutex);
    if (e->done < c->number) e->done = c->number;
    e->time_ns = SIM_EVENT_NS();
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->mutex);
}

static void run_wait(const sim_command *c) {
    gpu_event *e = c->event;
    pthread_mutex_lock(&e->mutex);
    while (e->done < c->number) pthread_cond_wait(&e->changed, &e->mutex);
    pthread_mutex_unlock(&e->mutex);
}

/* Records of events complete even when the device is lost: the host may wait for them. */
static void run_command(gpu_stream *s, sim_command *c) {
    gpu_device *d = s->device;
    switch (c->kind) {
    case SIM_RECORD:
        run_event(c);
        return;
    case SIM_WAIT:
        run_wait(c);
        return;
    case SIM_PROGRAM:
        for (sim_command *p = c->program->commands.first; p; p = p->next) run_command(s, p);
        return;
    case SIM_KERNEL:
        if (sim_device_tick(d)) sim_worker_run(s->worker, c->grid, c->kernel, c->call, sim_args(c));
        return;
    default:
        if (sim_device_tick(d)) run_copy(d, c);
    }
}

static void *stream_main(void *user) {
    gpu_stream *s = static_cast<gpu_stream *>(user);
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (s->n_queued == s->n_held && !s->stop) {
            if (!s->queue.first) s->busy = false;
            if (!s->busy) pthread_cond_broadcast(&s->idle);
            pthread_cond_wait(&s->work, &s->mutex);
        }
        sim_command *c = s->queue.first;
        if (!c) break; /* stop was requested, and the queue is empty */
        s->queue.first = c->next;
        s->n_queued--;
        if (!c->next) s->queue.end = &s->queue.first;
        pthread_mutex_unlock(&s->mutex);
        run_command(s, c);
        s->device->host->free(c);
        pthread_mutex_lock(&s->mutex);
    }
    pthread_mutex_unlock(&s->mutex);
    return nullptr;
}

/* ---- streams --------------------------------------------------------------------------------- */

static void stream_free(gpu_stream *s) {
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->idle);
    sim_worker_free(s->worker);
    s->device->host->free(s);
}

pi_status sim_stream_create(gpu_device *d, gpu_stream **out, pi_error *err) {
    gpu_stream *s = static_cast<gpu_stream *>(d->host->alloc(sizeof *s));
    if (!s) return error_nomem(err, sizeof *s, "a stream of device sim");
    memset(static_cast<void *>(s), 0, sizeof *s);
    s->device = d;
    queue_init(&s->queue);
    pthread_mutex_init(&s->mutex, nullptr);
    pthread_cond_init(&s->work, nullptr);
    pthread_cond_init(&s->idle, nullptr);
    s->worker = sim_worker_create(d);
    if (!s->worker) {
        stream_free(s);
        return error_nomem(err, 0, "the fibers of a stream of device sim");
    }
    int rc = pthread_create(&s->thread, nullptr, stream_main, s);
    if (rc != 0) {
        stream_free(s);
        return error_set(err, PI_ERR_NOMEM, "no thread for a stream: device sim: %s", strerror(rc));
    }
    *out = s;
    return PI_OK;
}

void sim_stream_destroy(gpu_stream *s) {
    if (!s) return;
    sim_program_free(s->recording);
    pthread_mutex_lock(&s->mutex);
    s->stop = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, nullptr);
    gpu_late_end(&s->waits);
    stream_free(s);
}

pi_status sim_stream_sync(gpu_stream *s, pi_error *err) {
    wait_idle(s);
    gpu_late_end(&s->waits);
    return sim_device_status(s->device, err);
}

void gpu_stream_waits(gpu_stream *s) {
    s->order.waits = true;
    if (!s->recording) gpu_late_begin(&s->waits);
}

/* ---- events ---------------------------------------------------------------------------------- */

pi_status sim_event_create(gpu_device *d, gpu_event **out, pi_error *err) {
    gpu_event *e = static_cast<gpu_event *>(d->host->alloc(sizeof *e));
    if (!e) return error_nomem(err, sizeof *e, "an event of device sim");
    memset(static_cast<void *>(e), 0, sizeof *e);
    e->device = d;
    pthread_mutex_init(&e->mutex, nullptr);
    pthread_cond_init(&e->changed, nullptr);
    *out = e;
    return PI_OK;
}

void sim_event_destroy(gpu_event *e) {
    if (!e) return;
    pthread_mutex_destroy(&e->mutex);
    pthread_cond_destroy(&e->changed);
    e->device->host->free(e);
}

void sim_event_record(gpu_stream *s, gpu_event *e) {
    assert(!s->recording);
    e->stream = s;
    sim_command *c = new_command(s, SIM_RECORD, 0);
    if (!c) return;
    c->event = e;
    pthread_mutex_lock(&e->mutex);
    c->number = ++e->enqueued;
    pthread_mutex_unlock(&e->mutex);
    enqueue(s, c);
}

void sim_stream_wait(gpu_stream *s, gpu_event *e) {
    assert(!s->recording);
    gpu_order_other(&s->order);
    /* The driver submits what a command waits for. */
    if (e->device->late && e->stream && e->stream != s) submit(e->stream);
    sim_command *c = new_command(s, SIM_WAIT, 0);
    if (!c) return;
    c->event = e;
    pthread_mutex_lock(&e->mutex);
    c->number = e->enqueued;
    pthread_mutex_unlock(&e->mutex);
    enqueue(s, c);
}

bool sim_event_done(gpu_event *e) {
    if (e->device->late && e->stream) submit(e->stream);
    pthread_mutex_lock(&e->mutex);
    bool done = e->done == e->enqueued;
    pthread_mutex_unlock(&e->mutex);
    return done;
}

double sim_event_elapsed(gpu_event *from, gpu_event *to) {
    double t[2];
    gpu_event *both[2] = {from, to};
    for (int i = 0; i < 2; i++) {
        if (!sim_event_done(both[i])) return -1;
        pthread_mutex_lock(&both[i]->mutex);
        t[i] = static_cast<double>(both[i]->time_ns);
        bool recorded = both[i]->done > 0;
        pthread_mutex_unlock(&both[i]->mutex);
        if (!recorded) return -1;
    }
    return (t[1] - t[0]) * 1e-6;
}

/* ---- operations and copies ------------------------------------------------------------------- */

/* Test hook: number of kernels that paused, see sim_n_paused. */
extern "C" PI_API int powerinfer_sim_paused(void);
int powerinfer_sim_paused(void) {
    return sim_n_paused();
}

/* Test hook: number of kernels and fills enqueued or recorded so far, on all streams. */
static uint64_t n_kernels;
extern "C" PI_API uint64_t powerinfer_sim_kernels(void);
uint64_t powerinfer_sim_kernels(void) {
    return __atomic_load_n(&n_kernels, __ATOMIC_RELAXED);
}

static void count_kernel() {
    __atomic_fetch_add(&n_kernels, 1, __ATOMIC_RELAXED);
}

void gpu_launch_any(gpu_stream *s, const gpu_grid &grid, const gpu_kernel &kernel, const void *args,
                    size_t n_args) {
    if (!(__atomic_load_n(&kernel.loaded, __ATOMIC_RELAXED) >> s->device->index & 1)) {
        sim_device_stick(s->device, PI_ERR_DEVICE,
                         "a kernel was not loaded when the device was opened: sim");
        return;
    }
    char refused[80];
    if (sim_refuses(grid, refused, sizeof refused)) {
        sim_device_stick(s->device, PI_ERR_DEVICE, "cannot launch a kernel: sim: %s", refused);
        return;
    }
    if (grid.threads % GPU_WARP != 0 || grid.threads > SIM_MAX_THREADS) {
        sim_device_stick(s->device, PI_ERR_DEVICE, "invalid block size: sim: %u threads",
                         grid.threads);
        return;
    }
    sim_command *c = new_command(s, SIM_KERNEL, n_args);
    if (!c) return;
    c->grid = grid;
    c->kernel = kernel.function;
    c->call = kernel.call;
    memcpy(sim_args(c), args, n_args);
    c->waits = s->order.waits;
    c->overlaps = gpu_order_kernel(&s->order) && s->recording;
    count_kernel();
    enqueue(s, c);
    end_launch(s);
}

/* Test hook: launches a kernel that does nothing with this grid, and so much shared memory. */
struct empty_args {
    size_t n_shared;
};
static void empty_kernel(empty_args a) {
    gpu_begin();
    if (a.n_shared > 0) sim_shared(a.n_shared, SIM_MOST_SHARED);
}
extern "C" PI_API void powerinfer_sim_launch(gpu_stream *s, const unsigned size[4],
                                             size_t n_shared);
void powerinfer_sim_launch(gpu_stream *s, const unsigned size[4], size_t n_shared) {
    const gpu_grid grid = {size[0], size[1], size[2], size[3]};
    gpu_launch<empty_kernel>(s, grid, empty_args{n_shared});
}

static void enqueue_copy(gpu_stream *s, void *to, bool to_device, const void *from,
                         bool from_device, size_t n_bytes) {
    sim_command *c = new_command(s, SIM_COPY, 0);
    if (!c) return;
    c->to = to;
    gpu_order_other(&s->order);
    c->to_device = to_device;
    c->from = from;
    c->from_device = from_device;
    c->n_bytes = n_bytes;
    enqueue(s, c);
}

void sim_upload(gpu_stream *s, void *device, const void *host, size_t n_bytes) {
    enqueue_copy(s, device, true, host, false, n_bytes);
}

void sim_download(gpu_stream *s, void *host, const void *device, size_t n_bytes) {
    enqueue_copy(s, host, false, device, true, n_bytes);
}

void sim_copy(gpu_stream *s, void *device_to, const void *device_from, size_t n_bytes) {
    enqueue_copy(s, device_to, true, device_from, true, n_bytes);
}

void sim_fill(gpu_stream *s, void *device, uint8_t value, size_t n_bytes) {
    sim_command *c = new_command(s, SIM_FILL, 0);
    if (!c) return;
    c->to = device;
    c->to_device = true;
    c->value = value;
    c->n_bytes = n_bytes;
    gpu_order_other(&s->order);
    count_kernel();
    enqueue(s, c);
}

/* ---- programs -------------------------------------------------------------------------------- */

pi_status sim_record_begin(gpu_stream *s, pi_error *err) {
    gpu_device *d = s->device;
    if (s->recording) {
        return error_set(err, PI_ERR_ARG,
                         "a program is being recorded already: device sim: end it "
                         "first");
    }
    gpu_program *p = static_cast<gpu_program *>(d->host->alloc(sizeof *p));
    if (!p) return error_nomem(err, sizeof *p, "a program of device sim");
    p->device = d;
    queue_init(&p->commands);
    s->recording = p;
    s->order = gpu_order();
    return PI_OK;
}

pi_status sim_record_end(gpu_stream *s, gpu_program **out, pi_error *err) {
    gpu_program *p = s->recording;
    if (!p)
        return error_set(err, PI_ERR_ARG, "no program is being recorded: device sim: begin one");
    s->recording = nullptr;
    pi_status status = sim_device_status(s->device, err);
    if (status) {
        sim_program_free(p);
        return status;
    }
    *out = p;
    return PI_OK;
}

void sim_program_launch(gpu_stream *s, gpu_program *p) {
    sim_command *c = new_command(s, SIM_PROGRAM, 0);
    if (!c) return;
    c->program = p;
    gpu_late_begin(&s->waits);
    enqueue(s, c);
    end_launch(s);
}

/* Test hook: a letter for every command of a program, in the order in which they run: k a kernel, o
 * one that may overlap the one before, w one that waits for its host, W one that does both, - any
 * other. */
extern "C" PI_API void powerinfer_sim_program(const gpu_program *p, char *text, size_t n_text);
void powerinfer_sim_program(const gpu_program *p, char *text, size_t n_text) {
    size_t n = 0;
    for (const sim_command *c = p->commands.first; c && n + 1 < n_text; c = c->next)
        text[n++] = c->kind == SIM_KERNEL ? "kowW"[2 * c->waits + c->overlaps] : '-';
    if (n < n_text) text[n] = '\0';
}

void sim_program_free(gpu_program *p) {
    if (!p) return;
    queue_clear(p->device, &p->commands);
    p->device->host->free(p);
}
