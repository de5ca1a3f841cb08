/* test_gpu_runtime.c: memory, streams, events, flags, programs and errors of a device, and finding
 * backends. Tests that end a device (loss, time-outs) open a separate device. */
#include "gpu_case.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "clock.h"
#include "dynlib.h"
#include "file.h"
#include "mem.h"
#include "powerinfer.h"

#define B   (the_case.b)
#define OPS (&the_case.b->ops)

/* ---- memory ---------------------------------------------------------------------------------- */

/* On sim, new memory is NaN in every float type, so that reads of it show in results. */
static void test_poison(void **state) {
    (void)state;
    if (strcmp(B->name, "sim") != 0) skip();
    enum { N = 64 };
    uint16_t halfs[N * 2];
    float x[N], w[N], y;
    float *device_x = case_alloc(sizeof x), *device_y = case_alloc(sizeof y);
    case_download(x, device_x, sizeof x);
    memcpy(halfs, x, sizeof x);
    for (int i = 0; i < N; i++) assert_true(isnan(x[i]));
    for (int i = 0; i < 2 * N; i++) assert_true(isnan(quant_f16_to_f32(halfs[i])));
    for (int i = 0; i < N; i++) w[i] = 1;
    gpu_matmul a = {.w = {.data = case_upload(w, sizeof w),
                          .row_bytes = sizeof w,
                          .n_in = N,
                          .n_out = 1,
                          .type = QUANT_F32},
                    .in = {.x = device_x, .ldx = N, .n_cols = 1},
                    .scale = 1,
                    .y = device_y,
                    .ldy = 1};
    OPS->matvec(the_case.stream, &a, 1);
    case_download(&y, device_y, sizeof y);
    assert_true(isnan(y));
}

static void test_copies(void **state) {
    (void)state;
    uint8_t from[1000], to[1000], *p = case_alloc(1000), *q = case_alloc(1000);
    for (int i = 0; i < 1000; i++) from[i] = (uint8_t)(i * 7);
    assert_int_equal((uintptr_t)p % 256, 0);
    B->fill(the_case.stream, q, 0x5a, 1000);
    B->upload(the_case.stream, p, from, 1000);
    B->copy(the_case.stream, q + 10, p + 100, 500);
    case_download(to, q, 1000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(to[i], i < 10 || i >= 510 ? 0x5a : from[i + 90]);
    uint64_t before, after, total;
    pi_error err;
    assert_int_equal(B->memory(the_case.device, &before, &total, &err), PI_OK);
    assert_true(before <= total);
    case_alloc(1 << 22);
    assert_int_equal(B->memory(the_case.device, &after, &total, &err), PI_OK);
    assert_true(after <= before - (1 << 22));
}

static void test_pinned(void **state) {
    (void)state;
    gpu_pinned p = {0};
    pi_error err;
    long page = sysconf(_SC_PAGESIZE);
    assert_int_equal(B->host_alloc(the_case.device, 5000, &p, &err), PI_OK);
    assert_int_equal((uintptr_t)p.host % (uintptr_t)page, 0);
    for (int i = 0; i < 5000; i++) assert_int_equal(((uint8_t *)p.host)[i], 0);
    B->host_free(the_case.device, &p);
    assert_null(p.host);
    B->host_free(the_case.device, &p);
}

/* ---- devices for one test -------------------------------------------------------------------- */

typedef struct own_device {
    gpu_device *device;
    gpu_stream *stream;
    gpu_pinned flags; /* a page */
} own_device;

static pi_status own_open_for(own_device *o, const gpu_host *host, const gpu_open_options *options,
                              pi_error *err) {
    *o = (own_device){0};
    pi_status status = B->open(0, host, options, &o->device, err);
    if (!status) status = B->stream_create(o->device, &o->stream, err);
    if (!status) status = B->host_alloc(o->device, 4096, &o->flags, err);
    return status;
}

static pi_status own_open(own_device *o, const gpu_open_options *options, pi_error *err) {
    return own_open_for(o, gpu_host_default(), options, err);
}

static void own_close(own_device *o) {
    if (o->device) B->host_free(o->device, &o->flags);
    B->stream_destroy(o->stream);
    B->close(o->device);
}

static void test_memory_limit(void **state) {
    (void)state;
    own_device o;
    pi_error err = {.status = PI_OK};
    const gpu_open_options options = {.memory_limit = 1 << 20};
    void *p = NULL, *q = NULL;
    assert_int_equal(own_open(&o, &options, &err), PI_OK);
    assert_int_equal(B->alloc(o.device, 600000, "weights", &p, &err), PI_OK);
    assert_int_equal(B->alloc(o.device, 600000, "the KV cache", &q, &err), PI_ERR_NOMEM);
    assert_non_null(strstr(err.message, "the KV cache"));
    assert_int_equal(B->status(o.device, &err), PI_OK); /* the device still works */
    B->free(o.device, p);
    assert_int_equal(B->alloc(o.device, 600000, "the KV cache", &q, &err), PI_OK);
    B->free(o.device, q);
    own_close(&o);
}

/* Bytes of a mapped file, from the middle of a page on, are read in place. They count as device
 * memory. */
static void test_import(void **state) {
    (void)state;
    enum { N = 5 * 4096, FROM = 4096 + 48, LENGTH = 2 * 4096 + 32, LIMIT = 1 << 20 };
    static const char path[] = TEST_BINARY_DIR "/test_gpu_runtime.bin";
    static uint8_t bytes[N], got[LENGTH];
    const gpu_open_options options = {.memory_limit = LIMIT};
    own_device o;
    file_map map;
    uint64_t before, after, total;
    void *p = NULL;
    pi_error err;
    if (!B->import) skip();
    for (int i = 0; i < N; i++) bytes[i] = (uint8_t)(i * 7 + i / 256);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, N, f), N);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(file_map_open(&map, path, false, &err), PI_OK);
    assert_int_equal(own_open(&o, &options, &err), PI_OK);
    assert_int_equal(B->memory(o.device, &before, &total, &err), PI_OK);
    const pi_status status = B->import(o.device, map.data + FROM, LENGTH, "a test", &p, &err);
    if (status == PI_OK) {
        assert_int_equal((uintptr_t)p % GPU_ROW_ALIGN, 0);
        assert_int_equal(B->memory(o.device, &after, &total, &err), PI_OK);
        assert_true(before - after >= LENGTH);
        B->download(o.stream, got, p, LENGTH);
        assert_int_equal(B->stream_sync(o.stream, &err), PI_OK);
        assert_memory_equal(got, bytes + FROM, LENGTH);
        B->free(o.device, p);
        assert_int_equal(B->import(o.device, map.data + 1, 16, "a test", &p, &err),
                         PI_ERR_UNSUPPORTED);
        assert_int_equal(B->import(o.device, map.data, 2 * LIMIT, "a test", &p, &err),
                         PI_ERR_NOMEM);
    }
    assert_int_equal(B->memory(o.device, &after, &total, &err), PI_OK);
    assert_int_equal(after, before);
    own_close(&o);
    file_map_close(&map);
    remove(path);
    if (status == PI_ERR_UNSUPPORTED) skip(); /* with --limits low, or by a driver */
    assert_int_equal(status, PI_OK);
}

/* All functions that allocate, with each allocation failing in turn. */
static pi_status use_everything(own_device *o, pi_error *err) {
    gpu_event *e = NULL;
    gpu_program *program = NULL;
    void *p = NULL;
    pi_status status = own_open(o, NULL, err);
    if (!status) status = B->alloc(o->device, 1000, "a test", &p, err);
    if (!status) status = B->event_create(o->device, &e, err);
    if (!status) status = B->record_begin(o->stream, err);
    if (!status) {
        B->fill(o->stream, p, 1, 1000);
        status = B->record_end(o->stream, &program, err);
    }
    if (!status) {
        B->program_launch(o->stream, program);
        B->event_record(o->stream, e);
        status = B->stream_sync(o->stream, err);
    }
    if (o->stream && B->stream_sync(o->stream, NULL) == PI_OK && !status)
        assert_true(B->event_done(e));
    B->program_free(program);
    B->event_destroy(e);
    if (o->device) B->free(o->device, p);
    own_close(o);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    own_device o;
    pi_error err;
    int64_t before = mem_count();
    assert_int_equal(use_everything(&o, &err), PI_OK);
    int64_t n = mem_count() - before;
    if (strcmp(B->name, "sim") == 0) assert_true(n > 8);
    for (int64_t i = 1; i <= n; i++) {
        err = (pi_error){.status = PI_OK};
        mem_fail_at(i);
        pi_status status = use_everything(&o, &err);
        mem_fail_at(0);
        if (status != PI_ERR_NOMEM) fail_msg("allocation %lld: %s", (long long)i, err.message);
        assert_true(strlen(err.message) > 10);
    }
}

/* ---- streams and events ---------------------------------------------------------------------- */

/* y += x repeatedly on one stream: checks the order within a stream. */
static void add_many(gpu_stream *s, float *y, const float *x, int n, int times) {
    gpu_add a = {.x = x, .y = y, .n = n, .n_cols = 1, .ldx = n, .ldy = n};
    for (int i = 0; i < times; i++) OPS->add(s, &a);
}

/* An event is done when all earlier work of its stream is done. */
static void test_events(void **state) {
    (void)state;
    enum { N = 512, ROUNDS = 20, TIMES = 5 };
    float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = (float)i;
    float *device_x = case_upload(x, sizeof x), *device_y = case_alloc(sizeof y);
    gpu_pinned host = {0};
    gpu_event *first = NULL, *last = NULL;
    pi_error err;
    assert_int_equal(B->host_alloc(the_case.device, sizeof y, &host, &err), PI_OK);
    assert_int_equal(B->event_create(the_case.device, &first, &err), PI_OK);
    assert_int_equal(B->event_create(the_case.device, &last, &err), PI_OK);
    B->fill(the_case.stream, device_y, 0, sizeof y);
    B->event_record(the_case.stream, first);
    for (int k = 1; k <= ROUNDS; k++) {
        add_many(the_case.stream, device_y, device_x, N, TIMES);
        B->download(the_case.stream, host.host, device_y, sizeof y);
        B->event_record(the_case.stream, last);
        while (!B->event_done(last)) sched_yield();
        for (int i = 0; i < N; i++) assert_true(((float *)host.host)[i] == (float)(i * TIMES * k));
    }
    assert_true(B->event_done(first));
    assert_true(B->event_elapsed(first, last) >= 0);
    B->event_destroy(first);
    B->event_destroy(last);
    B->host_free(the_case.device, &host);
}

/* ---- programs -------------------------------------------------------------------------------- */

/* A program reads values that change between launches, here positions, from device memory. */
static void test_program(void **state) {
    (void)state;
    enum { N = 32, HALF = N / 2, LAUNCHES = 5 };
    float inv_freq[HALF], x[N];
    for (int i = 0; i < HALF; i++) inv_freq[i] = 0.01f * (float)(i + 1);
    gpu_column col = {.pos = 1};
    gpu_column *cols = case_upload(&col, sizeof col);
    float *device_x = case_alloc(sizeof x);
    gpu_program *program = NULL;
    pi_error err;
    const gpu_rope_angles a = {.cols = cols,
                               .inv_freq = case_upload(inv_freq, sizeof inv_freq),
                               .scale = 1,
                               .n_cols = 1,
                               .n_half = HALF,
                               .cs = device_x};
    B->fill(the_case.stream, device_x, 0, sizeof x);
    assert_int_equal(B->record_begin(the_case.stream, &err), PI_OK);
    OPS->rope_angles(the_case.stream, &a);
    add_many(the_case.stream, device_x, device_x, N, 1);
    assert_int_equal(B->record_end(the_case.stream, &program, &err), PI_OK);
    case_download(x, device_x, sizeof x);
    for (int i = 0; i < N; i++) assert_true(x[i] == 0); /* recorded, not run */
    for (int pos = LAUNCHES - 1; pos >= 0; pos--) {
        col.pos = pos;
        B->upload(the_case.stream, cols, &col, sizeof col);
        B->program_launch(the_case.stream, program);
        case_download(x, device_x, sizeof x);
        for (int i = 0; i < HALF; i++) {
            double angle = pos * (double)inv_freq[i];
            case_near(x[2 * i], 2 * cos(angle), 1, 1e-5, "cos", i);
            case_near(x[2 * i + 1], 2 * sin(angle), 1, 1e-5, "sin", i);
        }
    }
    assert_int_not_equal(B->record_end(the_case.stream, &program, &err), PI_OK);
    B->program_free(program);
}

/* ---- the exchange ---------------------------------------------------------------------------- */

enum { WIDTH = 300, LAYERS = 3, TOKENS = 20 };

typedef struct exchange {
    own_device o;
    gpu_pinned buffer[LAYERS]; /* x to the host; then the answer */
    uint32_t *bits[LAYERS];
    atomic_bool stop;
    int seen; /* messages that the host has answered */
} exchange;

static void *flag_at(const exchange *e, int layer, bool to_host, bool on_device) {
    uint8_t *base = on_device ? e->o.flags.device : e->o.flags.host;
    return base + GPU_FLAG_BYTES * (2 * layer + to_host);
}

/* The CPU adds i to element i of the message. */
static void *host_side(void *user) {
    exchange *e = user;
    for (uint64_t epoch = 1; epoch <= TOKENS; epoch++) {
        for (int l = 0; l < LAYERS; l++) {
            while (gpu_flag_get(flag_at(e, l, true, false)) < epoch) {
                if (atomic_load(&e->stop)) return NULL;
                sched_yield();
            }
            const float *x = e->buffer[l].host;
            float *answer = (float *)e->buffer[l].host + WIDTH;
            for (int i = 0; i < WIDTH; i++) answer[i] = x[i] * 0.5f + (float)i;
            e->seen += e->bits[l][0] == 0xc0ffee;
            gpu_flag_raise(flag_at(e, l, false, false), epoch);
        }
    }
    return NULL;
}

/* Per layer: send x, compute, wait for the answer and add it. */
static void enqueue_layers(exchange *e, float *x, const uint32_t *bits, uint64_t *epoch) {
    for (int l = 0; l < LAYERS; l++) {
        float *there = e->buffer[l].device;
        gpu_publish out = {.x = x,
                           .ldx = WIDTH,
                           .n = WIDTH,
                           .n_cols = 1,
                           .bits = bits,
                           .n_words = 1,
                           .host_x = there,
                           .host_bits = (uint32_t *)(void *)(there + 2 * WIDTH),
                           .flag = flag_at(e, l, true, true),
                           .epoch = epoch};
        OPS->publish(e->o.stream, &out);
        gpu_receive in = {.host_x = there + WIDTH,
                          .n = WIDTH,
                          .ldy = WIDTH,
                          .n_cols = 1,
                          .flag = flag_at(e, l, false, true),
                          .epoch = epoch,
                          .y = x};
        OPS->receive(e->o.stream, &in);
    }
}

static void exchange_open(exchange *e, uint32_t wait_ms) {
    pi_error err;
    const gpu_open_options options = {.wait_ms = wait_ms};
    memset(e, 0, sizeof *e);
    assert_int_equal(own_open(&e->o, &options, &err), PI_OK);
    for (int l = 0; l < LAYERS; l++) {
        size_t n = (2 * WIDTH + 1) * sizeof(float);
        assert_int_equal(B->host_alloc(e->o.device, n, &e->buffer[l], &err), PI_OK);
        e->bits[l] = (uint32_t *)(void *)((float *)e->buffer[l].host + 2 * WIDTH);
    }
}

static void exchange_close(exchange *e) {
    for (int l = 0; l < LAYERS; l++) B->host_free(e->o.device, &e->buffer[l]);
    own_close(&e->o);
}

/* Memory on the device of the exchange: x, epoch, bits. */
typedef struct exchange_memory {
    float *x;
    uint64_t *epoch;
    uint32_t *bits;
    void *all;
} exchange_memory;

static exchange_memory exchange_alloc(exchange *e) {
    exchange_memory m;
    pi_error err;
    static const uint32_t word = 0xc0ffee;
    assert_int_equal(B->alloc(e->o.device, 8192, "a test", &m.all, &err), PI_OK);
    m.x = m.all;
    m.epoch = (uint64_t *)m.all + 512;
    m.bits = (uint32_t *)m.all + 1536;
    B->upload(e->o.stream, m.bits, &word, sizeof word);
    return m;
}

/* A token is one launch; messages need only flags. */
static void test_exchange(void **state) {
    (void)state;
    exchange e;
    if (!B->kernels_may_wait) skip();
    exchange_open(&e, 20000);
    exchange_memory m = exchange_alloc(&e);
    pthread_t host;
    gpu_program *program = NULL;
    pi_error err;
    float x[WIDTH], want[WIDTH];
    assert_int_equal(B->record_begin(e.o.stream, &err), PI_OK);
    enqueue_layers(&e, m.x, m.bits, m.epoch);
    assert_int_equal(B->record_end(e.o.stream, &program, &err), PI_OK);
    for (int i = 0; i < WIDTH; i++) x[i] = want[i] = (float)(i % 5);
    B->upload(e.o.stream, m.x, x, sizeof x);
    assert_int_equal(pthread_create(&host, NULL, host_side, &e), 0);
    for (uint64_t epoch = 1; epoch <= TOKENS; epoch++) {
        B->upload(e.o.stream, m.epoch, &epoch, sizeof epoch);
        B->program_launch(e.o.stream, program);
        if (B->stream_sync(e.o.stream, &err)) fail_msg("%s", err.message);
    }
    pthread_join(host, NULL);
    B->download(e.o.stream, x, m.x, sizeof x);
    assert_int_equal(B->stream_sync(e.o.stream, &err), PI_OK);
    for (int t = 0; t < TOKENS * LAYERS; t++) {
        for (int i = 0; i < WIDTH; i++) want[i] += want[i] * 0.5f + (float)i;
    }
    for (int i = 0; i < WIDTH; i++) case_near(x[i], want[i], fabs(want[i]), 1e-5, "exchange", i);
    assert_int_equal(e.seen, TOKENS * LAYERS);
    B->program_free(program);
    B->free(e.o.device, m.all);
    exchange_close(&e);
}

/* Seconds of a pass without answers from the host. The fault lasts until reset. */
static double unanswered_pass(exchange *e, const exchange_memory *m) {
    pi_error err = {.status = PI_OK};
    uint64_t epoch = 1;
    B->upload(e->o.stream, m->epoch, &epoch, sizeof epoch);
    double start = clock_seconds();
    enqueue_layers(e, m->x, m->bits, m->epoch);
    assert_int_equal(B->stream_sync(e->o.stream, &err), PI_ERR_DEVICE);
    double took = clock_seconds() - start;
    /* The first message was sent, the messages after the wait were not. */
    for (int l = 0; l < LAYERS; l++)
        assert_true(gpu_flag_get(flag_at(e, l, true, false)) == (l == 0));
    assert_non_null(strstr(err.message, "for the host"));
    assert_int_equal(B->status(e->o.device, &err), PI_ERR_DEVICE);
    assert_int_equal(B->reset(e->o.device, &err), PI_OK);
    return took;
}

/* The host does not answer: one wait times out, later waits end at once, x is unchanged, and reset
 * clears the fault. */
static void test_time_out(void **state) {
    (void)state;
    enum { WAIT_MS = 1000, MANY = GPU_MAX_COLS + 2, TRIES = 5 };
    exchange e;
    if (!B->kernels_may_wait) skip();
    exchange_open(&e, WAIT_MS);
    exchange_memory m = exchange_alloc(&e);
    pi_error err = {.status = PI_OK};
    float x[WIDTH] = {1, 2, 3};
    uint64_t epoch = 2;
    B->upload(e.o.stream, m.x, x, sizeof x);
    double took = unanswered_pass(&e, &m);
    for (int i = 1; i < TRIES && took > 2.5e-3 * WAIT_MS; i++) { /* a busy machine only adds time */
        assert_true(took > 0.9e-3 * WAIT_MS);
        took = unanswered_pass(&e, &m);
    }
    assert_true(took > 0.9e-3 * WAIT_MS);
    if (took > 2.5e-3 * WAIT_MS) fail_msg("%d waits of 1 s took %.2f s", LAYERS, took);
    memset(x, 0, sizeof x);
    B->download(e.o.stream, x, m.x, sizeof x);
    assert_int_equal(B->stream_sync(e.o.stream, &err), PI_OK);
    assert_true(x[0] == 1 && x[1] == 2 && x[2] == 3);
    /* release: a host that cannot answer ends the waits at once. */
    B->upload(e.o.stream, m.epoch, &epoch, sizeof epoch);
    enqueue_layers(&e, m.x, m.bits, m.epoch);
    gpu_receive prompt = {.host_x = (float *)e.buffer[0].device + WIDTH, /* zeros for the columns */
                          .n = WIDTH / MANY,
                          .ldy = WIDTH / MANY,
                          .n_cols = MANY,
                          .set = true,
                          .host_bits = e.buffer[0].device,
                          .bits = m.bits,
                          .n_words = 1,
                          .flag = flag_at(&e, 0, false, true),
                          .epoch = m.epoch,
                          .y = m.x};
    OPS->receive(e.o.stream, &prompt);
    B->release(e.o.device);
    assert_int_equal(B->stream_sync(e.o.stream, &err), PI_ERR_CANCELLED);
    assert_int_equal(B->reset(e.o.device, &err), PI_OK);
    uint32_t word = 0;
    B->download(e.o.stream, x, m.x, sizeof x);
    B->download(e.o.stream, &word, m.bits, sizeof word);
    assert_int_equal(B->stream_sync(e.o.stream, &err), PI_OK);
    assert_true(x[0] == 1 && x[1] == 2 && x[2] == 3 && word == 0xc0ffee);
    B->free(e.o.device, m.all);
    exchange_close(&e);
}

/* ---- peers ----------------------------------------------------------------------------------- */

/* Two devices; one device twice where there is no other. */
static int open_pair(own_device *two) {
    int n = 0;
    pi_error err = {.status = PI_OK};
    assert_int_equal(B->count(&n, &err), PI_OK);
    int other = n > 1 ? 1 : 0;
    for (int i = 0; i < 2; i++) {
        two[i] = (own_device){0};
        if (B->open(i * other, gpu_host_default(), NULL, &two[i].device, &err))
            fail_msg("%s", err.message);
        assert_int_equal(B->stream_create(two[i].device, &two[i].stream, &err), PI_OK);
    }
    return other;
}

static void close_pair(own_device *two) {
    for (int i = 0; i < 2; i++) B->stream_destroy(two[i].stream);
    for (int i = 0; i < 2; i++) B->close(two[i].device);
}

/* A message of n_cols columns from one device to the other; each device has its epoch. The receiver
 * waits first. */
static void pass(own_device *two, uint8_t *box, int n_cols, uint64_t number) {
    enum { N = 37, MOST = 20 };
    float x[MOST * N], y[MOST * N] = {0};
    pi_error err = {.status = PI_OK};
    float *at[2];
    for (int i = 0; i < MOST * N; i++) x[i] = (float)(i * 7 % 100) + (float)number;
    for (int i = 0; i < 2; i++) {
        void *p;
        if (B->alloc(two[i].device, sizeof x + sizeof number, "a test", &p, &err))
            fail_msg("%s", err.message);
        at[i] = p;
        B->upload(two[i].stream, at[i] + MOST * N, &number, sizeof number);
        B->upload(two[i].stream, at[i], i == 0 ? x : y, sizeof x);
    }
    const gpu_receive receive = {.host_x = (float *)(box + GPU_FLAG_BYTES),
                                 .n = N,
                                 .ldy = N,
                                 .n_cols = n_cols,
                                 .set = true,
                                 .flag = (uint64_t *)box,
                                 .epoch = (uint64_t *)(at[1] + MOST * N),
                                 .y = at[1]};
    const gpu_publish publish = {.x = at[0],
                                 .ldx = N,
                                 .n = N,
                                 .n_cols = n_cols,
                                 .host_x = (float *)(box + GPU_FLAG_BYTES),
                                 .flag = (uint64_t *)box,
                                 .epoch = (uint64_t *)(at[0] + MOST * N)};
    OPS->receive(two[1].stream, &receive);
    OPS->publish(two[0].stream, &publish);
    B->download(two[1].stream, y, at[1], sizeof y);
    for (int i = 0; i < 2; i++)
        if (B->stream_sync(two[i].stream, &err)) fail_msg("%s", err.message);
    assert_memory_equal(y, x, (size_t)n_cols * N * sizeof *x);
    for (int i = 0; i < 2; i++) B->free(two[i].device, at[i]);
}

static void test_peers(void **state) {
    (void)state;
    enum { BOX = 4096 };
    own_device two[2];
    pi_error err = {.status = PI_OK};
    gpu_pinned pinned;
    void *box;
    int other = open_pair(two);
    assert_true(B->reaches(0, 0));
    assert_int_equal(B->host_alloc(two[1].device, BOX, &pinned, &err), PI_OK);
    pass(two, pinned.device, 3, 2); /* as without peer access */
    pass(two, pinned.device, 20, 4);
    B->host_free(two[1].device, &pinned);
    if (B->reaches(0, other)) {
        if (B->peer_alloc(two[0].device, two[1].device, BOX, "a test", &box, &err))
            fail_msg("%s", err.message);
        pass(two, box, 1, 2);
        pass(two, box, 20, 4);
        B->free(two[1].device, box);
    }
    close_pair(two);
}

/* The simulation reports writes to another device's memory that is not for messages; on a GPU they
 * are fatal. */
static void test_no_peers(void **state) {
    (void)state;
    if (strcmp(B->name, "sim") != 0) skip();
    enum { NOT_TOLD, RIGHT, TOO_FAR, WAYS, BYTES = 80 };
    gpu_device *third;
    pi_error err = {.status = PI_OK};
    for (int way = 0; way < WAYS; way++) {
        own_device two[2];
        void *p;
        open_pair(two);
        if (B->open(2, gpu_host_default(), NULL, &third, &err)) fail_msg("%s", err.message);
        assert_false(B->reaches(1, 2) || B->reaches(2, 0));
        assert_int_equal(B->peer_alloc(two[1].device, third, BYTES, "a test", &p, &err),
                         PI_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, "device 1 does not reach device 2"));
        if (way == NOT_TOLD
                ? B->alloc(two[1].device, BYTES, "a test", &p, &err)
                : B->peer_alloc(two[0].device, two[1].device, BYTES, "a test", &p, &err))
            fail_msg("%s", err.message);
        uint64_t *box = p;
        const gpu_publish publish = {.n = way == TOO_FAR ? 5 : 4,
                                     .n_cols = 1,
                                     .host_x = (float *)(box + 8),
                                     .flag = box,
                                     .epoch = box};
        B->fill(two[1].stream, box, 0, sizeof *box);
        assert_int_equal(B->stream_sync(two[1].stream, &err), PI_OK);
        OPS->publish(two[0].stream, &publish);
        pi_status status = B->stream_sync(two[0].stream, &err);
        assert_int_equal(status, way == RIGHT ? PI_OK : PI_ERR_DEVICE);
        assert_true(way == RIGHT || strstr(err.message, "another device's memory"));
        B->free(two[1].device, p);
        close_pair(two);
        B->close(third);
    }
}

/* ---- lost devices ---------------------------------------------------------------------------- */

static void test_lost(void **state) {
    (void)state;
    if (!B->fail_at) skip();
    own_device o;
    pi_error err = {.status = PI_OK};
    uint8_t bytes[16], untouched[16];
    void *p = NULL;
    assert_int_equal(own_open(&o, NULL, &err), PI_OK);
    assert_int_equal(B->alloc(o.device, sizeof bytes, "a test", &p, &err), PI_OK);
    memset(bytes, 7, sizeof bytes);
    memset(untouched, 7, sizeof untouched);
    B->fail_at(o.device, 2);
    B->fill(o.stream, p, 1, sizeof bytes);
    B->fill(o.stream, p, 2, sizeof bytes);
    B->download(o.stream, bytes, p, sizeof bytes);
    assert_int_equal(B->stream_sync(o.stream, &err), PI_ERR_DEVICE);
    assert_non_null(strstr(err.message, "lost"));
    assert_memory_equal(bytes, untouched, sizeof bytes); /* later work is dropped */
    assert_int_equal(B->reset(o.device, &err), PI_ERR_DEVICE);
    B->free(o.device, p);
    own_close(&o);
}

/* The simulation reports copies out of bounds, which a GPU does not. */
static void test_bad_copy(void **state) {
    (void)state;
    if (strcmp(B->name, "sim") != 0) skip();
    own_device o;
    pi_error err = {.status = PI_OK};
    uint8_t bytes[64] = {0};
    void *p = NULL;
    assert_int_equal(own_open(&o, NULL, &err), PI_OK);
    assert_int_equal(B->alloc(o.device, 40, "a test", &p, &err), PI_OK);
    B->upload(o.stream, p, bytes, 41);
    assert_int_equal(B->stream_sync(o.stream, &err), PI_ERR_DEVICE);
    assert_non_null(strstr(err.message, "outside of device memory"));
    B->free(o.device, p);
    own_close(&o);
}

typedef void (*launch_hook)(gpu_stream *s, const unsigned size[4], size_t n_shared);

/* Sizes that a driver refuses: of a grid, a block and its shared memory. */
static void test_launch_limits(void **state) {
    (void)state;
    const launch_hook launch = (launch_hook)dynlib_symbol(the_case.library.handle,
                                                          "powerinfer_sim_launch");
    if (!launch) skip();
    static const struct {
        unsigned size[4];
        size_t n_shared;
        const char *says; /* NULL: it runs */
    } cases[] = {{{3, 65535, 1, 32}, 0, NULL},
                 {{1, 1, 65535, 32}, 48 << 10, NULL},
                 {{1, 1, 1, 512}, 0, NULL},
                 {{0x80000000u, 1, 1, 32}, 0, "2147483648 blocks in x, not 1 to 2147483647"},
                 {{1, 65536, 1, 32}, 0, "65536 blocks in y, not 1 to 65535"},
                 {{1, 1, 65536, 32}, 0, "65536 blocks in z, not 1 to 65535"},
                 {{1, 0, 1, 32}, 0, "0 blocks in y, not 1 to 65535"},
                 {{1, 1, 1, 1056}, 0, "1056 threads per block, not 1 to 1024"},
                 {{1, 1, 1, 544}, 0, "invalid block size: sim: 544 threads"},
                 {{1, 1, 1, 64}, (48 << 10) + 1, "49153 bytes of shared memory, not up to 49152"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        own_device o;
        pi_error err = {.status = PI_OK};
        assert_int_equal(own_open(&o, NULL, &err), PI_OK);
        launch(o.stream, cases[i].size, cases[i].n_shared);
        pi_status status = B->stream_sync(o.stream, &err);
        assert_int_equal(status, cases[i].says ? PI_ERR_DEVICE : PI_OK);
        if (cases[i].says && !strstr(err.message, cases[i].says)) fail_msg("%s", err.message);
        own_close(&o);
    }
}

typedef void (*program_hook)(const gpu_program *p, char *text, size_t n_text);

/* Blocks of a kernel that overlaps one that waits for its host would wait on multiprocessors that
 * other contexts need. */
static void test_overlap(void **state) {
    (void)state;
    const program_hook describe = (program_hook)dynlib_symbol(the_case.library.handle,
                                                              "powerinfer_sim_program");
    if (!describe) skip();
    enum { N = 32 };
    char text[16];
    own_device o;
    void *x = NULL;
    gpu_program *program = NULL;
    pi_error err = {.status = PI_OK};
    assert_int_equal(own_open(&o, NULL, &err), PI_OK);
    assert_int_equal(B->alloc(o.device, N * sizeof(float), "a test", &x, &err), PI_OK);
    const gpu_receive wait = {
        .n_cols = 1, .flag = o.flags.device, .epoch = (uint64_t *)o.flags.device + 1};
    assert_int_equal(B->record_begin(o.stream, &err), PI_OK);
    OPS->receive(o.stream, &wait);
    add_many(o.stream, x, x, N, 2);
    OPS->receive(o.stream, &wait);
    add_many(o.stream, x, x, N, 1);
    B->fill(o.stream, x, 0, N * sizeof(float));
    add_many(o.stream, x, x, N, 2);
    assert_int_equal(B->record_end(o.stream, &program, &err), PI_OK);
    describe(program, text, sizeof text);
    assert_string_equal(text, "wkoWk-ko");
    B->program_free(program);
    B->free(o.device, x);
    own_close(&o);
}

/* ---- finding backends ------------------------------------------------------------------------ */

static void test_loading(void **state) {
    (void)state;
    if (strcmp(B->name, "sim") != 0) skip(); /* of no device; a carried build lacks the folders */
    gpu_library l;
    pi_error err = {.status = PI_OK};
    assert_int_equal(gpu_library_open("nothing", NULL, &l, &err), PI_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "libpowerinfer_nothing."));
    assert_null(l.backend);
    assert_int_equal(gpu_library_open("sim", "/nowhere", &l, &err), PI_ERR_NOT_FOUND);
    assert_int_equal(gpu_library_open("sim", TEST_BINARY_DIR "/old_backend", &l, &err),
                     PI_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "another version"));
    assert_int_equal(gpu_library_open("sim", TEST_BINARY_DIR, &l, &err), PI_OK);
    assert_string_equal(l.backend->name, "sim");
    int n = 0;
    assert_int_equal(l.backend->count(&n, &err), PI_OK);
    assert_int_equal(n, 4);
    gpu_info info;
    assert_int_equal(l.backend->describe(0, &info, &err), PI_OK);
    assert_true(info.memory_total > 0 && info.memory_free <= info.memory_total);
    uint64_t first = info.memory_total;
    assert_int_equal(l.backend->describe(1, &info, &err), PI_OK);
    assert_true(info.memory_total < first);
    assert_int_equal(l.backend->describe(4, &info, &err), PI_ERR_RANGE);
    gpu_host old = *gpu_host_default();
    gpu_device *d = NULL;
    old.version++;
    assert_int_equal(l.backend->open(0, &old, NULL, &d, &err), PI_ERR_UNSUPPORTED);
    gpu_library_close(&l);
    gpu_library_close(&l);
    assert_string_equal(gpu_backend_at(0)->name, "cuda");
    assert_ptr_equal(gpu_backend_find("sim"), gpu_backend_at(PI_DEVICE_SIM - PI_DEVICE_CPU - 1));
    assert_null(gpu_backend_at(PI_DEVICE_COUNT - PI_DEVICE_CPU - 1));
    assert_null(gpu_backend_at(-1));
    assert_null(gpu_backend_find("gpu"));
}

/* The backends of real devices, where they are built: they load without a driver, and either report
 * that there is no device or describe it. */
static void test_real_backends(void **state) {
    (void)state;
    const gpu_backend_row *row;
    for (int i = 0; (row = gpu_backend_at(i)); i++) {
        gpu_library l;
        pi_error err = {.status = PI_OK};
        if (!row->real) continue;
        pi_status status = gpu_library_open(row->name, TEST_BINARY_DIR, &l, &err);
        if (status) {
            print_message("*** SKIPPED: backend %s: %s ***\n", row->name, err.message);
            continue;
        }
        assert_string_equal(l.backend->name, row->name);
        int n = -1;
        status = l.backend->count(&n, &err);
        if (status) {
            assert_int_equal(status, PI_ERR_NOT_FOUND);
            assert_int_equal(n, 0);
            assert_int_equal(strncmp(err.message, "no device: ", 11), 0);
            gpu_device *d = NULL;
            assert_int_equal(l.backend->open(0, gpu_host_default(), NULL, &d, &err),
                             PI_ERR_NOT_FOUND);
        } else {
            gpu_info info;
            assert_true(n > 0);
            assert_int_equal(l.backend->describe(0, &info, &err), PI_OK);
            assert_true(info.memory_total > 0 && info.name[0] != '\0');
        }
        gpu_library_close(&l);
    }
}

/* A stream waits for another stream, which waits for the host: its work does not run before. */
static void test_streams_wait(void **state) {
    (void)state;
    if (!B->kernels_may_wait) skip();
    enum { N = 64 };
    pi_error err;
    gpu_stream *other;
    gpu_event *event;
    gpu_pinned flag;
    uint64_t epoch = 1;
    uint8_t got[N];
    if (the_case.b->stream_create(the_case.device, &other, &err)) fail_msg("%s", err.message);
    if (the_case.b->event_create(the_case.device, &event, &err)) fail_msg("%s", err.message);
    if (the_case.b->host_alloc(the_case.device, GPU_FLAG_BYTES, &flag, &err))
        fail_msg("%s", err.message);
    uint8_t *memory = case_alloc(N);
    uint64_t *device_epoch = case_upload(&epoch, sizeof epoch);
    const gpu_receive wait = {.n_cols = 1, .flag = flag.device, .epoch = device_epoch};
    the_case.b->fill(the_case.stream, memory, 1, N);
    the_case.b->ops.receive(the_case.stream, &wait);
    the_case.b->fill(the_case.stream, memory, 2, N);
    the_case.b->event_record(the_case.stream, event);
    the_case.b->stream_wait(other, event);
    the_case.b->download(other, got, memory, N);
    gpu_flag_raise(flag.host, epoch);
    if (the_case.b->stream_sync(other, &err)) fail_msg("%s", err.message);
    for (int i = 0; i < N; i++) assert_int_equal(got[i], 2);
    case_sync();
    the_case.b->stream_destroy(other);
    the_case.b->event_destroy(event);
    the_case.b->host_free(the_case.device, &flag);
}

/* ---- frees while a program waits for its host ------------------------------------------------ */

static int n_freed;

static void counting_free(void *p) {
    n_freed++;
    gpu_host_default()->free(p);
}

typedef int (*paused_hook)(void); /* number of waiting kernels; NULL: not known */
static paused_hook find_paused(void) {
    return (paused_hook)dynlib_symbol(the_case.library.handle, "powerinfer_sim_paused");
}

/* Enqueues a wait until the host's flag is 1, and returns when the wait has begun. */
static void begin_wait(own_device *o) {
    static const uint64_t one = 1;
    const paused_hook paused = find_paused();
    uint8_t *at = o->flags.device;
    const gpu_receive wait = {
        .n_cols = 1, .flag = (uint64_t *)at, .epoch = (uint64_t *)(at + GPU_FLAG_BYTES)};
    memcpy((uint8_t *)o->flags.host + GPU_FLAG_BYTES, &one, sizeof one);
    OPS->receive(o->stream, &wait);
    while (paused && paused() == 0) sched_yield();
}

static void end_wait(own_device *o) {
    pi_error err = {.status = PI_OK};
    gpu_flag_raise(o->flags.host, 1);
    if (B->stream_sync(o->stream, &err)) fail_msg("%s", err.message);
}

/* Opens the two contexts: one waits, the other frees memory through `host`, which counts the
 * frees. */
static void open_two(own_device *waits, own_device *frees, const gpu_host *host) {
    pi_error err = {.status = PI_OK};
    const gpu_open_options options = {.memory_limit = 4 << 20};
    if (own_open(waits, NULL, &err)) fail_msg("%s", err.message);
    if (own_open_for(frees, host, &options, &err)) fail_msg("%s", err.message);
}

/* In a driver, a free may block until another context's program ends, which waits for its host.
 * Memory that is freed meanwhile counts as free at once, and is released when the program has
 * ended. */
static void test_free_beside_wait(void **state) {
    (void)state;
    if (!B->kernels_may_wait) skip();
    own_device waits, frees;
    pi_error err = {.status = PI_OK};
    gpu_host host = *gpu_host_default();
    host.free = counting_free;
    void *p[4];
    uint64_t room, total;
    gpu_pinned pinned;
    open_two(&waits, &frees, &host);
    for (int i = 0; i < 4; i++)
        assert_int_equal(B->alloc(frees.device, 1 << 20, "a test", &p[i], &err), PI_OK);
    assert_int_equal(B->host_alloc(frees.device, 100, &pinned, &err), PI_OK);
    begin_wait(&waits);
    n_freed = 0;
    for (int i = 0; i < 3; i++) B->free(frees.device, p[i]);
    B->host_free(frees.device, &pinned);
    assert_null(pinned.host);
    if (B->status(frees.device, &err)) fail_msg("%s", err.message);
    if (find_paused()) assert_int_equal(n_freed, 0);
    assert_int_equal(B->memory(frees.device, &room, &total, &err), PI_OK);
    assert_true(room >= 3 << 20);
    assert_int_equal(B->alloc(frees.device, 3 << 20, "a test", &p[0], &err), PI_OK);
    end_wait(&waits);
    if (find_paused()) assert_true(n_freed >= 4);
    B->free(frees.device, p[0]);
    B->free(frees.device, p[3]);
    if (B->status(frees.device, &err)) fail_msg("%s", err.message);
    own_close(&frees);
    own_close(&waits);
}

/* Closing a device releases all its memory, although another program waits. */
static void test_close_beside_wait(void **state) {
    (void)state;
    if (!B->kernels_may_wait) skip();
    own_device waits, frees;
    pi_error err = {.status = PI_OK};
    void *p;
    open_two(&waits, &frees, gpu_host_default());
    assert_int_equal(B->alloc(frees.device, 1 << 20, "a test", &p, &err), PI_OK);
    begin_wait(&waits);
    B->free(frees.device, p);
    own_close(&frees);
    end_wait(&waits);
    own_close(&waits);
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_free_beside_wait),
    CASE_TEST(test_close_beside_wait),
    CASE_TEST(test_streams_wait),
    CASE_TEST(test_poison),
    CASE_TEST(test_copies),
    CASE_TEST(test_pinned),
    CASE_TEST(test_memory_limit),
    CASE_TEST(test_import),
    CASE_TEST(test_no_memory),
    CASE_TEST(test_events),
    CASE_TEST(test_program),
    CASE_TEST(test_exchange),
    CASE_TEST(test_peers),
    CASE_TEST(test_no_peers),
    CASE_TEST(test_time_out),
    CASE_TEST(test_lost),
    CASE_TEST(test_bad_copy),
    CASE_TEST(test_launch_limits),
    CASE_TEST(test_overlap),
    CASE_TEST(test_loading),
    CASE_TEST(test_real_backends),
};
CASE_MAIN(tests)
