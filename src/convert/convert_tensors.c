/* convert_tensors.c: writes the tensors that convert_match.c has matched.
 *
 * Memory: one output chunk of at most CHUNK_BYTES (or one row), and one row of floats per thread.
 * The source is mapped, and its pages are released chunk by chunk. Threads: the workers take a few
 * rows of a chunk at a time; the calling thread writes the chunk. */
#include "convert_tensors.h"

#include <stdatomic.h>
#include <string.h>

#include "mem.h"

/* Large enough to make starting threads negligible, and still a negligible amount of memory. */
static const size_t CHUNK_BYTES = (size_t)16 << 20;

/* Rows of a transposed source are columns: neighbouring columns share cache lines. */
enum { TAKEN_ROWS = 8 };

pi_status convert_plan_declare(const convert_plan *p, gguf_writer *w, pi_error *err) {
    for (size_t i = 0; i < p->n_tensors; i++) {
        const convert_tensor *t = &p->tensors[i];
        const uint64_t fourth[] = {t->dims[0], 1, 1, t->dims[1]};
        pi_status status = gguf_add_tensor(w, t->name, t->type, t->fourth ? 4 : t->n_dims,
                                           t->fourth ? fourth : t->dims, err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

typedef struct row_job {
    const convert_plan *plan;
    const convert_tensor *tensor;
    const quant_traits *traits;
    pool *workers;
    float *scratch; /* [n_threads][dims[0]] */
    uint8_t *out;   /* [n_rows][row_bytes] */
    size_t row_bytes;
    uint64_t first_row, n_rows;
    /* index + 1 of a row with a value that is not finite */
    atomic_uint_fast64_t bad_source, bad_result;
} row_job;

static void convert_row(row_job *job, uint64_t i, float *scratch) {
    const convert_tensor *t = job->tensor;
    uint64_t row = job->first_row + i;
    uint8_t *out = job->out + i * job->row_bytes;
    bool nvfp4 = t->form == HF_NVFP4 && t->type == QUANT_NVFP4;
    if (t->form == HF_MXFP4 || nvfp4) {
        bool sound = nvfp4 ? convert_copy_nvfp4(job->plan, t, row, out)
                           : convert_copy_mxfp4(job->plan, t, row, out);
        if (!sound) atomic_store(&job->bad_source, row + 1);
        return;
    }
    convert_load_row(job->plan, t, row, scratch);
    quant_fault fault = quant_quantize_checked(job->traits, scratch, out, (int64_t)t->dims[0],
                                               NULL);
    if (fault == QUANT_BAD_SOURCE) atomic_store(&job->bad_source, row + 1);
    if (fault == QUANT_BAD_RESULT) atomic_store(&job->bad_result, row + 1);
}

static void convert_rows(void *arg, int ith, int nth) {
    (void)nth;
    row_job *job = arg;
    float *scratch = job->scratch + (size_t)ith * job->tensor->dims[0];
    for (;;) {
        uint64_t first = (uint64_t)pool_take(job->workers, TAKEN_ROWS);
        if (first >= job->n_rows) return;
        for (uint64_t i = first; i < first + TAKEN_ROWS && i < job->n_rows; i++)
            convert_row(job, i, scratch);
    }
}

static pi_status check_rows(row_job *job, pi_error *err) {
    uint64_t source = atomic_load(&job->bad_source), result = atomic_load(&job->bad_result);
    uint64_t row = source ? source - 1 : result ? result - 1 : 0;
    const safetensor *s = convert_source_of(job->plan, job->tensor, row);
    if (source)
        return error_set(
            err, PI_ERR_RANGE,
            "not a finite number: %s: tensor %.100s, row %llu: download the file again", s->file,
            s->name, (unsigned long long)row);
    if (result)
        return error_set(err, PI_ERR_RANGE,
                         "overflow in %s: %s: tensor %.100s, row %llu: use type bf16",
                         job->traits->name, s->file, s->name, (unsigned long long)row);
    return PI_OK;
}

/* Progress over the whole file. */
typedef struct tally {
    progress *report;
    uint64_t done, total; /* bytes written */
} tally;

static pi_status write_chunk(gguf_writer *w, const void *data, size_t n_bytes, tally *sum,
                             pi_error *err) {
    pi_status status = gguf_write_data(w, data, n_bytes, err);
    if (status != PI_OK) return status;
    sum->done += n_bytes;
    if (!progress_step(sum->report, "converting", (double)sum->done / (double)sum->total))
        return error_set(err, PI_ERR_CANCELLED, "conversion cancelled");
    return PI_OK;
}

static pi_status write_tensor(const convert_plan *p, const convert_tensor *t, pool *workers,
                              tally *sum, gguf_writer *w, pi_error *err) {
    row_job job = {.plan = p, .tensor = t, .traits = quant_find(t->type), .workers = workers};
    size_t scratch_bytes;
    int n_threads = pool_size(workers);
    uint64_t n_rows = t->dims[1] * t->dims[2];
    if (!quant_row_bytes(t->type, t->dims[0], &job.row_bytes) ||
        !size_mul(t->dims[0] * sizeof(float), (size_t)n_threads, &scratch_bytes))
        return error_set(err, PI_ERR_LIMIT, "tensor %s: rows too long", t->name);
    uint64_t chunk_rows = CHUNK_BYTES / job.row_bytes;
    if (chunk_rows < 1) chunk_rows = 1;
    if (chunk_rows > n_rows) chunk_rows = n_rows;
    job.scratch = mem_alloc(scratch_bytes);
    job.out = mem_alloc(chunk_rows * job.row_bytes);
    pi_status status = PI_OK;
    if (!job.scratch || !job.out)
        status = error_nomem(err, scratch_bytes + chunk_rows * job.row_bytes, "rows");
    for (uint64_t row = 0; row < n_rows && status == PI_OK; row += chunk_rows) {
        job.first_row = row;
        job.n_rows = n_rows - row < chunk_rows ? n_rows - row : chunk_rows;
        uint64_t pieces = (job.n_rows + TAKEN_ROWS - 1) / TAKEN_ROWS;
        int nth = pieces < (uint64_t)n_threads ? (int)pieces : n_threads;
        pool_run(workers, nth, convert_rows, &job);
        convert_forget_rows(p, t, row, job.n_rows);
        status = check_rows(&job, err);
        if (status == PI_OK)
            status = write_chunk(w, job.out, (size_t)job.n_rows * job.row_bytes, sum, err);
    }
    mem_free(job.scratch);
    mem_free(job.out);
    return status;
}

static pi_status write_rope_factors(const convert_tensor *t, const hf_config *c, tally *sum,
                                    gguf_writer *w, pi_error *err) {
    size_t n_bytes = (size_t)t->dims[0] * sizeof(float);
    float *factors = mem_alloc(n_bytes);
    if (!factors) return error_nomem(err, n_bytes, "rope factors");
    hf_config_rope_factors(c, t->role, factors);
    pi_status status = write_chunk(w, factors, n_bytes, sum, err);
    mem_free(factors);
    return status;
}

pi_status convert_plan_write(const convert_plan *p, const hf_config *c, pool *workers,
                             progress *report, gguf_writer *w, pi_error *err) {
    tally sum = {.report = report, .total = p->n_bytes};
    pi_status status = PI_OK;
    for (size_t i = 0; i < p->n_tensors && status == PI_OK; i++) {
        const convert_tensor *t = &p->tensors[i];
        status = t->n_sources > 0 ? write_tensor(p, t, workers, &sum, w, err)
                                  : write_rope_factors(t, c, &sum, w, err);
    }
    return status;
}
