/* gguf_check.c: checks all weights for NaN and infinity. One such value spreads to every result,
 * and its origin is then lost. Reads all data once, on all cores. */
#include <stdatomic.h>

#include "gguf.h"

enum { PIECE_BYTES = 1 << 20 }; /* bytes of rows that a thread checks per step */

typedef struct check_job {
    pool *workers;
    const gguf_rows *rows;
    int64_t rows_at_once;
    atomic_int_fast64_t bad; /* the first bad row; n_rows: none so far */
} check_job;

static void note_bad(check_job *job, int64_t row) {
    int_fast64_t known = atomic_load(&job->bad);
    while (row < known && !atomic_compare_exchange_weak(&job->bad, &known, row)) continue;
}

static void check_rows(void *arg, int ith, int nth) {
    check_job *job = arg;
    const gguf_rows *rows = job->rows;
    int64_t first;
    (void)ith, (void)nth;
    while ((first = pool_take(job->workers, job->rows_at_once)) < rows->n_rows) {
        int64_t end = first + job->rows_at_once;
        if (end > rows->n_rows) end = rows->n_rows;
        while (
            first < end &&
            !quant_has_nonfinite(rows->type, rows->data + (size_t)first * rows->stride, rows->n_in))
            first++;
        if (first < end) note_bad(job, first);
    }
}

pi_status gguf_check_rows(const gguf_file *f, const gguf_tensor *t, const gguf_rows *rows,
                          pool *workers, pi_error *err) {
    check_job job = {.workers = workers, .rows = rows};
    job.rows_at_once = 1 + PIECE_BYTES / (int64_t)rows->stride;
    atomic_store(&job.bad, rows->n_rows);
    pool_run(workers, pool_size(workers), check_rows, &job);
    int64_t bad = atomic_load(&job.bad);
    if (bad == rows->n_rows) return PI_OK;
    return error_set(err, PI_ERR_RANGE,
                     "not a finite number: %.200s: tensor %s, row %lld: get the file again",
                     gguf_part_path(f, t->part), t->name, (long long)bad);
}

pi_status gguf_check_tensor(const gguf_file *f, const gguf_tensor *t, pool *workers,
                            pi_error *err) {
    gguf_rows rows = {.data = t->data, .type = t->type, .n_in = (int64_t)t->dims[0]};
    if (t->n_elems == 0 || !quant_row_bytes(t->type, t->dims[0], &rows.stride)) return PI_OK;
    rows.n_rows = (int64_t)(t->n_elems / t->dims[0]);
    return gguf_check_rows(f, t, &rows, workers, err);
}
