/* prepare_matrix.c: decodes, transposes and measures matrices by neurons. Threads take rows or
 * blocks of columns; outputs do not overlap.
 *
 * A quantized row is decoded in whole blocks, so the number of columns per tile is a multiple of
 * every format's block; the only memory is a tile of [rows][COLUMNS] floats per thread. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "mem.h"
#include "prepare.h"

enum {
    COLUMNS_MIN = 32, /* columns per tile: a cache line or more of floats from every row */
    TAKE_ROWS = 16    /* rows that a thread takes at once */
};

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct decode_job {
    pool *pool;
    const model_tensor *t;
    const int32_t *order;
    float *out;
} decode_job;

static void decode_rows(void *arg, int ith, int nth) {
    decode_job *job = arg;
    const model_tensor *t = job->t;
    const quant_traits *traits = prepare_traits(t);
    (void)ith;
    (void)nth;
    for (int64_t begin; (begin = pool_take(job->pool, TAKE_ROWS)) < t->n_out;) {
        int64_t end = begin + TAKE_ROWS < t->n_out ? begin + TAKE_ROWS : t->n_out;
        for (int64_t i = begin; i < end; i++) {
            int64_t row = job->order ? job->order[i] : i;
            float *out = job->out + i * t->n_in;
            traits->dequantize((const uint8_t *)t->data + (size_t)row * t->row_bytes, out, t->n_in);
            if (t->scale != 1)
                for (int64_t k = 0; k < t->n_in; k++) out[k] *= t->scale;
        }
    }
}

void prepare_decode_rows(pool *p, const model_tensor *t, const int32_t *order, float *out) {
    decode_job job = {.pool = p, .t = t, .order = order, .out = out};
    pool_run(p, pool_size(p), decode_rows, &job);
}

typedef struct convert_job {
    pool *pool;
    const model_tensor *t;
    const quant_traits *to;
    size_t to_row; /* bytes */
    float *rows;   /* [n_threads][t->n_in] */
    uint8_t *out;
} convert_job;

static void convert_rows(void *arg, int ith, int nth) {
    convert_job *job = arg;
    const model_tensor *t = job->t;
    float *x = job->rows + (size_t)ith * (size_t)t->n_in;
    (void)nth;
    for (int64_t r; (r = pool_take(job->pool, 1)) < t->n_out;) {
        prepare_traits(t)->dequantize((const uint8_t *)t->data + (size_t)r * t->row_bytes, x,
                                      t->n_in);
        job->to->quantize(x, job->out + (size_t)r * job->to_row, t->n_in, NULL);
    }
}

pi_status prepare_convert_rows(pool *p, const model_tensor *t, quant_type type, void *out,
                               pi_error *err) {
    convert_job job = {.pool = p, .t = t, .to = quant_find((uint32_t)type), .out = out};
    size_t n_bytes = (size_t)pool_size(p) * (size_t)t->n_in * sizeof *job.rows;
    bool fits = quant_row_bytes(type, (uint64_t)t->n_in, &job.to_row);
    assert(fits); /* the caller's type is supported */
    (void)fits;
    job.rows = mem_alloc(n_bytes);
    if (!job.rows) return error_nomem(err, n_bytes, "rows of a matrix");
    pool_run(p, pool_size(p), convert_rows, &job);
    mem_free(job.rows);
    return PI_OK;
}

/* ---- columns --------------------------------------------------------------------------------- */

typedef struct column_job {
    pool *pool;
    const model_tensor *t;
    int64_t n_columns;    /* per tile */
    float *tiles;         /* [n_threads][t->n_out][n_columns], or for norms one row of a tile */
    size_t tile_elems;    /* floats of one thread's tile */
    float *norms;         /* [t->n_in] */
    const int32_t *place; /* [t->n_out] or NULL */
    const quant_traits *to;
    size_t to_row; /* bytes */
    uint8_t *out;
} column_job;

static int64_t columns_of(const model_tensor *t) {
    int64_t block = prepare_traits(t)->block_elems;
    return block > COLUMNS_MIN ? block : COLUMNS_MIN;
}

/* Columns [begin, begin + n) of row r. */
static const uint8_t *part_of_row(const model_tensor *t, int64_t r, int64_t begin) {
    const quant_traits *traits = prepare_traits(t);
    return (const uint8_t *)t->data + (size_t)r * t->row_bytes +
           (size_t)(begin / traits->block_elems) * (size_t)traits->block_bytes;
}

static void norm_columns(void *arg, int ith, int nth) {
    column_job *job = arg;
    const model_tensor *t = job->t;
    float *x = job->tiles + (size_t)ith * job->tile_elems;
    (void)nth;
    for (int64_t begin; (begin = job->n_columns * pool_take(job->pool, 1)) < t->n_in;) {
        int64_t n = t->n_in - begin < job->n_columns ? t->n_in - begin : job->n_columns;
        float *sums = job->norms + begin;
        memset(sums, 0, (size_t)n * sizeof *sums);
        for (int64_t r = 0; r < t->n_out; r++) {
            prepare_traits(t)->dequantize(part_of_row(t, r, begin), x, n);
            for (int64_t k = 0; k < n; k++) sums[k] += x[k] * x[k];
        }
        for (int64_t k = 0; k < n; k++) sums[k] = sqrtf(sums[k]) * fabsf(t->scale);
    }
}

static void norm_rows(void *arg, int ith, int nth) {
    column_job *job = arg;
    const model_tensor *t = job->t;
    float *x = job->tiles + (size_t)ith * job->tile_elems;
    (void)nth;
    for (int64_t r; (r = pool_take(job->pool, 1)) < t->n_out;) {
        double sum = 0;
        prepare_traits(t)->dequantize(part_of_row(t, r, 0), x, t->n_in);
        for (int64_t k = 0; k < t->n_in; k++) sum += (double)x[k] * (double)x[k];
        job->norms[r] = (float)sqrt(sum) * fabsf(t->scale);
    }
}

static pi_status give_tiles(column_job *job, size_t tile_elems, pi_error *err) {
    size_t n = (size_t)pool_size(job->pool), n_bytes;
    job->tile_elems = tile_elems;
    if (!size_mul(tile_elems, n * sizeof *job->tiles, &n_bytes)) n_bytes = SIZE_MAX;
    job->tiles = mem_alloc(n_bytes);
    return job->tiles ? PI_OK : error_nomem(err, n_bytes, "tiles of a matrix");
}

pi_status prepare_down_norms(pool *p, const model_tensor *down, bool transposed, float *norms,
                             pi_error *err) {
    column_job job = {.pool = p, .t = down, .n_columns = columns_of(down), .norms = norms};
    pi_status status = give_tiles(&job, (size_t)(transposed ? down->n_in : job.n_columns), err);
    if (status != PI_OK) return status;
    pool_run(p, pool_size(p), transposed ? norm_rows : norm_columns, &job);
    mem_free(job.tiles);
    return PI_OK;
}

/* ---- transposing ----------------------------------------------------------------------------- */

/* Through float: decodes a tile transposed, then quantizes each row. */
static void transpose_values(void *arg, int ith, int nth) {
    column_job *job = arg;
    const model_tensor *t = job->t;
    float *tile = job->tiles + (size_t)ith * job->tile_elems;
    float *x = tile + t->n_out * job->n_columns;
    (void)nth;
    for (int64_t begin; (begin = job->n_columns * pool_take(job->pool, 1)) < t->n_in;) {
        int64_t n = t->n_in - begin < job->n_columns ? t->n_in - begin : job->n_columns;
        for (int64_t r = 0; r < t->n_out; r++) {
            int64_t at = job->place ? job->place[r] : r;
            prepare_traits(t)->dequantize(part_of_row(t, r, begin), x, n);
            for (int64_t k = 0; k < n; k++) tile[k * t->n_out + at] = x[k];
        }
        for (int64_t k = 0; k < n; k++)
            job->to->quantize(tile + k * t->n_out, job->out + (size_t)(begin + k) * job->to_row,
                              t->n_out, NULL);
    }
}

/* Moves elements of 2 or 4 bytes unchanged. */
static void transpose_bits(void *arg, int ith, int nth) {
    column_job *job = arg;
    const model_tensor *t = job->t;
    size_t size = (size_t)job->to->block_bytes;
    (void)ith;
    (void)nth;
    for (int64_t begin; (begin = job->n_columns * pool_take(job->pool, 1)) < t->n_in;) {
        int64_t n = t->n_in - begin < job->n_columns ? t->n_in - begin : job->n_columns;
        for (int64_t r = 0; r < t->n_out; r++) {
            size_t at = (size_t)(job->place ? job->place[r] : r);
            const uint8_t *from = part_of_row(t, r, begin);
            uint8_t *to = job->out + (size_t)begin * job->to_row + at * size;
            for (int64_t k = 0; k < n; k++, from += size, to += job->to_row) memcpy(to, from, size);
        }
    }
}

pi_status prepare_transpose(pool *p, const model_tensor *t, const int32_t *place, quant_type type,
                            void *out, pi_error *err) {
    column_job job = {.pool = p,
                      .t = t,
                      .n_columns = columns_of(t),
                      .place = place,
                      .to = quant_find((uint32_t)type),
                      .out = out};
    bool fits = quant_row_bytes(type, (uint64_t)t->n_out, &job.to_row);
    assert(fits); /* the caller's type is supported */
    (void)fits;
    if (type == t->type && job.to->block_elems == 1) {
        pool_run(p, pool_size(p), transpose_bits, &job);
        return PI_OK;
    }
    pi_status status = give_tiles(&job, (size_t)((t->n_out + 1) * job.n_columns), err);
    if (status != PI_OK) return status;
    pool_run(p, pool_size(p), transpose_values, &job);
    mem_free(job.tiles);
    return PI_OK;
}
