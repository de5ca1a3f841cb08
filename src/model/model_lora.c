/* model_lora.c: see model_lora.h. All threads merge rows of a matrix, a few at a time. */
#include "model_lora.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "affix.h"
#include "cpu_topology.h"
#include "hash.h"
#include "mem.h"
#include "pool.h"

enum { TAKEN_ROWS = 16, MATRIX_ALIGN = 64 };

typedef struct lora_file {
    gguf_file *file;
    float scale, alpha;
    bool *taken; /* [gguf_n_tensors] */
} lora_file;

struct lora_set {
    lora_file *files; /* [n] */
    size_t n;
    int first, end; /* layers */
    pool *workers;  /* created when the first matrix needs it */
};

/* ---- files ----------------------------------------------------------------------------------- */

static bool text_is(const gguf_file *f, const char *key, const char *wanted, gguf_string *text) {
    const gguf_value *v = gguf_find(f, key);
    *text = (gguf_string){"", 0};
    return v && gguf_as_string(v, text) && gguf_string_is(*text, wanted);
}

static int shown(gguf_string text) {
    return (int)(text.n_bytes < 60 ? text.n_bytes : 60);
}

static pi_status check_keys(lora_file *l, const arch_row *arch, pi_error *err) {
    const char *path = gguf_path(l->file);
    gguf_string text;
    double alpha = 0;
    if (!text_is(l->file, "general.type", "adapter", &text))
        return error_set(err, PI_ERR_FORMAT,
                         "not an adapter: %s: general.type is '%.*s', not adapter; give the model "
                         "itself as the model",
                         path, shown(text), text.data);
    if (!text_is(l->file, "adapter.type", "lora", &text))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "unknown adapter: %s: adapter.type is '%.*s', this version knows lora",
                         path, shown(text), text.data);
    if (!text_is(l->file, "general.architecture", arch->name, &text))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "adapter of another model: %s: its architecture is '%.*s', the model's %s",
                         path, shown(text), text.data, arch->name);
    if (gguf_find(l->file, "adapter.alora.invocation_tokens"))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "unknown adapter: %s: activated LoRA "
                         "(adapter.alora.invocation_tokens) is not supported",
                         path);
    const gguf_value *v = gguf_find(l->file, "adapter.lora.alpha");
    if (v && (!gguf_as_f64(v, &alpha) || !(fabs(alpha) <= 1e6)))
        return error_set(err, PI_ERR_FORMAT,
                         "bad adapter: %s: key adapter.lora.alpha is not a number up to 1e6", path);
    l->alpha = (float)alpha;
    return PI_OK;
}

/* Checks that every tensor belongs to a pair. */
static pi_status check_pairs(const lora_file *l, pi_error *err) {
    for (uint64_t i = 0; i < gguf_n_tensors(l->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(l->file, i);
        char other[GGUF_MAX_NAME];
        size_t n = strlen(t->name);
        bool pair = ends_with(t->name, ".lora_a") || ends_with(t->name, ".lora_b");
        memcpy(other, t->name, n + 1);
        if (pair) other[n - 1] = other[n - 1] == 'a' ? 'b' : 'a';
        if (pair && gguf_find_tensor(l->file, other)) continue;
        return error_set(err, PI_ERR_FORMAT,
                         pair ? "bad adapter: %s: tensor %s has no counterpart"
                              : "bad adapter: %s: tensor %s is neither NAME.lora_a nor NAME.lora_b",
                         gguf_path(l->file), t->name);
    }
    return PI_OK;
}

static pi_status open_one(lora_file *l, const model_adapter *a, const arch_row *arch,
                          pi_error *err) {
    pi_status status = gguf_open(a->path, NULL, &l->file, err);
    if (status == PI_OK) status = check_keys(l, arch, err);
    if (status == PI_OK) status = check_pairs(l, err);
    if (status != PI_OK) return status;
    l->scale = a->scale;
    if (!(fabsf(a->scale) <= 1e6f))
        return error_set(err, PI_ERR_ARG, "bad scale: %s: %g: use -1e6 to 1e6", a->path,
                         (double)a->scale);
    l->taken = mem_calloc((size_t)gguf_n_tensors(l->file) + 1, sizeof *l->taken);
    return l->taken ? PI_OK : error_nomem(err, (size_t)gguf_n_tensors(l->file), "adapter");
}

pi_status lora_open(const model_adapter *adapters, size_t n, const arch_row *arch, lora_set **out,
                    pi_error *err) {
    lora_set *s = mem_calloc(1, sizeof *s);
    *out = s;
    if (!s) return error_nomem(err, sizeof *s, "adapters");
    s->files = mem_calloc(n, sizeof *s->files);
    if (!s->files) return error_nomem(err, n * sizeof *s->files, "adapters");
    s->n = n;
    s->end = INT_MAX;
    pi_status status = PI_OK;
    for (size_t i = 0; i < n && status == PI_OK; i++)
        status = open_one(&s->files[i], &adapters[i], arch, err);
    return status;
}

void lora_restrict(lora_set *s, int first, int end) {
    s->first = first;
    s->end = end;
}

void lora_close(lora_set *s) {
    if (!s) return;
    for (size_t i = 0; s->files && i < s->n; i++) {
        gguf_close(s->files[i].file);
        mem_free(s->files[i].taken);
    }
    pool_destroy(s->workers);
    mem_free(s->files);
    mem_free(s);
}

/* ---- one matrix ------------------------------------------------------------------------------ */

/* An adapter's pair for a matrix, or for a stack of matrices, as floats. */
typedef struct lora_pair {
    float *a; /* [n_stack][rank][n_in] */
    float *b; /* [n_stack][n_out][rank], times the scale */
    int64_t rank;
} lora_pair;

typedef struct merge_job {
    const gguf_tensor *t;
    const quant_traits *from, *to;
    lora_pair *pairs; /* [n_pairs] */
    size_t n_pairs;
    int64_t n_in, n_out, n_rows; /* n_out: rows per matrix of a stack */
    size_t from_bytes, to_bytes; /* per row */
    size_t item_bytes;           /* distance between two matrices of the stack */
    uint8_t *out;
    float *scratch; /* [n_threads][n_in] */
    pool *workers;
    atomic_bool bad;
} merge_job;

static void merge_row(const merge_job *job, int64_t row, float *x) {
    int64_t item = row / job->n_out, at = row % job->n_out;
    job->from->dequantize(
        job->t->data + (size_t)item * job->item_bytes + (size_t)at * job->from_bytes, x, job->n_in);
    for (size_t p = 0; p < job->n_pairs; p++) {
        const lora_pair *pair = &job->pairs[p];
        const float *a = pair->a + item * pair->rank * job->n_in, *b = pair->b + row * pair->rank;
        for (int64_t k = 0; k < pair->rank; k++)
            for (int64_t i = 0; i < job->n_in; i++) x[i] += b[k] * a[k * job->n_in + i];
    }
}

static void merge_rows(void *arg, int ith, int nth) {
    (void)nth;
    merge_job *job = arg;
    float *x = job->scratch + ith * job->n_in;
    for (;;) {
        int64_t first = pool_take(job->workers, TAKEN_ROWS);
        if (first >= job->n_rows) return;
        for (int64_t row = first; row < first + TAKEN_ROWS && row < job->n_rows; row++) {
            merge_row(job, row, x);
            if (quant_quantize_checked(job->to, x, job->out + (size_t)row * job->to_bytes,
                                       job->n_in, NULL) != QUANT_SOUND)
                atomic_store(&job->bad, true);
        }
    }
}

static pi_status fail_shape(const lora_file *l, const gguf_tensor *a, const gguf_tensor *b,
                            const gguf_tensor *t, pi_error *err) {
    return error_set(err, PI_ERR_FORMAT,
                     "adapter of another model: %s: tensor %s is [%llu, %llu] and its counterpart "
                     "[%llu, %llu], the model's matrix [%llu, %llu]",
                     gguf_path(l->file), a->name, (unsigned long long)a->dims[0],
                     (unsigned long long)a->dims[1], (unsigned long long)b->dims[0],
                     (unsigned long long)b->dims[1], (unsigned long long)t->dims[0],
                     (unsigned long long)t->dims[1]);
}

/* Converts all of a tensor to floats; NULL: out of memory. */
static float *load_floats(const gguf_tensor *t, const quant_traits *traits) {
    float *x = mem_alloc((size_t)t->n_elems * sizeof *x);
    if (x) traits->dequantize(t->data, x, (int64_t)t->n_elems);
    return x;
}

/* transpose and reorder replace *x, which is NULL after running out of memory. */
static void transpose(float **x, int64_t n_items, int64_t n_rows, int64_t n_in) {
    float *from = *x, *to = from ? mem_alloc((size_t)(n_items * n_rows * n_in) * sizeof *to) : NULL;
    for (int64_t i = 0; to && i < n_items * n_rows * n_in; i++) {
        int64_t item = i / (n_rows * n_in), row = i / n_in % n_rows, at = i % n_in;
        to[(item * n_in + at) * n_rows + row] = from[i];
    }
    mem_free(from);
    *x = to;
}

/* New item i is old item items[i], and its row r is old row rows[r]. */
static void reorder(float **x, int64_t n_items, int64_t n_rows, int64_t n_in, const int32_t *items,
                    const int32_t *rows) {
    size_t n_bytes = (size_t)n_in * sizeof(float);
    if (!items && !rows) return;
    float *from = *x, *to = from ? mem_alloc((size_t)(n_items * n_rows) * n_bytes) : NULL;
    for (int64_t i = 0; to && i < n_items * n_rows; i++) {
        int64_t item = items ? items[i / n_rows] : i / n_rows;
        int64_t row = rows ? rows[i % n_rows] : i % n_rows;
        memcpy(to + i * n_in, from + (item * n_rows + row) * n_in, n_bytes);
    }
    mem_free(from);
    *x = to;
}

static void swap_halves(lora_pair *p) {
    float *a = p->a;
    p->a = p->b;
    p->b = a;
}

/* Rearranges A and B to match the rows and columns of the model's matrix [n_stack][n_out][n_in]. */
static void arrange(lora_pair *p, const lora_form *f, int64_t n_stack, int64_t n_in,
                    int64_t n_out) {
    if (f->embedding) {
        swap_halves(p); /* [n_vocab][rank] already has the layout of B */
        transpose(&p->a, 1, n_in, p->rank);
    } else if (f->transposed) {
        swap_halves(p);
        transpose(&p->a, n_stack, n_in, p->rank);
        transpose(&p->b, n_stack, p->rank, n_out);
    }
    reorder(&p->b, n_stack, n_out, p->rank, f->items, f->rows);
    reorder(&p->a, n_stack, p->rank, n_in, f->items, NULL);
    reorder(&p->a, n_stack * p->rank, n_in, 1, NULL, f->columns);
}

/* Whether the shapes of A and B match the matrix; *rank is their rank. */
static bool pair_fits(const gguf_tensor *a, const gguf_tensor *b, const gguf_tensor *t,
                      const lora_form *f, uint64_t *rank) {
    uint64_t n_in = t->dims[f->transposed], n_out = t->dims[!f->transposed];
    *rank = b->dims[0];
    if (f->embedding && (a->dims[0] != *rank || a->dims[1] != n_out || b->dims[1] != n_in))
        return false;
    if (!f->embedding && (a->dims[0] != n_in || a->dims[1] != *rank || b->dims[1] != n_out))
        return false;
    return a->dims[2] == t->dims[2] && b->dims[2] == t->dims[2] && a->dims[3] == 1 &&
           b->dims[3] == 1;
}

static pi_status load_pair(lora_file *l, const gguf_tensor *a, const gguf_tensor *b,
                           const gguf_tensor *t, const lora_form *form, lora_pair *out,
                           pi_error *err) {
    const quant_traits *type_a = quant_find(a->type), *type_b = quant_find(b->type);
    uint64_t rank;
    if (!pair_fits(a, b, t, form, &rank)) return fail_shape(l, a, b, t, err);
    if (!type_a || !type_b || !type_a->dequantize || !type_b->dequantize)
        return error_set(err, PI_ERR_UNSUPPORTED, "unknown type: %s: tensor %s or its counterpart",
                         gguf_path(l->file), a->name);
    out->rank = (int64_t)rank;
    out->a = load_floats(a, type_a);
    out->b = load_floats(b, type_b);
    arrange(out, form, (int64_t)t->dims[2], (int64_t)t->dims[0], (int64_t)t->dims[1]);
    if (!out->a || !out->b) return error_nomem(err, (size_t)b->n_elems * sizeof(float), a->name);
    /* an alpha of 0 means no alpha, as in llama.cpp */
    float scale = l->alpha != 0 ? l->scale * l->alpha / (float)out->rank : l->scale;
    uint64_t n = t->dims[1] * t->dims[2] * rank;
    for (uint64_t i = 0; i < n; i++) out->b[i] *= scale;
    l->taken[a - gguf_tensor_at(l->file, 0)] = l->taken[b - gguf_tensor_at(l->file, 0)] = true;
    return PI_OK;
}

static pi_status run_job(lora_set *s, merge_job *job, model *m, model_tensor *out, pi_error *err) {
    quant_type type = job->from == quant_find(QUANT_F32) ? QUANT_F32 : QUANT_F16;
    pi_status status = PI_OK;
    if (!s->workers) status = pool_create(cpu_count_physical(), &s->workers, err);
    if (status != PI_OK) return status;
    job->to = quant_find(type);
    job->workers = s->workers;
    job->from_bytes = out->row_bytes;
    job->item_bytes = out->expert_bytes; /* 0 without a stack */
    if (!quant_row_bytes(type, (uint64_t)job->n_in, &job->to_bytes))
        return error_set(err, PI_ERR_LIMIT, "tensor %s: rows too long", job->t->name);
    size_t n_bytes = job->to_bytes * (size_t)job->n_rows;
    uint8_t *memory = arena_alloc(&m->arena, n_bytes + MATRIX_ALIGN);
    job->scratch = mem_alloc((size_t)pool_size(s->workers) * (size_t)job->n_in * sizeof(float));
    if (!memory || !job->scratch) return error_nomem(err, n_bytes, job->t->name);
    job->out = memory + (MATRIX_ALIGN - (uintptr_t)memory % MATRIX_ALIGN) % MATRIX_ALIGN;
    pool_run(s->workers, pool_size(s->workers), merge_rows, job);
    if (atomic_load(&job->bad))
        return error_set(err, PI_ERR_RANGE,
                         "not a finite number: %s with its adapters: tensor %s in %s",
                         gguf_path(m->file), job->t->name, job->to->name);
    m->weight_bytes += n_bytes;
    m->weight_bytes -= out->n_bytes;
    out->data = job->out;
    out->type = type;
    out->n_bytes = n_bytes;
    out->row_bytes = job->to_bytes;
    if (out->expert_bytes) out->expert_bytes = job->to_bytes * (size_t)job->n_out;
    return PI_OK;
}

static void add_hash(uint64_t *hash, const lora_pair *p, const gguf_tensor *t) {
    size_t n_stack = (size_t)(t->dims[2] * (uint64_t)p->rank) * sizeof *p->a;
    *hash = hash_bytes((hash_key){{*hash, 1}}, p->a, n_stack * t->dims[0]);
    *hash = hash_bytes((hash_key){{*hash, 2}}, p->b, n_stack * t->dims[1]);
}

pi_status lora_merge(lora_set *s, model *m, const gguf_tensor *t, const lora_form *form,
                     model_tensor *out, pi_error *err) {
    merge_job job = {.t = t,
                     .from = quant_find(t->type),
                     .n_in = (int64_t)t->dims[0],
                     .n_out = (int64_t)t->dims[1],
                     .n_rows = (int64_t)(t->dims[1] * t->dims[2])};
    pi_status status = PI_OK;
    job.pairs = mem_calloc(s->n, sizeof *job.pairs);
    if (!job.pairs) return error_nomem(err, s->n * sizeof *job.pairs, "adapters");
    for (size_t i = 0; i < s->n && status == PI_OK; i++) {
        char name[GGUF_MAX_NAME + sizeof ".lora_a"];
        snprintf(name, sizeof name, "%s.lora_a", form->name);
        const gguf_tensor *a = gguf_find_tensor(s->files[i].file, name);
        snprintf(name, sizeof name, "%s.lora_b", form->name);
        const gguf_tensor *b = gguf_find_tensor(s->files[i].file, name);
        if (!a) continue; /* the other matrix is absent as well, see check_pairs */
        lora_pair *pair = &job.pairs[job.n_pairs++];
        status = load_pair(&s->files[i], a, b, t, form, pair, err);
        if (status == PI_OK && s->files[i].scale == 0) { /* checked, but not applied */
            mem_free(pair->a);
            mem_free(pair->b);
            job.n_pairs--;
        } else if (status == PI_OK) {
            add_hash(&m->adapters_hash, pair, t);
        }
    }
    const bool wanted = form->layer < 0 ? s->first == 0 && s->end > 0
                                        : form->layer >= s->first && form->layer < s->end;
    if (status == PI_OK && job.n_pairs > 0 && wanted) status = run_job(s, &job, m, out, err);
    for (size_t i = 0; i < job.n_pairs; i++) {
        mem_free(job.pairs[i].a);
        mem_free(job.pairs[i].b);
    }
    mem_free(job.pairs);
    mem_free(job.scratch);
    return status;
}

pi_status lora_check_all(const lora_set *s, const model *m, pi_error *err) {
    for (size_t i = 0; i < s->n; i++)
        for (uint64_t k = 0; k < gguf_n_tensors(s->files[i].file); k++)
            if (!s->files[i].taken[k])
                return error_set(err, PI_ERR_FORMAT,
                                 "adapter of another model: %s: %s matches no matrix of %s",
                                 gguf_path(s->files[i].file),
                                 gguf_tensor_at(s->files[i].file, k)->name, gguf_path(m->file));
    return PI_OK;
}
