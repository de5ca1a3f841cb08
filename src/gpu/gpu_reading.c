/* gpu_reading.c: see gpu_reading.h. Times are between events of the device. The matrix starts small
 * and grows until reading it takes long enough to be timed, and is much larger than the caches; so
 * a slow device is not busy for long. It contains zeros, whose reads are as fast as those of other
 * values. */
#include "gpu_reading.h"

#include "clock.h"
#include "error.h"
#include "median.h"
#include "mem.h"
#include "os_thread.h"

enum {
    N_IN = 1152, /* F16 rows of 2,304 bytes: a neuron's row in Q4_0 at n_embd 4096 */
    ROW_BYTES = 2 * N_IN,
    ROWS_FIRST = 1 << 8, /* 576 KiB */
    ROWS_LAST = 1 << 20, /* 2.25 GiB */
    GATHER_STEP = 10,    /* one row in so many */
    GROWTH_MAX = 256
};

typedef struct reading_job {
    const gpu_backend *b;
    gpu_device *d;
    gpu_stream *stream;
    gpu_event *from, *to;
    void *matrix;                    /* [n_rows][N_IN] F16 */
    float *y;                        /* [n_rows] */
    int32_t *list;                   /* [n_rows / GATHER_STEP] */
    void *x, *sum, *partial, *count; /* [N_IN] float, twice; of down_rows; one number */
    int64_t n_rows;
} reading_job;

static pi_status alloc(reading_job *j, size_t n_bytes, void **out, pi_error *err) {
    pi_status status = j->b->alloc(j->d, n_bytes, "measuring", out, err);
    if (status == PI_OK) j->b->fill(j->stream, *out, 0, n_bytes);
    return status;
}

static void free_matrix(reading_job *j) {
    j->b->stream_sync(j->stream, NULL);
    j->b->free(j->d, j->matrix);
    j->b->free(j->d, j->y);
    j->b->free(j->d, j->list);
    j->matrix = NULL;
    j->y = NULL;
    j->list = NULL;
}

static pi_status upload_list(reading_job *j, pi_error *err) {
    size_t n = (size_t)(j->n_rows / GATHER_STEP);
    int32_t *list = mem_alloc(n * sizeof *list), count = (int32_t)n;
    if (!list) return error_nomem(err, n * sizeof *list, "rows to measure with");
    /* Uneven distances, since a prefetcher could guess even ones. */
    for (size_t i = 0; i < n; i++)
        list[i] = (int32_t)(i * GATHER_STEP + (i * i * 7 + i * 3) % GATHER_STEP);
    j->b->upload(j->stream, j->list, list, n * sizeof *list);
    j->b->upload(j->stream, j->count, &count, sizeof count);
    pi_status status = j->b->stream_sync(j->stream, err);
    mem_free(list);
    return status;
}

/* down_rows reads rows whose factor, here y, is not zero. */
static pi_status make_matrix(reading_job *j, int64_t n_rows, pi_error *err) {
    const size_t rows = (size_t)n_rows;
    void *y = NULL, *list = NULL;
    free_matrix(j);
    j->n_rows = n_rows;
    pi_status status = alloc(j, rows * ROW_BYTES, &j->matrix, err);
    if (status == PI_OK) status = alloc(j, rows * sizeof(float), &y, err);
    j->y = y;
    if (status == PI_OK) status = alloc(j, rows / GATHER_STEP * sizeof(int32_t), &list, err);
    j->list = list;
    return status == PI_OK ? upload_list(j, err) : status;
}

static pi_status make_rest(reading_job *j, pi_error *err) {
    pi_status status = j->b->stream_create(j->d, &j->stream, err);
    if (status == PI_OK) status = j->b->event_create(j->d, &j->from, err);
    if (status == PI_OK) status = j->b->event_create(j->d, &j->to, err);
    if (status == PI_OK) status = alloc(j, N_IN * sizeof(float), &j->x, err);
    if (status == PI_OK) status = alloc(j, N_IN * sizeof(float), &j->sum, err);
    if (status == PI_OK) status = alloc(j, sizeof(uint64_t), &j->count, err);
    if (status == PI_OK)
        status = alloc(j, gpu_down_partial(N_IN, 1) * sizeof(float), &j->partial, err);
    return status;
}

static void free_job(reading_job *j) {
    if (j->stream) {
        free_matrix(j);
        j->b->free(j->d, j->x);
        j->b->free(j->d, j->sum);
        j->b->free(j->d, j->count);
        j->b->free(j->d, j->partial);
    }
    j->b->stream_destroy(j->stream);
    j->b->event_destroy(j->from);
    j->b->event_destroy(j->to);
}

static gpu_mat matrix_of(const reading_job *j) {
    return (gpu_mat){.data = j->matrix,
                     .row_bytes = ROW_BYTES,
                     .n_in = N_IN,
                     .n_out = j->n_rows,
                     .type = QUANT_F16};
}

static void read_all(reading_job *j) {
    const gpu_matmul a = {.w = matrix_of(j),
                          .in = {.x = j->x, .ldx = N_IN, .n_cols = 1},
                          .scale = 1,
                          .y = j->y,
                          .ldy = j->n_rows};
    j->b->ops.matvec(j->stream, &a, 1);
}

static void read_some(reading_job *j) {
    enum { NOT_ZERO = 0x3c }; /* floats of 0.0115 */
    const gpu_down_rows a = {.w = matrix_of(j),
                             .list = j->list,
                             .count = j->count,
                             .n_max = j->n_rows / GATHER_STEP,
                             .h = j->y,
                             .ldh = j->n_rows,
                             .n_cols = 1,
                             .partial = j->partial,
                             .y = j->sum,
                             .ldy = N_IN};
    j->b->fill(j->stream, j->y, NOT_ZERO, (size_t)j->n_rows * sizeof(float));
    j->b->event_record(j->stream, j->from);
    j->b->ops.down_rows(j->stream, &a);
}

/* Lowers *ms to the time of one reading. */
static pi_status time_one(reading_job *j, bool some, double *ms, pi_error *err) {
    if (some) {
        read_some(j);
    } else {
        j->b->event_record(j->stream, j->from);
        read_all(j);
    }
    j->b->event_record(j->stream, j->to);
    pi_status status = j->b->stream_sync(j->stream, err);
    if (status != PI_OK) return status;
    double took = j->b->event_elapsed(j->from, j->to);
    if (took > 0 && took < *ms) *ms = took;
    return PI_OK;
}

static double gbps(int64_t n_rows, double ms) {
    return (double)n_rows * ROW_BYTES / (ms * 1e6);
}

/* Rows for which reading takes a half more than long_ms, at most `last`. */
static int64_t next_rows(int64_t rows, double ms, double long_ms, int64_t last) {
    double factor = 1.5 * long_ms / ms;
    if (factor < 2) factor = 2;
    if (factor > GROWTH_MAX) factor = GROWTH_MAX;
    int64_t next = (int64_t)((double)rows * factor);
    return next < last ? next : last;
}

static pi_status measure(reading_job *j, const gpu_reading_options *o, gpu_reading *out,
                         pi_error *err) {
    const double never = 1e30;
    const int64_t room = (int64_t)(o->most_bytes / (ROW_BYTES + 2 * sizeof(float)));
    const int64_t last = room < ROWS_FIRST ? ROWS_FIRST : room < ROWS_LAST ? room : ROWS_LAST;
    double stream = never, gather = never;
    pi_status status = PI_OK;
    for (int64_t rows = ROWS_FIRST;;) {
        stream = never;
        status = make_matrix(j, rows, err);
        if (status == PI_OK) status = time_one(j, false, &stream, err);
        if (status != PI_OK || gbps(rows, stream) < o->least_gbps) return status;
        if (stream >= o->long_ms || rows >= last) break;
        rows = next_rows(rows, stream, o->long_ms, last);
    }
    /* In turn: after a pass over the whole matrix, caches have few of the single rows. */
    const bool gathers = j->b->supports(GPU_OP_DOWN_ROWS, QUANT_F16, NULL);
    for (int i = 0; i < o->repeats && status == PI_OK; i++) {
        if (gathers) status = time_one(j, true, &gather, err);
        if (status == PI_OK) status = time_one(j, false, &stream, err);
    }
    if (status != PI_OK) return status;
    out->stream_gbps = gbps(j->n_rows, stream);
    out->gather_gbps = gathers ? gbps(j->n_rows / GATHER_STEP, gather) : out->stream_gbps;
    return PI_OK;
}

pi_status gpu_reading_measure(const gpu_backend *b, gpu_device *d, const gpu_reading_options *o,
                              gpu_reading *out, pi_error *err) {
    reading_job j = {.b = b, .d = d};
    *out = (gpu_reading){0};
    pi_status status = make_rest(&j, err);
    if (status == PI_OK) status = measure(&j, o, out, err);
    free_job(&j);
    if (status != PI_OK) b->reset(d, NULL);
    return status;
}

pi_status gpu_reading_sync(const gpu_backend *b, gpu_device *d, double *seconds, pi_error *err) {
    enum { ROUNDS = 15 };
    double took[ROUNDS];
    gpu_stream *s = NULL;
    gpu_event *e = NULL;
    gpu_pinned page = {0};
    pi_status status = b->stream_create(d, &s, err);
    if (status == PI_OK) status = b->event_create(d, &e, err);
    if (status == PI_OK) status = b->host_alloc(d, GPU_FLAG_BYTES, &page, err);
    for (int i = 0; i < ROUNDS && status == PI_OK; i++) {
        const double start = clock_seconds();
        b->fill(s, page.device, 1, page.n_bytes);
        b->event_record(s, e);
        while (!b->event_done(e)) os_yield();
        took[i] = clock_seconds() - start;
        status = b->status(d, err);
    }
    if (status == PI_OK) *seconds = median_of(took, ROUNDS);
    b->stream_destroy(s);
    b->event_destroy(e);
    b->host_free(d, &page);
    return status;
}
