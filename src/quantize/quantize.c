/* quantize.c: converts a GGUF file to other types. It first chooses types (quant_mix.h), then
 * checks everything that can be checked without reading weights, then streams tensors in file
 * order.
 *
 * The unit of work is a piece of a row of at most PIECE_ELEMS elements: whole blocks, which all
 * formats treat independently. Memory therefore depends neither on the model's size nor on a row's
 * length: one output chunk, and two pieces per thread. The source is mapped and released chunk by
 * chunk. Threads take pieces; the calling thread writes the chunk. The result does not depend on
 * the number of threads. */
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "cpu_topology.h"
#include "gguf_writer.h"
#include "imatrix.h"
#include "mem.h"
#include "notifier.h"
#include "os_file.h"
#include "pool.h"
#include "progress.h"
#include "quant_mix.h"
#include "sparse_keys.h"
#include "utf8_length.h"

enum {
    PIECE_ELEMS = 16384, /* a multiple of every block; 64 KiB of floats, which stay in cache */
    /* output bytes; compared with this, starting the threads costs nothing */
    CHUNK_BYTES = 16 << 20,
    QUANTIZATION_VERSION = 2 /* version of the block layouts; v2 and v3 files have no other */
};

/* Keys of several templates begin with this. */
#define KEY_TEMPLATE "tokenizer.chat_template"

/* All resources of a run, so that one function frees them. */
typedef struct quantization {
    const pi_quantize_options *options;
    const char *in_path, *out_path;
    notifier notifier;
    quant_mix_request request;
    gguf_file *in;
    imatrix importance;
    quant_mix_choice *choices; /* [n_tensors] */
    pool *workers;
    float *scratch; /* [n_threads][2][PIECE_ELEMS]: values, and the values read back */
    uint8_t *chunk; /* [CHUNK_BYTES] */
    gguf_writer *writer;
    progress report;
    pi_quantize_result result;
    bool forget_losses;  /* drop the losses that prepare measured: they apply to other weights */
    uint64_t bytes_done; /* of the input */
} quantization;

pi_quantize_options pi_quantize_default_options(void) {
    return (pi_quantize_options){.type = "Q4_K_M"};
}

/* ---- types and checks ------------------------------------------------------------------------ */

static pi_status read_request(quantization *q, pi_error *err) {
    const pi_quantize_options *o = q->options;
    if (o->n_threads < 0 || o->n_threads > POOL_MAX_THREADS)
        return error_set(err, PI_ERR_ARG, "bad number of threads: %d: choose 0 to %d", o->n_threads,
                         POOL_MAX_THREADS);
    const char *name = o->type ? o->type : pi_quantize_default_options().type;
    quant_mix_request *r = &q->request;
    *r = (quant_mix_request){.mix = quant_mix_find(name),
                             .pure = o->pure,
                             .leave_output = o->leave_output,
                             .has_importance = o->imatrix != NULL,
                             .overrides = o->tensor_types,
                             .n_overrides = o->n_tensor_types};
    if (!r->mix) {
        char known[512];
        quant_mix_list(known, sizeof known);
        const quant_mix *guess = quant_mix_guess(name);
        if (guess)
            return error_set(err, PI_ERR_ARG, "unknown type: %.40s: did you mean %s?", name,
                             guess->name);
        return error_set(err, PI_ERR_ARG, "unknown type: %.40s: choose one of %s", name, known);
    }
    pi_status status = PI_OK;
    r->has_output_type = o->output_type != NULL;
    r->has_embedding_type = o->embedding_type != NULL;
    if (o->output_type)
        status = quant_mix_find_type(o->output_type, "type of the output matrix", &r->output_type,
                                     err);
    if (o->embedding_type && status == PI_OK)
        status = quant_mix_find_type(o->embedding_type, "type of the embeddings",
                                     &r->embedding_type, err);
    for (size_t i = 0, n = 0; i < o->n_chat_template && status == PI_OK; i += n) {
        n = utf8_length((const unsigned char *)o->chat_template + i, o->n_chat_template - i);
        if (n == 0) status = error_set(err, PI_ERR_FORMAT, "the chat template is not UTF-8");
    }
    quant_type unused;
    for (size_t i = 0; i < o->n_tensor_types && status == PI_OK; i++)
        status = quant_mix_find_type(o->tensor_types[i].type, "type of tensors", &unused, err);
    return status;
}

/* A second lossy quantization is almost never intended. Conversion to float is lossless. */
static pi_status check_requantize(const quantization *q, pi_error *err) {
    if (q->options->allow_requantize) return PI_OK;
    for (uint64_t i = 0; i < gguf_n_tensors(q->in); i++) {
        const gguf_tensor *t = gguf_tensor_at(q->in, i);
        const quant_traits *from = quant_find((uint32_t)t->type);
        const quant_traits *to = quant_find((uint32_t)q->choices[i].type);
        if (from != to && from->is_quantized && to->is_quantized)
            return error_set(err, PI_ERR_ARG,
                             "already quantized: %.200s: %s is %s and would become %s: start from "
                             "the F16 or F32 model, or set allow_requantize",
                             q->in_path, t->name, from->name, to->name);
    }
    return PI_OK;
}

/* Without an importance matrix, one and two bits per weight are no better than noise. */
static pi_status check_importance(const quantization *q, pi_error *err) {
    for (uint64_t i = 0; i < gguf_n_tensors(q->in) && !q->options->imatrix; i++) {
        const gguf_tensor *t = gguf_tensor_at(q->in, i);
        if (q->choices[i].type != t->type &&
            quant_mix_wants_importance(q->choices[i].type, t->name))
            return error_set(err, PI_ERR_ARG,
                             "no importance matrix: %.200s: %s would become %s, which is useless "
                             "without one: make one with imatrix, or choose another type",
                             q->in_path, t->name, quant_find((uint32_t)q->choices[i].type)->name);
    }
    return PI_OK;
}

static size_t tensor_bytes(const gguf_tensor *t, quant_type type) {
    size_t row_bytes = 0;
    bool fits = quant_row_bytes(type, t->dims[0], &row_bytes);
    assert(fits); /* the choice guarantees it */
    (void)fits;
    return row_bytes * (t->n_elems / t->dims[0]);
}

static void count_all(quantization *q) {
    pi_quantize_result *r = &q->result;
    r->n_tensors = gguf_n_tensors(q->in);
    for (uint64_t i = 0; i < r->n_tensors; i++) {
        const gguf_tensor *t = gguf_tensor_at(q->in, i);
        r->n_quantized += t->type != q->choices[i].type;
        r->n_fallback += q->choices[i].fallback;
        r->n_elems += t->n_elems;
        r->bytes_in += t->n_bytes;
        r->bytes_out += tensor_bytes(t, q->choices[i].type);
    }
    if (r->n_fallback)
        notify(&q->notifier,
               "%llu of %llu tensors get a fallback type: their rows are not a multiple of the "
               "block size of the type in mix %s",
               (unsigned long long)r->n_fallback, (unsigned long long)r->n_tensors,
               q->request.mix->name);
}

static bool is_measured_loss(gguf_string key) {
    return gguf_string_is(key, SPARSE_KEY_CALIBRATION_LOSS) ||
           gguf_string_is(key, SPARSE_KEY_HEAD_LOSS) ||
           gguf_string_is(key, SPARSE_KEY_THRESHOLD_LOSS) ||
           gguf_string_is(key, SPARSE_KEY_PREDICTOR_RECALL);
}

/* The losses that prepare measured apply to the old weights; conversion to F32 does not change
 * weights. */
static void check_losses(quantization *q) {
    bool has_losses = false, changes = false;
    for (uint64_t i = 0; i < gguf_n_values(q->in); i++)
        has_losses = has_losses || is_measured_loss(gguf_value_at(q->in, i)->key);
    for (uint64_t i = 0; i < gguf_n_tensors(q->in); i++) {
        quant_type to = q->choices[i].type;
        changes = changes || (to != gguf_tensor_at(q->in, i)->type && to != QUANT_F32);
    }
    q->forget_losses = has_losses && changes;
    if (q->forget_losses)
        notify(&q->notifier, "the losses measured by prepare are dropped, as the weights change: "
                             "mode auto stays lossless until prepare measures the new file");
}

/* Counts the quantized matrices that have an entry in the importance matrix. */
static pi_status count_importance(const quantization *q, pi_error *err) {
    enum { NAMES = 3 };
    uint64_t n = 0, n_without = 0;
    char names[NAMES * (GGUF_MAX_NAME + 2) + 1] = "";
    bool transposed = false;
    for (uint64_t i = 0; i < gguf_n_tensors(q->in) && q->importance.file; i++) {
        const gguf_tensor *t = gguf_tensor_at(q->in, i);
        const float *importance;
        quant_type to = q->choices[i].type;
        if (to == t->type || !quant_find((uint32_t)to)->is_quantized) continue;
        pi_status status = imatrix_find(&q->importance, t, &importance, err);
        if (status != PI_OK) return status;
        n++;
        if (importance) continue;
        transposed = transposed || strstr(t->name, "ffn_down_t");
        size_t used = strlen(names);
        if (n_without++ < NAMES)
            snprintf(names + used, sizeof names - used, "%s %s", n_without == 1 ? "" : ",",
                     t->name);
    }
    if (n == 0) return PI_OK;
    notify(&q->notifier, "importance matrix: %llu of %llu matrices%s%s%s",
           (unsigned long long)(n - n_without), (unsigned long long)n,
           n_without ? ", none for" : "", names, n_without > NAMES ? ", ..." : "");
    if (transposed)
        notify(&q->notifier, "ffn_down_t is quantized without the importance matrix: its rows are "
                             "neurons, and importance is per input column");
    return PI_OK;
}

/* The output has GGUF's magic: the properties that PWRI implies, activations and predictors, would
 * be lost. */
static pi_status check_magic(const quantization *q, pi_error *err) {
    if (!gguf_is_pwri(q->in)) return PI_OK;
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "made for the original PowerInfer: %s: files with the magic PWRI cannot be "
                     "quantized; quantize the model that it was made from",
                     q->in_path);
}

/* Bundles consist of rows of several matrices. */
static pi_status check_bundles(const quantization *q, pi_error *err) {
    for (uint64_t i = 0; i < gguf_n_tensors(q->in); i++) {
        const gguf_tensor *t = gguf_tensor_at(q->in, i);
        bool experts = strstr(t->name, ".ffn_bundle_exps.");
        if (!experts && !strstr(t->name, ".ffn_bundle.")) continue;
        return error_set(
            err, PI_ERR_UNSUPPORTED,
            "%s are bundled: %.200s: %s has rows of several matrices: rearrange the file first, "
            "with bundles = PI_BUNDLES_NONE",
            experts ? "experts" : "neurons", q->in_path, t->name);
    }
    return PI_OK;
}

static pi_status read_input(quantization *q, pi_error *err) {
    pi_status status = gguf_open(q->in_path, NULL, &q->in, err);
    if (status == PI_OK) status = check_magic(q, err);
    if (status == PI_OK) status = check_bundles(q, err);
    if (status == PI_OK && q->options->imatrix)
        status = imatrix_open(q->options->imatrix, &q->importance, err);
    if (status != PI_OK) return status;
    uint64_t n = gguf_n_tensors(q->in);
    q->choices = mem_calloc(n, sizeof *q->choices);
    if (!q->choices) return error_nomem(err, n * sizeof *q->choices, "types of tensors");
    status = quant_mix_choose(q->in, &q->request, q->choices, err);
    if (status == PI_OK) status = check_requantize(q, err);
    if (status == PI_OK) status = check_importance(q, err);
    if (status == PI_OK) status = count_importance(q, err);
    if (status != PI_OK) return status;
    count_all(q);
    check_losses(q);
    return PI_OK;
}

static void tell_tensor(const quantization *q, uint64_t i, float relative_rmse) {
    if (!q->options->tensor) return;
    const gguf_tensor *t = gguf_tensor_at(q->in, i);
    quant_type to = q->choices[i].type;
    pi_quantize_tensor row = {.from = quant_find((uint32_t)t->type)->name,
                              .to = quant_find((uint32_t)to)->name,
                              .n_elems = t->n_elems,
                              .bytes_in = t->n_bytes,
                              .bytes_out = tensor_bytes(t, to),
                              .fallback = q->choices[i].fallback,
                              .relative_rmse = relative_rmse};
    _Static_assert(sizeof row.name == sizeof t->name, "names of tensors fit");
    memcpy(row.name, t->name, sizeof row.name);
    q->options->tensor(q->options->user, &row);
}

/* ---- one tensor ------------------------------------------------------------------------------ */

typedef struct piece_job {
    const quantization *q;
    const gguf_tensor *tensor;
    const quant_traits *from, *to;
    const float *importance; /* [n_matrices][dims[0]] or NULL */
    size_t from_row, to_row; /* bytes */
    uint64_t pieces_per_row;
    uint64_t first, n; /* pieces of this chunk */
    int take;          /* pieces that a thread takes at once */
    bool measure;
    atomic_uint_fast64_t bad_source, bad_result; /* index + 1 of a row that is not finite */
    /* [n_threads][2]: sums of squared errors, and of squares */
    double *sums;
} piece_job;

/* Bytes of n elements of a type whose blocks divide n. */
static size_t bytes_of(const quant_traits *t, uint64_t n) {
    return (size_t)(n / (uint64_t)t->block_elems) * (size_t)t->block_bytes;
}

/* Offset of a piece in the output of the whole tensor. */
static size_t piece_offset(const piece_job *job, uint64_t piece) {
    return (size_t)(piece / job->pieces_per_row) * job->to_row +
           bytes_of(job->to, piece % job->pieces_per_row * PIECE_ELEMS);
}

static void measure_piece(const piece_job *job, const float *x, const void *result, float *back,
                          uint64_t n, double *sums) {
    double error = 0, power = 0;
    job->to->dequantize(result, back, (int64_t)n);
    for (uint64_t i = 0; i < n; i++) {
        double off = (double)back[i] - (double)x[i];
        error += off * off;
        power += (double)x[i] * (double)x[i];
    }
    sums[0] += error;
    sums[1] += power;
}

static void quantize_piece(piece_job *job, uint64_t piece, float *x, double *sums) {
    const gguf_tensor *t = job->tensor;
    uint64_t row = piece / job->pieces_per_row, begin = piece % job->pieces_per_row * PIECE_ELEMS;
    uint64_t n = t->dims[0] - begin < PIECE_ELEMS ? t->dims[0] - begin : PIECE_ELEMS;
    const uint8_t *source = t->data + row * job->from_row + bytes_of(job->from, begin);
    uint8_t *out = job->q->chunk + (piece_offset(job, piece) - piece_offset(job, job->first));
    job->from->dequantize(source, x, (int64_t)n);
    const float *importance = job->importance;
    if (importance) importance += row / t->dims[1] * t->dims[0] + begin;
    quant_fault fault = quant_quantize_checked(job->to, x, out, (int64_t)n, importance);
    if (fault == QUANT_BAD_SOURCE) atomic_store(&job->bad_source, row + 1);
    if (fault == QUANT_BAD_RESULT) atomic_store(&job->bad_result, row + 1);
    if (fault == QUANT_SOUND && job->measure) measure_piece(job, x, out, x + PIECE_ELEMS, n, sums);
}

static void run_pieces(void *arg, int ith, int nth) {
    piece_job *job = arg;
    (void)nth;
    float *scratch = job->q->scratch + (size_t)ith * 2 * PIECE_ELEMS;
    for (;;) {
        uint64_t begin = (uint64_t)pool_take(job->q->workers, job->take);
        if (begin >= job->n) return;
        uint64_t end = begin + (uint64_t)job->take < job->n ? begin + (uint64_t)job->take : job->n;
        for (uint64_t i = begin; i < end; i++)
            quantize_piece(job, job->first + i, scratch, job->sums + 2 * ith);
    }
}

static pi_status check_pieces(piece_job *job, pi_error *err) {
    uint64_t source = atomic_load(&job->bad_source), result = atomic_load(&job->bad_result);
    if (source)
        return error_set(err, PI_ERR_RANGE,
                         "not a finite number: %.200s: tensor %s, row %llu: get the file again",
                         job->q->in_path, job->tensor->name, (unsigned long long)source - 1);
    if (result)
        return error_set(
            err, PI_ERR_RANGE, "overflow in %s: %.200s: tensor %s, row %llu: keep it in bf16",
            job->to->name, job->q->in_path, job->tensor->name, (unsigned long long)result - 1);
    return PI_OK;
}

static pi_status advance(quantization *q, uint64_t n_bytes, pi_error *err) {
    q->bytes_done += n_bytes;
    double fraction = (double)q->bytes_done / (double)q->result.bytes_in;
    if (progress_step(&q->report, "quantizing", fraction)) return PI_OK;
    return error_set(err, PI_ERR_CANCELLED, "cancelled: %.200s: nothing was written", q->out_path);
}

static pi_status copy_tensor(quantization *q, const gguf_tensor *t, pi_error *err) {
    pi_status status = gguf_check_tensor(q->in, t, q->workers, err);
    for (size_t at = 0; at < t->n_bytes && status == PI_OK; at += CHUNK_BYTES) {
        size_t n = t->n_bytes - at < CHUNK_BYTES ? t->n_bytes - at : CHUNK_BYTES;
        status = gguf_write_data(q->writer, t->data + at, n, err);
        gguf_forget(q->in, t, at, n);
        if (status == PI_OK) status = advance(q, n, err);
    }
    return status;
}

/* Writes the job's pieces in chunks. */
static pi_status write_pieces(quantization *q, piece_job *job, pi_error *err) {
    const gguf_tensor *t = job->tensor;
    uint64_t n_pieces = t->n_elems / t->dims[0] * job->pieces_per_row;
    uint64_t longest = t->dims[0] < PIECE_ELEMS ? t->dims[0] : PIECE_ELEMS;
    uint64_t per_chunk = CHUNK_BYTES / bytes_of(job->to, longest);
    size_t bytes_before = 0;
    for (job->first = 0; job->first < n_pieces; job->first += job->n) {
        job->n = n_pieces - job->first < per_chunk ? n_pieces - job->first : per_chunk;
        pool_run(q->workers, pool_size(q->workers), run_pieces, job);
        pi_status status = check_pieces(job, err);
        if (status != PI_OK) return status;
        size_t n_bytes = piece_offset(job, job->first + job->n) - piece_offset(job, job->first);
        status = gguf_write_data(q->writer, q->chunk, n_bytes, err);
        if (status != PI_OK) return status;
        /* only whole rows are reported as read */
        size_t bytes_read = (size_t)((job->first + job->n) / job->pieces_per_row) * job->from_row;
        gguf_forget(q->in, t, bytes_before, bytes_read - bytes_before);
        status = advance(q, bytes_read - bytes_before, err);
        if (status != PI_OK) return status;
        bytes_before = bytes_read;
    }
    return PI_OK;
}

static pi_status convert_tensor(quantization *q, uint64_t number, float *relative_rmse,
                                pi_error *err) {
    const gguf_tensor *t = gguf_tensor_at(q->in, number);
    int n_threads = pool_size(q->workers);
    piece_job job = {.q = q,
                     .tensor = t,
                     .from = quant_find((uint32_t)t->type),
                     .to = quant_find((uint32_t)q->choices[number].type),
                     .pieces_per_row = (t->dims[0] + PIECE_ELEMS - 1) / PIECE_ELEMS,
                     .measure = q->options->measure};
    pi_status status = imatrix_find(&q->importance, t, &job.importance, err);
    if (status != PI_OK) return status;
    job.from_row = bytes_of(job.from, t->dims[0]);
    job.to_row = bytes_of(job.to, t->dims[0]);
    job.take = t->dims[0] < PIECE_ELEMS ? (int)(PIECE_ELEMS / t->dims[0]) : 1;
    size_t n_sums = 2 * (size_t)n_threads;
    job.sums = mem_calloc(n_sums, sizeof *job.sums);
    if (!job.sums) return error_nomem(err, n_sums * sizeof *job.sums, "sums of errors");
    status = write_pieces(q, &job, err);
    double error = 0, power = 0;
    for (int i = 0; i < n_threads; i++) {
        error += job.sums[2 * i];
        power += job.sums[2 * i + 1];
    }
    mem_free(job.sums);
    *relative_rmse = !job.measure ? -1.0f : power > 0 ? (float)sqrt(error / power) : 0.0f;
    return status;
}

/* ---- output file ----------------------------------------------------------------------------- */

static void put_keys(quantization *q) {
    const pi_quantize_options *o = q->options;
    gguf_writer *w = q->writer;
    for (uint64_t i = 0; i < gguf_n_values(q->in); i++) {
        const gguf_value *v = gguf_value_at(q->in, i);
        if (gguf_string_starts(v->key, "split.")) continue; /* the parts are joined */
        if (q->forget_losses && is_measured_loss(v->key)) continue;
        if (!q->request.mix->copy && gguf_string_starts(v->key, TUNE_KEYS)) continue;
        /* also keys of further templates */
        if (o->chat_template && gguf_string_starts(v->key, KEY_TEMPLATE)) continue;
        gguf_put_value(w, v);
    }
    if (o->n_chat_template) gguf_put_bytes(w, KEY_TEMPLATE, o->chat_template, o->n_chat_template);
    if (q->request.mix->copy) return;
    gguf_put_u32(w, "general.quantization_version", QUANTIZATION_VERSION);
    gguf_put_u32(w, "general.file_type", q->request.mix->file_type);
    if (!q->importance.file) return;
    gguf_string dataset = imatrix_dataset(&q->importance);
    gguf_put_string(w, "quantize.imatrix.file", o->imatrix);
    if (dataset.n_bytes)
        gguf_put_bytes(w, "quantize.imatrix.dataset", dataset.data, dataset.n_bytes);
    uint64_t n_entries = imatrix_entries(&q->importance);
    gguf_put_u32(w, "quantize.imatrix.entries_count", (uint32_t)n_entries);
    gguf_put_u32(w, "quantize.imatrix.chunks_count", imatrix_chunks(&q->importance));
}

static pi_status declare_tensors(quantization *q, pi_error *err) {
    pi_status status = PI_OK;
    for (uint64_t i = 0; i < gguf_n_tensors(q->in) && status == PI_OK; i++) {
        const gguf_tensor *t = gguf_tensor_at(q->in, i);
        status = gguf_add_tensor(q->writer, t->name, q->choices[i].type, t->n_dims, t->dims, err);
    }
    if (status == PI_OK) status = gguf_writer_begin_data(q->writer, err);
    return status;
}

static pi_status start_output(quantization *q, pi_error *err) {
    pi_status status = gguf_refuse_output(q->in, q->out_path, err);
    if (status != PI_OK) return status;
    int n = q->options->n_threads > 0 ? q->options->n_threads : cpu_count_physical();
    status = pool_create(n, &q->workers, err);
    if (status != PI_OK) return status;
    size_t scratch_bytes = (size_t)n * 2 * PIECE_ELEMS * sizeof *q->scratch;
    q->scratch = mem_alloc(scratch_bytes);
    q->chunk = mem_alloc(CHUNK_BYTES);
    if (!q->scratch || !q->chunk)
        return error_nomem(err, scratch_bytes + CHUNK_BYTES, "rows of tensors");
    status = gguf_writer_create(q->out_path, &q->writer, err);
    if (status != PI_OK) return status;
    put_keys(q);
    return declare_tensors(q, err);
}

static pi_status write_output(quantization *q, pi_error *err) {
    pi_status status = start_output(q, err);
    for (uint64_t i = 0; i < gguf_n_tensors(q->in) && status == PI_OK; i++) {
        const gguf_tensor *t = gguf_tensor_at(q->in, i);
        float relative_rmse = 0;
        status = t->type == q->choices[i].type ? copy_tensor(q, t, err)
                                               : convert_tensor(q, i, &relative_rmse, err);
        if (status == PI_OK) tell_tensor(q, i, relative_rmse);
    }
    if (status != PI_OK) return status;
    gguf_writer *writer = q->writer;
    q->writer = NULL; /* finish frees the writer even on errors */
    return gguf_writer_finish(writer, err);
}

const char *pi_quantize_type_name(const char *name) {
    const quant_mix *mix = quant_mix_find(name);
    return mix ? mix->name : NULL;
}

pi_status pi_quantize(const char *in_path, const char *out_path, const pi_quantize_options *options,
                      pi_quantize_result *result, pi_error *err) {
    pi_quantize_options defaults = pi_quantize_default_options();
    quantization q = {
        .options = options ? options : &defaults, .in_path = in_path, .out_path = out_path};
    assert(in_path && (out_path || q.options->dry_run));
    q.notifier = (notifier){q.options->message, q.options->user};
    q.report = (progress){.fn = q.options->progress, .user = q.options->user};
    pi_status status = read_request(&q, err);
    if (status == PI_OK) status = read_input(&q, err);
    if (status == PI_OK && q.options->dry_run) {
        for (uint64_t i = 0; i < gguf_n_tensors(q.in); i++) tell_tensor(&q, i, -1);
    } else if (status == PI_OK) {
        status = write_output(&q, err);
    }
    if (status == PI_OK && result) *result = q.result;
    gguf_writer_abort(q.writer);
    mem_free(q.chunk);
    mem_free(q.scratch);
    pool_destroy(q.workers);
    mem_free(q.choices);
    imatrix_close(&q.importance);
    gguf_close(q.in);
    return status;
}
