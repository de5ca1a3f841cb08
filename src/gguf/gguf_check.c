/* gguf_check.c: checks all weights for NaN and infinity: one such value spreads to every result,
 * where its origin is lost. Reads all data once, on all cores. */
#include <stdatomic.h>

#include "gguf.h"

enum { PIECE_BYTES = 1 << 20 }; /* rows of about as much are looked at in one go */

typedef struct check_job {
    pool *workers;
    const gguf_tensor *tensor;
    size_t row_bytes;
    int64_t n_rows, rows_at_once;
    atomic_int_fast64_t bad; /* the first bad row; n_rows: none so far */
} check_job;

static void note_bad(check_job *job, int64_t row) {
    int_fast64_t known = atomic_load(&job->bad);
    while (row < known && !atomic_compare_exchange_weak(&job->bad, &known, row)) continue;
}

static void check_rows(void *arg, int ith, int nth) {
    check_job *job = arg;
    const gguf_tensor *t = job->tensor;
    int64_t first;
    (void)ith, (void)nth;
    while ((first = pool_take(job->workers, job->rows_at_once)) < job->n_rows) {
        int64_t end = first + job->rows_at_once;
        if (end > job->n_rows) end = job->n_rows;
        const uint8_t *data = t->data + (size_t)first * job->row_bytes;
        int64_t row_elems = (int64_t)t->dims[0];
        if (!quant_has_nonfinite(t->type, data, (end - first) * row_elems)) continue;
        while (!quant_has_nonfinite(t->type, data, row_elems)) {
            data += job->row_bytes;
            first++;
        }
        note_bad(job, first);
    }
}

pi_status gguf_check_tensor(const gguf_file *f, const gguf_tensor *t, pool *workers,
                            pi_error *err) {
    check_job job = {.workers = workers, .tensor = t};
    if (t->n_elems == 0 || !quant_row_bytes(t->type, t->dims[0], &job.row_bytes)) return PI_OK;
    job.n_rows = (int64_t)(t->n_elems / t->dims[0]);
    job.rows_at_once = 1 + PIECE_BYTES / (int64_t)job.row_bytes;
    atomic_store(&job.bad, job.n_rows);
    pool_run(workers, pool_size(workers), check_rows, &job);
    int64_t bad = atomic_load(&job.bad);
    if (bad == job.n_rows) return PI_OK;
    return error_set(err, PI_ERR_RANGE,
                     "not a finite number: %.200s: tensor %s, row %lld: get the file again",
                     gguf_part_path(f, t->part), t->name, (long long)bad);
}

pi_status gguf_check_tensors(const gguf_file *f, int n_threads, pi_error *err) {
    pool *workers = NULL;
    pi_status status = pool_create(n_threads > 0 ? n_threads : cpu_count_physical(), &workers, err);
    for (uint64_t i = 0; i < gguf_n_tensors(f) && status == PI_OK; i++)
        status = gguf_check_tensor(f, gguf_tensor_at(f, i), workers, err);
    pool_destroy(workers);
    return status;
}
