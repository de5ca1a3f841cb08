/* gpu_rates.c: see gpu_rates.h. Times are the best of several, between events of the device or, for
 * exchanges, on the host's clock. */
#include "gpu_rates.h"

#include <string.h>

#include "clock.h"
#include "gpu_reading.h"
#include "pool.h"

enum {
    N_IN = 1152,
    REPEATS = 5,       /* the fastest counts */
    BLOCK_KERNELS = 4, /* kernels of small_block */
    BLOCKS = 16,       /* calls of small_block in the program that measures kernels */
    EXCHANGES = 32,    /* layers in the program that measures exchanges */
    N_LONG = 7 * N_IN, /* elements of long messages, which a block's registers hold */
    CHUNK = 64,        /* elements that a thread takes */
    WAIT_SECONDS = 10
};

typedef struct rates_job {
    const gpu_backend *b;
    gpu_device *d;
    gpu_stream *stream;
    gpu_event *from, *to;
    void *row, *x, *y, *count; /* F16 and float [N_IN] */
    gpu_pinned pinned;         /* message, then flags of both devices */
    /* Exchanges: state of all CPU threads in a layer. */
    pool *workers;
    uint64_t epoch;
    int layer;      /* current layer; written by one thread between barriers */
    bool answered;  /* false: the device did not answer in time */
    int64_t n_embd; /* elements of the messages */
    float *input;   /* [N_LONG] */
} rates_job;

/* ---- memory ---------------------------------------------------------------------------------- */

static pi_status alloc(rates_job *j, size_t n_bytes, void **out, pi_error *err) {
    pi_status status = j->b->alloc(j->d, n_bytes, "measuring", out, err);
    if (status == PI_OK) j->b->fill(j->stream, *out, 0, n_bytes);
    return status;
}

static pi_status make_buffers(rates_job *j, pi_error *err) {
    enum { N = EXCHANGES * 2 * GPU_FLAG_BYTES + N_LONG * sizeof(float) };
    pi_status status = j->b->stream_create(j->d, &j->stream, err);
    if (status == PI_OK) status = j->b->event_create(j->d, &j->from, err);
    if (status == PI_OK) status = j->b->event_create(j->d, &j->to, err);
    if (status == PI_OK) status = j->b->host_alloc(j->d, N, &j->pinned, err);
    if (status == PI_OK) status = alloc(j, N_LONG * sizeof(float), &j->x, err);
    if (status == PI_OK) status = alloc(j, N_LONG * sizeof(float), &j->y, err);
    if (status == PI_OK) status = alloc(j, N_IN * sizeof(uint16_t), &j->row, err);
    if (status == PI_OK) status = alloc(j, sizeof(uint64_t), &j->count, err);
    return status;
}

static void free_job(rates_job *j) {
    if (j->stream) {
        j->b->stream_sync(j->stream, NULL);
        j->b->free(j->d, j->x);
        j->b->free(j->d, j->y);
        j->b->free(j->d, j->row);
        j->b->free(j->d, j->count);
    }
    if (j->pinned.host) j->b->host_free(j->d, &j->pinned);
    j->b->stream_destroy(j->stream);
    j->b->event_destroy(j->from);
    j->b->event_destroy(j->to);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void multiply_row(rates_job *j) {
    const gpu_matmul a = {.w = {.data = j->row,
                                .row_bytes = N_IN * sizeof(uint16_t),
                                .n_in = N_IN,
                                .n_out = 1,
                                .type = QUANT_F16},
                          .in = {.x = j->x, .ldx = N_IN, .n_cols = 1},
                          .scale = 1,
                          .y = j->y,
                          .ldy = 1};
    j->b->ops.matvec(j->stream, &a, 1);
}

/* Kernels like those of an attention or FFN block, almost empty. */
static void small_block(rates_job *j) {
    const gpu_norm norm = {
        .x = j->x, .ldx = N_IN, .ldy = N_IN, .n = N_IN, .eps = 1, .n_cols = 1, .y = j->y};
    j->b->ops.norm(j->stream, &norm);
    multiply_row(j); /* gate and up */
    multiply_row(j);
    const gpu_add add = {.x = j->y, .ldx = N_IN, .ldy = N_IN, .n = 1, .n_cols = 1, .y = j->x};
    j->b->ops.add(j->stream, &add);
}

static pi_status measure_step(rates_job *j, gpu_rates *out, pi_error *err) {
    gpu_program *program = NULL;
    double best = 1e30;
    pi_status status = j->b->record_begin(j->stream, err);
    if (status != PI_OK) return status;
    for (int i = 0; i < BLOCKS; i++) small_block(j);
    status = j->b->record_end(j->stream, &program, err);
    for (int i = 0; i < REPEATS && status == PI_OK; i++) {
        j->b->event_record(j->stream, j->from);
        j->b->program_launch(j->stream, program);
        j->b->event_record(j->stream, j->to);
        status = j->b->stream_sync(j->stream, err);
        double took = j->b->event_elapsed(j->from, j->to);
        if (took > 0 && took < best) best = took;
    }
    j->b->program_free(program);
    out->step = best / 1e3 / (BLOCKS * BLOCK_KERNELS);
    return status;
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static uint8_t *flag_at(const void *pinned, int side, int i) {
    return (uint8_t *)pinned + N_LONG * sizeof(float) + (size_t)(2 * i + side) * GPU_FLAG_BYTES;
}

/* Bytes of an exchange. */
static double bytes_of(int64_t n_embd) {
    return (double)gpu_q8_bytes(n_embd) + (double)n_embd * sizeof(float);
}

/* Kernels of a layer, without the price of its exchange: the receive is also the next norm. */
enum { LAYER_KERNELS = 2 * BLOCK_KERNELS + 2 };

/* A layer of the device: kernels for which the CPU waits (like attention), a norm that sends a
 * message in int8 form, and the wait for the answer, which adds it and runs the next norm. */
static void enqueue_layer(rates_job *j, int i) {
    const gpu_send send = {.host_q8 = j->pinned.device,
                           .flag = (uint64_t *)flag_at(j->pinned.device, 0, i),
                           .epoch = j->count};
    gpu_norm norm = {.x = j->x,
                     .ldx = j->n_embd,
                     .ldy = j->n_embd,
                     .n = j->n_embd,
                     .eps = 1,
                     .n_cols = 1,
                     .y = j->y};
    const gpu_receive receive = {.host_x = j->pinned.device,
                                 .n = j->n_embd,
                                 .ldy = j->n_embd,
                                 .n_cols = 1,
                                 .flag = (const uint64_t *)flag_at(j->pinned.device, 1, i),
                                 .epoch = j->count,
                                 .y = j->x,
                                 .norm = &norm};
    gpu_norm sent = norm;
    sent.send = &send;
    small_block(j);
    small_block(j);
    j->b->ops.norm(j->stream, &sent);
    j->b->ops.receive(j->stream, &receive);
}

/* Waits for the message and copies it; run by the last thread at the barrier, as in a layer. */
static void take_message(void *arg) {
    rates_job *j = arg;
    double start = clock_seconds();
    const uint8_t *flag = flag_at(j->pinned.host, 0, j->layer);
    for (int n = 1; j->answered && gpu_flag_get(flag) < j->epoch; n++) {
        pool_pause();
        if (n % 256) continue;
        if (j->b->status(j->d, NULL) != PI_OK || clock_seconds() - start > WAIT_SECONDS)
            j->answered = false;
    }
    memcpy(j->input, j->pinned.host, gpu_q8_bytes(j->n_embd));
}

static void send_answer(void *arg) {
    rates_job *j = arg;
    memcpy(j->pinned.host, j->input, (size_t)j->n_embd * sizeof *j->input);
    gpu_flag_raise(flag_at(j->pinned.host, 1, j->layer), j->epoch);
    j->layer++;
}

/* Every thread's part of the layers: almost no work between the barriers. */
static void run_layers(void *arg, int ith, int nth) {
    rates_job *j = arg;
    (void)ith;
    (void)nth;
    for (int i = 0; i < EXCHANGES; i++) {
        pool_barrier_run(j->workers, take_message, j);
        for (int64_t k; (k = pool_take(j->workers, CHUNK)) < j->n_embd;)
            for (int64_t e = k; e < k + CHUNK && e < j->n_embd; e++) j->input[e] = 0;
        pool_barrier_run(j->workers, send_answer, j);
    }
}

/* *seconds: of one exchange, the best of several. */
static pi_status run_exchanges(rates_job *j, gpu_program *program, double step, double *seconds,
                               pi_error *err) {
    pi_status status = PI_OK;
    *seconds = 1e30;
    for (int i = 0; i < REPEATS && status == PI_OK; i++) {
        j->epoch++;
        j->b->upload(j->stream, j->count, &j->epoch, sizeof j->epoch);
        status = j->b->stream_sync(j->stream, err);
        j->layer = 0;
        j->answered = status == PI_OK;
        double start = clock_seconds();
        j->b->program_launch(j->stream, program);
        pool_run(j->workers, pool_size(j->workers), run_layers, j);
        if (!j->answered) j->b->release(j->d);
        pi_status done = j->b->stream_sync(j->stream, err);
        if (status == PI_OK) status = done;
        double took = (clock_seconds() - start) / EXCHANGES - LAYER_KERNELS * step;
        if (j->answered && took < *seconds) *seconds = took;
    }
    return status;
}

static pi_status time_exchange(rates_job *j, int64_t n_embd, double step, double *seconds,
                               pi_error *err) {
    gpu_program *program = NULL;
    j->n_embd = n_embd;
    pi_status status = j->b->record_begin(j->stream, err);
    if (status != PI_OK) return status;
    for (int i = 0; i < EXCHANGES; i++) enqueue_layer(j, i);
    status = j->b->record_end(j->stream, &program, err);
    if (status == PI_OK) status = run_exchanges(j, program, step, seconds, err);
    j->b->program_free(program);
    return status;
}

/* From short and long messages: the time that does not depend on their length, and the rate. */
static pi_status measure_sync(rates_job *j, int n_threads, gpu_rates *out, pi_error *err) {
    float input[N_LONG];
    double brief = 0, lengthy = 0;
    j->input = input;
    pi_status status = pool_create(n_threads, &j->workers, err);
    if (status != PI_OK) return status;
    pool_stay_awake(j->workers, true);
    status = time_exchange(j, N_IN, out->step, &brief, err);
    if (status == PI_OK) status = time_exchange(j, N_LONG, out->step, &lengthy, err);
    pool_destroy(j->workers);
    out->sync = brief;
    if (lengthy > brief) {
        out->bus_gbps = (bytes_of(N_LONG) - bytes_of(N_IN)) / (lengthy - brief) * 1e-9;
        out->sync -= bytes_of(N_IN) / (out->bus_gbps * 1e9);
    }
    if (out->sync < 0) out->sync = 0; /* below the resolution of clocks */
    return status;
}

static pi_status measure_reading(rates_job *j, gpu_rates *out, pi_error *err) {
    const double long_enough = 2; /* milliseconds: thousands of the clock's steps */
    uint64_t free_bytes, total;
    gpu_reading reading;
    pi_status status = j->b->memory(j->d, &free_bytes, &total, err);
    if (status != PI_OK) return status;
    const gpu_reading_options options = {
        .most_bytes = free_bytes / 4, .long_ms = long_enough, .repeats = REPEATS};
    status = gpu_reading_measure(j->b, j->d, &options, &reading, err);
    out->stream_gbps = reading.stream_gbps;
    out->gather_gbps = reading.gather_gbps;
    return status;
}

pi_status gpu_rates_measure(const gpu_backend *b, gpu_device *d, int n_threads, gpu_rates *out,
                            pi_error *err) {
    rates_job j = {.b = b, .d = d};
    *out = (gpu_rates){0};
    pi_status status = measure_reading(&j, out, err);
    if (status == PI_OK) status = make_buffers(&j, err);
    if (status == PI_OK) status = measure_step(&j, out, err);
    if (status == PI_OK) status = measure_sync(&j, n_threads, out, err);
    free_job(&j);
    if (status != PI_OK) b->reset(d, NULL);
    return status;
}
