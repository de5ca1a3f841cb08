/* convert_tensors.c: see convert_tensors.h.
 *
 * Memory: one output chunk of at most CHUNK_BYTES (or one row) and one row of floats per thread;
 * the source is mapped, and let go of chunk by chunk. Threads: rows of a chunk are handed out one
 * by one; the chunk is written by the calling thread. */
#include "convert_tensors.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "mem.h"

/* Large enough that starting the threads costs nothing, small enough to be of no weight. */
static const size_t CHUNK_BYTES = (size_t)16 << 20;

enum { HF_NAME_MAX = 256 };

/* ---- matching -------------------------------------------------------------------------------- */

typedef struct matcher {
    const hf_config *config;
    const safetensors *weights;
    quant_type type;
    const talk *talk;
    bool *taken; /* [safetensors_count] */
    size_t n_fallback;
    convert_plan *plan;
    pi_error *err;
} matcher;

/* "model.layers.%d.x" with the layer's number; the pattern comes from our own table. */
static void hf_name(char out[HF_NAME_MAX], const char *pattern, int layer) {
    const char *number = strstr(pattern, "%d");
    if (number) {
        snprintf(out, HF_NAME_MAX, "%.*s%d%s", (int)(number - pattern), pattern, layer, number + 2);
    } else {
        snprintf(out, HF_NAME_MAX, "%s", pattern);
    }
}

/* Checkpoints saved from the bare network lack the prefix "model.". */
static size_t find_source(const safetensors *weights, const char *name) {
    static const char prefix[] = "model.";
    size_t at = safetensors_find(weights, name);
    if (at == SIZE_MAX && strncmp(name, prefix, sizeof prefix - 1) == 0)
        at = safetensors_find(weights, name + sizeof prefix - 1);
    return at;
}

static pi_status check_source(const convert_tensor *t, const safetensor *s, pi_error *err) {
    if (s->dtype != SAFETENSORS_F32 && s->dtype != SAFETENSORS_F16 && s->dtype != SAFETENSORS_BF16)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "data type %s: %s: tensor %.100s: F32, F16 and BF16 can be converted",
                         safetensors_dtype_name(s->dtype), s->file, s->name);
    bool same = s->n_dims == t->n_dims && s->dims[s->n_dims - 1] == t->dims[0] &&
                (t->n_dims == 1 || s->dims[0] == t->dims[1]);
    if (same) return PI_OK;
    char found[128], expected[64];
    size_t used = 0;
    found[0] = 0;
    for (int i = 0; i < s->n_dims && used < sizeof found; i++)
        used += (size_t)snprintf(found + used, sizeof found - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)s->dims[i]);
    if (t->n_dims == 2) {
        snprintf(expected, sizeof expected, "%llu, %llu", (unsigned long long)t->dims[1],
                 (unsigned long long)t->dims[0]);
    } else {
        snprintf(expected, sizeof expected, "%llu", (unsigned long long)t->dims[0]);
    }
    return error_set(err, PI_ERR_FORMAT,
                     "unexpected shape: %s: tensor %.100s is [%s], config.json needs [%s]", s->file,
                     s->name, found, expected);
}

/* Rows of Q and K of one head, their biases and norms are reordered where the architecture rotates
 * neighbours and Hugging Face rotates halves. */
static bool is_rotated(tensor_role role) {
    return role == ROLE_ATTN_Q || role == ROLE_ATTN_K || role == ROLE_ATTN_Q_BIAS ||
           role == ROLE_ATTN_K_BIAS || role == ROLE_ATTN_Q_NORM || role == ROLE_ATTN_K_NORM;
}

/* Quantized rows must be whole blocks; others fall back to F16. */
static quant_type choose_type(matcher *m, const convert_tensor *t) {
    if (t->n_dims == 1) return QUANT_F32;
    size_t n_bytes;
    if (quant_row_bytes(m->type, t->dims[0], &n_bytes)) return m->type;
    if (m->n_fallback++ == 0)
        talk_say(m->talk, "%s and others keep F16: rows of %llu are not a multiple of %d for %s",
                 t->name, (unsigned long long)t->dims[0], quant_find(m->type)->block_elems,
                 quant_find(m->type)->name);
    return QUANT_F16;
}

static pi_status append(matcher *m, const convert_tensor *t) {
    convert_plan *p = m->plan;
    if (!mem_grow((void **)&p->tensors, &p->capacity, p->n_tensors + 1, sizeof *p->tensors,
                  GGUF_MAX_TENSORS))
        return error_nomem(m->err, (p->n_tensors + 1) * sizeof *p->tensors, "list of tensors");
    size_t row_bytes;
    bool fits = quant_row_bytes(t->type, t->dims[0], &row_bytes);
    assert(fits);
    (void)fits;
    p->n_bytes += row_bytes * t->dims[1];
    p->tensors[p->n_tensors++] = *t;
    return PI_OK;
}

/* Is this optional tensor there in the model, though the weights lack it? */
static pi_status match_absent(matcher *m, const arch_tensor *row, const char *name) {
    if (row->role == ROLE_OUTPUT && m->config->tied == HF_TIED_UNSAID) {
        talk_say(m->talk, "no %s: the head is the embedding matrix", name);
        return PI_OK;
    }
    bool needed = !(row->flags & TENSOR_OPTIONAL) ||
                  (row->role == ROLE_OUTPUT && m->config->tied == HF_TIED_NO);
    if (!needed) return PI_OK;
    return error_set(m->err, PI_ERR_FORMAT,
                     "missing tensor: %s is in no safetensors file of the folder: model type and "
                     "config.json need it",
                     name);
}

static pi_status match_one(matcher *m, const arch_tensor *row, int layer) {
    const hf_config *c = m->config;
    convert_tensor t = {.n_dims = row->dims[1] == DIM_NONE ? 1 : 2,
                        .dims = {hf_config_dim(c, row->dims[0]), hf_config_dim(c, row->dims[1])}};
    arch_tensor_name(row, layer, t.name);
    if (!row->hf_name) { /* not in any checkpoint */
        if (row->role != ROLE_ROPE_FREQS || c->rope.kind != HF_ROPE_LLAMA3) return PI_OK;
        t.type = QUANT_F32;
        return append(m, &t);
    }
    char name[HF_NAME_MAX];
    hf_name(name, row->hf_name, layer);
    size_t at = find_source(m->weights, name);
    if (at == SIZE_MAX) return match_absent(m, row, name);
    m->taken[at] = true;
    /* some checkpoints store the tied head a second time */
    if (row->role == ROLE_OUTPUT && c->tied == HF_TIED_YES) return PI_OK;
    t.source = safetensors_at(m->weights, at);
    pi_status status = check_source(&t, t.source, m->err);
    if (status != PI_OK) return status;
    if (c->arch->rope == ROPE_INTERLEAVED && is_rotated(row->role))
        t.permute = (uint64_t)c->head_dim;
    t.type = choose_type(m, &t);
    return append(m, &t);
}

/* Tables that old checkpoints saved along with the weights and that are computed anyway. */
static bool is_derived(const char *name) {
    static const char *const endings[] = {".rotary_emb.inv_freq", ".masked_bias",
                                          ".rotary_emb.cos_cached", ".rotary_emb.sin_cached"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t n_ending = strlen(endings[i]);
        if (n >= n_ending && strcmp(name + n - n_ending, endings[i]) == 0) return true;
    }
    return false;
}

/* A tensor that is left over means that the model computes something which the table does not know:
 * the result would be another model. */
static pi_status check_leftovers(const matcher *m) {
    for (size_t i = 0; i < safetensors_count(m->weights); i++) {
        const safetensor *s = safetensors_at(m->weights, i);
        if (m->taken[i] || is_derived(s->name)) continue;
        return error_set(m->err, PI_ERR_UNSUPPORTED,
                         "unknown tensor: %s: %.100s has no place in a model of %d layers of "
                         "architecture %s",
                         s->file, s->name, m->config->n_layer, m->config->arch->name);
    }
    return PI_OK;
}

static pi_status match_all(matcher *m) {
    const arch_row *arch = m->config->arch;
    pi_status status = PI_OK;
    /* the embedding opens the file, layers follow, the rest closes it */
    for (int i = 0; i < arch->n_tensors && status == PI_OK; i++)
        if (arch->tensors[i].role == ROLE_TOKEN_EMBD) status = match_one(m, &arch->tensors[i], 0);
    for (int layer = 0; layer < m->config->n_layer && status == PI_OK; layer++)
        for (int i = 0; i < arch->n_tensors && status == PI_OK; i++)
            if (arch->tensors[i].flags & TENSOR_PER_LAYER)
                status = match_one(m, &arch->tensors[i], layer);
    for (int i = 0; i < arch->n_tensors && status == PI_OK; i++)
        if (!(arch->tensors[i].flags & TENSOR_PER_LAYER) &&
            arch->tensors[i].role != ROLE_TOKEN_EMBD)
            status = match_one(m, &arch->tensors[i], 0);
    return status == PI_OK ? check_leftovers(m) : status;
}

pi_status convert_plan_make(const hf_config *c, const safetensors *weights, quant_type type,
                            const talk *t, convert_plan *out, pi_error *err) {
    convert_plan plan = {.weights = weights};
    matcher m = {
        .config = c, .weights = weights, .type = type, .talk = t, .plan = &plan, .err = err};
    m.taken = mem_calloc(safetensors_count(weights), sizeof *m.taken);
    if (!m.taken) return error_nomem(err, safetensors_count(weights), "marks of tensors");
    pi_status status = match_all(&m);
    mem_free(m.taken);
    if (status != PI_OK) convert_plan_free(&plan);
    *out = plan;
    return status;
}

void convert_plan_free(convert_plan *p) {
    mem_free(p->tensors);
    *p = (convert_plan){0};
}

pi_status convert_plan_declare(const convert_plan *p, gguf_writer *w, pi_error *err) {
    for (size_t i = 0; i < p->n_tensors; i++) {
        const convert_tensor *t = &p->tensors[i];
        pi_status status = gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Which row of the source becomes row `row`. Within a head of d rows, Hugging Face has the first
 * elements of all pairs, then the second ones; GGUF's interleaved order has pair after pair. */
static uint64_t permuted_row(uint64_t row, uint64_t d) {
    if (d == 0) return row;
    uint64_t in_head = row % d;
    return row - in_head + in_head / 2 + (in_head % 2) * (d / 2);
}

/* n elements from element `first` of the source as floats. */
static void load_floats(const safetensor *s, uint64_t first, uint64_t n, float *out) {
    if (s->dtype == SAFETENSORS_F32) {
        memcpy(out, s->data + first * sizeof(float), n * sizeof(float));
        return;
    }
    const uint8_t *in = s->data + first * sizeof(uint16_t);
    bool brain = s->dtype == SAFETENSORS_BF16;
    for (uint64_t i = 0; i < n; i++) {
        uint16_t bits = (uint16_t)(in[2 * i] | in[2 * i + 1] << 8);
        out[i] = brain ? quant_bf16_to_f32(bits) : quant_f16_to_f32(bits);
    }
}

/* A row of the result; a vector counts as one row. */
static void load_row(const convert_tensor *t, uint64_t row, float *out) {
    uint64_t n = t->dims[0];
    if (t->n_dims == 2 || t->permute == 0) {
        load_floats(t->source, permuted_row(row, t->permute) * n, n, out);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        load_floats(t->source, permuted_row(i, t->permute), 1, &out[i]);
}

typedef struct row_job {
    const convert_tensor *tensor;
    const quant_traits *traits;
    pool *workers;
    float *scratch; /* [n_threads][dims[0]] */
    uint8_t *out;   /* [n_rows][row_bytes] */
    size_t row_bytes;
    uint64_t first_row, n_rows;
    atomic_uint_fast64_t bad_source, bad_result; /* a row with values that are not finite, + 1 */
} row_job;

static void convert_rows(void *arg, int ith, int nth) {
    (void)nth;
    row_job *job = arg;
    uint64_t n = job->tensor->dims[0];
    float *row = job->scratch + (size_t)ith * n;
    for (;;) {
        uint64_t i = (uint64_t)pool_take(job->workers, 1);
        if (i >= job->n_rows) return;
        load_row(job->tensor, job->first_row + i, row);
        uint8_t *out = job->out + i * job->row_bytes;
        quant_fault fault = quant_quantize_checked(job->traits, row, out, (int64_t)n, NULL);
        if (fault == QUANT_BAD_SOURCE) atomic_store(&job->bad_source, job->first_row + i + 1);
        if (fault == QUANT_BAD_RESULT) atomic_store(&job->bad_result, job->first_row + i + 1);
    }
}

static pi_status check_rows(row_job *job, pi_error *err) {
    const safetensor *s = job->tensor->source;
    uint64_t source = atomic_load(&job->bad_source), result = atomic_load(&job->bad_result);
    if (source)
        return error_set(
            err, PI_ERR_RANGE,
            "not a finite number: %s: tensor %.100s, row %llu: download the file again", s->file,
            s->name, (unsigned long long)source - 1);
    if (result)
        return error_set(err, PI_ERR_RANGE,
                         "weights too large for %s: %s: tensor %.100s, row %llu: use type bf16",
                         job->traits->name, s->file, s->name, (unsigned long long)result - 1);
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

/* The source of a chunk's rows. A head whose rows are reordered may lie across the end of a chunk;
 * the few pages of it that are read again come from the page cache. */
static void forget_rows(const row_job *job, const safetensors *weights) {
    const safetensor *s = job->tensor->source;
    size_t row_bytes = s->n_bytes / (size_t)job->tensor->dims[1];
    safetensors_forget(weights, s->data + job->first_row * row_bytes,
                       (size_t)job->n_rows * row_bytes);
}

static pi_status write_tensor(const convert_plan *p, const convert_tensor *t, pool *workers,
                              tally *sum, gguf_writer *w, pi_error *err) {
    row_job job = {.tensor = t, .traits = quant_find(t->type), .workers = workers};
    size_t scratch_bytes;
    int n_threads = pool_size(workers);
    if (!quant_row_bytes(t->type, t->dims[0], &job.row_bytes) ||
        !size_mul(t->dims[0] * sizeof(float), (size_t)n_threads, &scratch_bytes))
        return error_set(err, PI_ERR_LIMIT, "tensor %s: rows too long", t->name);
    uint64_t chunk_rows = CHUNK_BYTES / job.row_bytes;
    if (chunk_rows < 1) chunk_rows = 1;
    if (chunk_rows > t->dims[1]) chunk_rows = t->dims[1];
    job.scratch = mem_alloc(scratch_bytes);
    job.out = mem_alloc(chunk_rows * job.row_bytes);
    pi_status status = PI_OK;
    if (!job.scratch || !job.out)
        status = error_nomem(err, scratch_bytes + chunk_rows * job.row_bytes, "rows");
    for (uint64_t row = 0; row < t->dims[1] && status == PI_OK; row += chunk_rows) {
        job.first_row = row;
        job.n_rows = t->dims[1] - row < chunk_rows ? t->dims[1] - row : chunk_rows;
        int nth = job.n_rows < (uint64_t)n_threads ? (int)job.n_rows : n_threads;
        pool_run(workers, nth, convert_rows, &job);
        forget_rows(&job, p->weights);
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
    hf_config_rope_factors(c, factors);
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
        status = t->source ? write_tensor(p, t, workers, &sum, w, err)
                           : write_rope_factors(t, c, &sum, w, err);
    }
    return status;
}
