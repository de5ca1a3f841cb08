/* imatrix_collect.c: feeds a text through a model and sums, for every matrix, the squares of its
 * input activations. The engine's observer passes the activations on the calling thread, so sums
 * need no locks. They are doubles, because a column's sum has millions of terms.
 *
 * A prepared file has ffn_down transposed, and its neurons in another order. Its input is written
 * under the name and in the order of the ordinary file, so that one importance matrix serves both
 * files. Everything runs in dense mode, so no collected value is an approximation.
 *
 * Windows are independent: each starts with an empty cache, and where the vocabulary wants BOS, BOS
 * replaces the window's first token. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine.h"
#include "file.h"
#include "gguf_writer.h"
#include "imatrix.h"
#include "mem.h"
#include "notifier.h"
#include "powerinfer_tools.h"
#include "progress.h"
#include "tokenizer.h"

enum {
    CHUNK_DEFAULT = 512,
    CHUNK_MAX = 65536,
    COLUMNS = 512,           /* summed at a time: their sums stay in L1 */
    BATCH_MAX = 512,         /* tokens per ubatch: activations of wide models stay in cache */
    TEXT_MAX_BYTES = 1 << 30 /* maximum size of the text file */
};

/* One matrix of the model. */
typedef struct column_sums {
    char name[GGUF_MAX_NAME];
    double *sums;        /* [n_in] sums of squares */
    uint64_t n_in;       /* 0: not collected */
    uint64_t count;      /* number of inputs */
    const int32_t *perm; /* [n_in] place of each sum in the file; NULL: unchanged order */
} column_sums;

typedef struct collection {
    const pi_imatrix_options *options;
    const char *text_path;
    notifier notifier;
    progress report;
    model *model;
    tokenizer *vocabulary;
    engine_context *context;
    pi_session *session;
    char *text;
    size_t n_text;
    int32_t *tokens; /* [n_tokens] */
    size_t n_tokens;
    int32_t *window;   /* [chunk] */
    int chunk;         /* tokens per window */
    size_t n_windows;  /* number of windows to feed */
    column_sums *rows; /* [n_layer + 1][ROLE_COUNT]: layers, then global tensors */
    size_t n_rows;
} collection;

pi_imatrix_options pi_imatrix_default_options(void) {
    return (pi_imatrix_options){.chunk = CHUNK_DEFAULT};
}

/* ---- sums ------------------------------------------------------------------------------------ */

static column_sums *row_of(const collection *c, int layer, tensor_role role) {
    size_t at = (size_t)(layer >= 0 ? layer : c->model->hp.n_layer);
    return &c->rows[at * ROLE_COUNT + (size_t)role];
}

/* Adds the squares of columns [first, first + n) to the sums of all matrices of a step, which read
 * the same input. */
static void add_columns(column_sums *const *sums, int n_sums, uint64_t first, uint64_t n,
                        const float *x, int64_t ldx, int n_rows) {
    double squares[COLUMNS] = {0};
    for (int row = 0; row < n_rows; row++) {
        const float *v = x + row * ldx + first;
        for (uint64_t i = 0; i < n; i++) squares[i] += (double)v[i] * (double)v[i];
    }
    for (int k = 0; k < n_sums; k++)
        for (uint64_t i = 0; i < n; i++) sums[k]->sums[first + i] += squares[i];
}

static void observe(void *user, const plan_step *step, const float *x, int64_t ldx, int n_rows) {
    const collection *c = user;
    column_sums *sums[PLAN_MAX_GROUP + 1];
    int n_sums = 0;
    for (int k = 0; k < step->n_matrices; k++)
        sums[n_sums++] = row_of(c, step->layer, step->matrix[k].role);
    if (step->op == OP_FFN_DOWN) /* ffn_down_t */
        sums[n_sums++] = row_of(c, step->layer, ROLE_FFN_DOWN);
    uint64_t n_in = 0;
    int n = 0;
    for (int k = 0; k < n_sums; k++) {
        if (sums[k]->n_in == 0) continue;
        assert(n_in == 0 || n_in == sums[k]->n_in);
        n_in = sums[k]->n_in;
        sums[k]->count += (uint64_t)n_rows;
        sums[n++] = sums[k];
    }
    for (uint64_t first = 0; first < n_in; first += COLUMNS)
        add_columns(sums, n, first, n_in - first < COLUMNS ? n_in - first : COLUMNS, x, ldx,
                    n_rows);
}

/* Returns the tensor of the file that contains the matrix. A head may be the embedding matrix. In
 * fused tensors the first part represents all parts, because they read the same input; the other
 * parts return NULL. */
static const arch_tensor *tensor_of(const collection *c, int layer, tensor_role role) {
    static const struct {
        tensor_role first, last, fused;
    } groups[] = {{ROLE_ATTN_Q, ROLE_ATTN_V, ROLE_ATTN_QKV},
                  {ROLE_FFN_GATE, ROLE_FFN_UP, ROLE_FFN_GATE_UP}};
    const model *m = c->model;
    bool tied = role == ROLE_OUTPUT && m->t[ROLE_OUTPUT].data == m->t[ROLE_TOKEN_EMBD].data;
    if (tied) role = ROLE_TOKEN_EMBD;
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        const arch_tensor *fused = arch_tensor_of(m->arch, groups[i].fused);
        char name[64];
        if (!fused || role < groups[i].first || role > groups[i].last) continue;
        arch_tensor_name(fused, layer, name);
        /* also parts of bundles */
        if (gguf_find_tensor(m->file, name) || !arch_tensor_of(m->arch, role))
            return role == groups[i].first ? fused : NULL;
    }
    return arch_tensor_of(m->arch, role);
}

static pi_status prepare_row(collection *c, int layer, tensor_role role, uint64_t n_in,
                             pi_error *err) {
    const arch_tensor *t = tensor_of(c, layer, role);
    if (!t || (layer < 0 && !c->options->process_output)) return PI_OK;
    column_sums *r = row_of(c, layer, role);
    if (r->sums) return PI_OK; /* already collected from another step */
    r->sums = mem_calloc(n_in, sizeof *r->sums);
    if (!r->sums) return error_nomem(err, n_in * sizeof *r->sums, "sums of activations");
    r->n_in = n_in;
    if (role == ROLE_FFN_DOWN) r->perm = c->model->layers[layer].sparse.perm;
    arch_tensor_name(t, layer, r->name);
    return PI_OK;
}

static pi_status prepare_sums(collection *c, pi_error *err) {
    const plan *p = engine_plan(c->context);
    c->n_rows = ((size_t)c->model->hp.n_layer + 1) * ROLE_COUNT;
    c->rows = mem_calloc(c->n_rows, sizeof *c->rows);
    if (!c->rows) return error_nomem(err, c->n_rows * sizeof *c->rows, "sums of activations");
    pi_status status = PI_OK;
    for (int i = 0; i < p->n_steps && status == PI_OK; i++) {
        const plan_step *s = &p->steps[i];
        for (int k = 0; k < s->n_matrices && status == PI_OK; k++)
            status = prepare_row(c, s->layer, s->matrix[k].role, (uint64_t)s->matrix[k].w.n_in,
                                 err);
        if (s->op == OP_FFN_DOWN && status == PI_OK)
            status = prepare_row(c, s->layer, ROLE_FFN_DOWN, (uint64_t)STEP_ARGS(s, ffn)->ffn->n_ff,
                                 err);
    }
    return status;
}

/* ---- text ------------------------------------------------------------------------------------ */

static pi_status read_tokens(collection *c, pi_error *err) {
    pi_status status = file_read_stream(c->text_path, TEXT_MAX_BYTES, &c->text, &c->n_text, err);
    if (status != PI_OK) return status;
    if (c->n_text == 0) /* BOS alone is no sample of activations */
        return error_set(err, PI_ERR_FORMAT, "the text is empty: %.300s: give another",
                         c->text_path);
    status = tokenizer_encode_new(c->vocabulary, c->text, c->n_text, TOKENIZER_ADD_SPECIAL,
                                  "tokens of the text", &c->tokens, &c->n_tokens, err);
    mem_free(c->text);
    c->text = NULL;
    return status;
}

/* Divides the text into windows; a shorter last window is used only when it is the only one. */
static pi_status cut_windows(collection *c, pi_error *err) {
    c->chunk = c->options->chunk;
    if (c->n_tokens < (size_t)c->chunk) c->chunk = (int)c->n_tokens;
    if (c->chunk < 1)
        return error_set(err, PI_ERR_FORMAT, "no tokens: %.300s: give a text", c->text_path);
    c->n_windows = c->n_tokens / (size_t)c->chunk;
    if (c->options->n_chunks > 0 && c->n_windows > (size_t)c->options->n_chunks)
        c->n_windows = (size_t)c->options->n_chunks;
    c->window = mem_calloc((size_t)c->chunk, sizeof *c->window);
    if (!c->window)
        return error_nomem(err, (size_t)c->chunk * sizeof *c->window, "a window of the text");
    return PI_OK;
}

/* ---- evaluation ------------------------------------------------------------------------------ */

static pi_status open_all(collection *c, const char *model_path, pi_error *err) {
    pi_status status = model_open(model_path, NULL, &c->model, err);
    if (status == PI_OK) status = model_check_tensors(c->model, c->options->n_threads, err);
    if (status == PI_OK) status = tokenizer_create(c->model->file, NULL, &c->vocabulary, err);
    if (status == PI_OK) status = read_tokens(c, err);
    if (status == PI_OK) status = cut_windows(c, err);
    if (status != PI_OK) return status;
    engine_options options = {.n_threads = c->options->n_threads,
                              .n_batch = c->chunk < BATCH_MAX ? c->chunk : BATCH_MAX,
                              .tier = CPU_TIER_AUTO,
                              .plan = {.mode = PI_MODE_DENSE},
                              .type_k = QUANT_F16,
                              .type_v = QUANT_F16};
    status = engine_context_create(c->model, &options, &c->context, err);
    if (status == PI_OK) status = engine_session_create(c->context, c->chunk, &c->session, err);
    if (status == PI_OK) status = prepare_sums(c, err);
    return status;
}

/* Feeds a window in pieces, so that the head computes at most as many logits as it keeps. */
static pi_status feed_window(collection *c, size_t number, pi_error *err) {
    const tokenizer_info *info = tokenizer_get_info(c->vocabulary);
    size_t n = (size_t)c->chunk;
    memcpy(c->window, c->tokens + number * n, n * sizeof *c->window);
    if (info->add_bos && info->bos >= 0) c->window[0] = info->bos;
    pi_status status = session_rewind(c->session, 0, err);
    int step = c->options->process_output ? engine_batch(c->context) : c->chunk;
    for (int at = 0; at < c->chunk && status == PI_OK; at += step) {
        pi_input in = {.session = c->session,
                       .tokens = c->window + at,
                       .n_tokens = c->chunk - at < step ? c->chunk - at : step,
                       .logits = c->options->process_output ? PI_LOGITS_ALL : PI_LOGITS_NONE};
        status = engine_forward(c->context, &in, 1, err);
    }
    return status;
}

static pi_status feed_all(collection *c, pi_error *err) {
    notify(&c->notifier, "%zu windows of %d tokens", c->n_windows, c->chunk);
    engine_observe(c->context, observe, c);
    for (size_t i = 0; i < c->n_windows; i++) {
        pi_status status = feed_window(c, i, err);
        if (status != PI_OK) return status;
        if (!progress_step(&c->report, "collecting", (double)(i + 1) / (double)c->n_windows))
            return error_set(err, PI_ERR_CANCELLED, "cancelled: imatrix: nothing was written");
    }
    return PI_OK;
}

/* ---- output file ----------------------------------------------------------------------------- */

/* Ubatches of a few tokens compute single neurons, so the whole input of ffn_down_t was never
 * seen. */
static void drop_unseen(const collection *c) {
    for (size_t i = 0; i < c->n_rows; i++) {
        column_sums *r = &c->rows[i];
        if (r->n_in == 0 || r->count > 0) continue;
        notify(&c->notifier, "no entry for %s: windows of more than %d tokens are needed for it",
               r->name, PLAN_FFN_MAX_COLS);
        r->n_in = 0;
    }
}

static pi_status declare_rows(const collection *c, gguf_writer *w, pi_error *err) {
    char name[GGUF_MAX_NAME + sizeof IMATRIX_SUMS];
    for (size_t i = 0; i < c->n_rows; i++) {
        const column_sums *r = &c->rows[i];
        if (r->n_in == 0) continue;
        const uint64_t sums[2] = {r->n_in, 1}, counts[2] = {1, 1};
        snprintf(name, sizeof name, "%s%s", r->name, IMATRIX_SUMS);
        pi_status status = gguf_add_tensor(w, name, QUANT_F32, 2, sums, err);
        snprintf(name, sizeof name, "%s%s", r->name, IMATRIX_COUNTS);
        if (status == PI_OK) status = gguf_add_tensor(w, name, QUANT_F32, 2, counts, err);
        if (status != PI_OK) return status;
    }
    return gguf_writer_begin_data(w, err);
}

static pi_status write_row(const column_sums *r, gguf_writer *w, pi_error *err) {
    float *values = mem_calloc(r->n_in, sizeof *values); /* in the file's order */
    if (!values) return error_nomem(err, r->n_in * sizeof *values, "sums of activations");
    pi_status status = PI_OK;
    for (uint64_t i = 0; i < r->n_in && status == PI_OK; i++) {
        float sum = (float)r->sums[i];
        values[r->perm ? (uint64_t)r->perm[i] : i] = sum;
        if (!isfinite(sum))
            status = error_set(err, PI_ERR_RANGE,
                               "not a finite number: imatrix: input %llu of %s: the model does not "
                               "work on this text",
                               (unsigned long long)i, r->name);
    }
    const float count = (float)r->count;
    if (status == PI_OK) status = gguf_write_data(w, values, r->n_in * sizeof *values, err);
    if (status == PI_OK) status = gguf_write_data(w, &count, sizeof count, err);
    mem_free(values);
    return status;
}

static pi_status write_file(const collection *c, const char *out_path, pi_error *err) {
    gguf_writer *w = NULL;
    if (c->model->hp.n_expert > 0)
        notify(&c->notifier, "experts are skipped: only the other matrices are collected");
    drop_unseen(c);
    pi_status status = gguf_writer_create(out_path, &w, err);
    if (status != PI_OK) return status;
    gguf_string dataset = {.data = c->text_path, .n_bytes = strlen(c->text_path)};
    gguf_put_string(w, "general.type", "imatrix");
    gguf_put_strings(w, "imatrix.datasets", &dataset, 1);
    gguf_put_u32(w, "imatrix.chunk_count", (uint32_t)c->n_windows);
    gguf_put_u32(w, "imatrix.chunk_size", (uint32_t)c->chunk);
    status = declare_rows(c, w, err);
    for (size_t i = 0; i < c->n_rows && status == PI_OK; i++)
        if (c->rows[i].n_in) status = write_row(&c->rows[i], w, err);
    if (status == PI_OK) return gguf_writer_finish(w, err);
    gguf_writer_abort(w);
    return status;
}

static void release(collection *c) {
    for (size_t i = 0; c->rows && i < c->n_rows; i++) mem_free(c->rows[i].sums);
    mem_free(c->rows);
    mem_free(c->window);
    mem_free(c->tokens);
    mem_free(c->text);
    engine_session_destroy(c->session);
    engine_context_destroy(c->context);
    tokenizer_free(c->vocabulary);
    model_close(c->model);
}

pi_status pi_imatrix(const char *model_path, const char *text_path, const char *out_path,
                     const pi_imatrix_options *options, pi_error *err) {
    assert(model_path && text_path && out_path);
    pi_imatrix_options defaults = pi_imatrix_default_options();
    collection c = {.options = options ? options : &defaults, .text_path = text_path};
    c.notifier = (notifier){c.options->message, c.options->user};
    c.report = (progress){.fn = c.options->progress, .user = c.options->user};
    if (c.options->chunk < 1 || c.options->chunk > CHUNK_MAX)
        return error_set(err, PI_ERR_ARG, "bad window: imatrix: %d tokens: use 1 to %d",
                         c.options->chunk, CHUNK_MAX);
    if (c.options->n_threads < 0 || c.options->n_threads > POOL_MAX_THREADS)
        return error_set(err, PI_ERR_ARG, "bad number of threads: %d: choose 0 to %d",
                         c.options->n_threads, POOL_MAX_THREADS);
    pi_status status = file_writer_probe(out_path, err);
    if (status == PI_OK) status = open_all(&c, model_path, err);
    if (status == PI_OK) status = feed_all(&c, err);
    if (status == PI_OK) status = write_file(&c, out_path, err);
    release(&c);
    return status;
}
