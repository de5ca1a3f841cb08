/* prepare_measure.c: compares the predictions of a prepared file with those of its source, token by
 * token, on held-out calibration windows. Both models are mapped at the same time and receive the
 * same pieces; their logits are compared row by row on all threads and the results are summed in
 * order, so that results do not depend on the number of threads. */
#include <math.h>

#include "log_sum_exp.h"
#include "mem.h"
#include "prepare.h"

enum { ROWS_MAX = 256 };                      /* rows of logits kept at a time, per model */
static const size_t logits_bytes = 64u << 20; /* enough for 64 rows of a vocabulary of 256k */

typedef struct row_quality {
    double before, after; /* -log p of the text's next token, nats */
    double kl;
} row_quality;

typedef struct side {
    engine_context *context;
    pi_session *session;
} side;

typedef struct measuring {
    preparation *p;
    model *output;
    side source, prepared;
    int32_t n_rows;      /* maximum rows of a piece */
    row_quality *rows;   /* [n_rows] */
    const int32_t *next; /* next token of each row of the current piece */
    int32_t n_piece;
    double before, after, kl; /* sums */
    int64_t n;
} measuring;

static void compare_rows(void *arg, int ith, int nth) {
    measuring *m = arg;
    int32_t n_vocab = m->p->model->hp.n_vocab;
    (void)ith;
    (void)nth;
    for (int64_t i; (i = pool_take(m->p->pool, 1)) < m->n_piece;) {
        const float *a = engine_logits(m->source.context, (int)i);
        const float *b = engine_logits(m->prepared.context, (int)i);
        float most;
        double log_a = log_sum_exp(a, n_vocab, &most), log_b = log_sum_exp(b, n_vocab, &most);
        double kl = 0;
        for (int32_t k = 0; k < n_vocab; k++) {
            double log_p = (double)a[k] - log_a, p = exp(log_p);
            if (p > 0) kl += p * (log_p - ((double)b[k] - log_b));
        }
        m->rows[i] = (row_quality){.before = log_a - (double)a[m->next[i]],
                                   .after = log_b - (double)b[m->next[i]],
                                   .kl = kl};
    }
}

static pi_status add_rows(measuring *m, pi_error *err) {
    for (int32_t i = 0; i < m->n_piece; i++) {
        const row_quality *r = &m->rows[i];
        if (!isfinite(r->before) || !isfinite(r->after))
            return error_set(
                err, PI_ERR_RANGE,
                "NaN logits: %.300s: the model's weights are damaged or too large for their type",
                isfinite(r->before) ? m->p->out_path : m->p->in_path);
        m->before += r->before;
        m->after += r->after;
        m->kl += r->kl;
        m->n++;
    }
    return PI_OK;
}

static pi_status feed(const side *s, const int32_t *tokens, int32_t n, pi_error *err) {
    pi_input in = {.session = s->session, .tokens = tokens, .n_tokens = n, .logits = PI_LOGITS_ALL};
    return engine_forward(s->context, &in, 1, err);
}

/* The last token of a window is only a target. */
static pi_status measure_window(measuring *m, const int32_t *tokens, pi_error *err) {
    int32_t n_fed = m->p->text.n_window - 1;
    pi_status status = session_rewind(m->source.session, 0, err);
    if (status == PI_OK) status = session_rewind(m->prepared.session, 0, err);
    for (int32_t at = 0; at < n_fed && status == PI_OK; at += m->n_piece) {
        m->n_piece = n_fed - at < m->n_rows ? n_fed - at : m->n_rows;
        m->next = tokens + at + 1;
        status = feed(&m->source, tokens + at, m->n_piece, err);
        if (status == PI_OK) status = feed(&m->prepared, tokens + at, m->n_piece, err);
        if (status != PI_OK) return status;
        pool_run(m->p->pool, pool_size(m->p->pool), compare_rows, m);
        status = add_rows(m, err);
    }
    return status;
}

static pi_status make_side(const measuring *m, const model *weights, pi_mode mode, pi_head head,
                           side *out, pi_error *err) {
    engine_options options = {.n_threads = m->p->options->n_threads,
                              .n_batch = m->n_rows,
                              .n_logits = m->n_rows,
                              .tier = CPU_TIER_AUTO,
                              .type_k = QUANT_F16,
                              .type_v = QUANT_F16,
                              .plan = {.mode = mode, .predict_head = head}};
    pi_status status = engine_context_create(weights, &options, &out->context, err);
    if (status != PI_OK) return status;
    return engine_session_create(out->context, m->p->text.n_window, &out->session, err);
}

static pi_status set_up(measuring *m, pi_mode mode, pi_head head, pi_error *err) {
    const char *path = NULL;
    size_t row_bytes = (size_t)m->p->model->hp.n_vocab * sizeof(float);
    size_t rows = logits_bytes / row_bytes + 1;
    m->n_rows = rows < ROWS_MAX ? (int32_t)rows : ROWS_MAX;
    m->rows = mem_calloc((size_t)m->n_rows, sizeof *m->rows);
    if (!m->rows) return error_nomem(err, (size_t)m->n_rows * sizeof *m->rows, "measuring");
    pi_status status = gguf_writer_settle(m->p->writer, &path, err);
    if (status == PI_OK) status = model_open(path, NULL, &m->output, err);
    if (status == PI_OK)
        status = make_side(m, m->p->model, PI_MODE_DENSE, PI_HEAD_DENSE, &m->source, err);
    if (status == PI_OK) status = make_side(m, m->output, mode, head, &m->prepared, err);
    return status;
}

static void free_side(side *s) {
    engine_session_destroy(s->session);
    engine_context_destroy(s->context);
}

pi_status prepare_measure(preparation *p, pi_mode mode, pi_head head, double from, double to,
                          prepare_quality *out, pi_error *err) {
    measuring m = {.p = p};
    const prepare_text *t = &p->text;
    pi_status status = set_up(&m, mode, head, err);
    for (int32_t i = 0; i < t->n_held && status == PI_OK; i++) {
        int64_t window = t->n_windows - t->n_held + i;
        status = measure_window(&m, t->tokens + window * t->n_window, err);
        if (status == PI_OK)
            status = prepare_step(p, "measuring", from + (to - from) * (i + 1) / t->n_held, err);
    }
    if (status == PI_OK)
        *out = (prepare_quality){.ppl_before = exp(m.before / (double)m.n),
                                 .ppl_after = exp(m.after / (double)m.n),
                                 .kl = m.kl / (double)m.n};
    free_side(&m.source);
    free_side(&m.prepared);
    model_close(m.output);
    mem_free(m.rows);
    return status;
}
