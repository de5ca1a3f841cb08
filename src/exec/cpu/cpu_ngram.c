/* cpu_ngram.c: embeddings of n-grams (plan_streams.c). */
#include <math.h>
#include <string.h>

#include "cpu_exec.h"

/* The token `back` before token t of an item, from the ubatch or the session's state. The n-gram
 * ends at a token that ends texts and at the start of the session: the divider replaces that token
 * and those before it. */
static int32_t token_before(const cpu_exec *c, const ubatch_item *item, int64_t t, int back) {
    const model_ngrams *g = &c->model->hp.ngrams;
    for (int i = 1; i <= back; i++) {
        int32_t token = g->divider;
        if (t >= i)
            token = c->ubatch.tokens[item->row + t - i];
        else if (item->state_from && item->state_from[c->plan->ngrams.tokens_at + i - t - 1] > 0)
            token = (int32_t)item->state_from[c->plan->ngrams.tokens_at + i - t - 1] - 1;
        if (i == back || token == g->divider) return token;
    }
    return c->ubatch.tokens[item->row + t];
}

/* Stores the last tokens after n_tokens of an item; `state` may be the old state. Token ids are
 * exact as floats (MODEL_MAX_VOCAB). */
static void store_tokens(const cpu_exec *c, const ubatch_item *item, int64_t n_tokens,
                         float *state) {
    const int n = c->model->hp.ngrams.size - 1;
    const float *old = item->state_from ? item->state_from + c->plan->ngrams.tokens_at : NULL;
    float *to = state + c->plan->ngrams.tokens_at;
    for (int64_t i = n - 1; i >= 0; i--) {
        if (i < n_tokens)
            to[i] = (float)(c->ubatch.tokens[item->row + n_tokens - 1 - i] + 1);
        else
            to[i] = old ? old[i - n_tokens] : 0;
    }
}

void cpu_exec_find_ngrams(cpu_exec *c) {
    const model_ngrams *g = &c->model->hp.ngrams;
    const int per_size = g->n_rows / (g->size - 1);
    for (int i = 0; i < c->ubatch.n_items; i++) {
        const ubatch_item *item = &c->ubatch.items[i];
        for (int t = 0; t < item->n_tokens; t++) {
            uint64_t hash = 0;
            for (int n = 0; n < g->size; n++) {
                hash ^= (uint64_t)token_before(c, item, t, n) * g->multipliers[n];
                int32_t *rows = c->ubatch.ngrams + (int64_t)(item->row + t) * g->n_rows;
                for (int k = (n - 1) * per_size; n > 0 && k < n * per_size; k++)
                    rows[k] = (int32_t)(g->first[k] + (int64_t)(hash % (uint64_t)g->rows[k]));
            }
        }
        if (item->state_before) store_tokens(c, item, item->n_before, item->state_before);
        store_tokens(c, item, item->n_tokens, item->state_to);
    }
}

void cpu_exec_ngram_rows(cpu_exec *c, const plan_step *s) {
    const model_ngrams *g = &c->model->hp.ngrams;
    const model_tensor *t = &c->model->t[ROLE_NGRAM_EMBD];
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;) {
        for (int k = 0; k < g->n_rows; k++) {
            const int64_t at = row * g->n_rows + k;
            const int32_t index = c->ubatch.ngrams[at];
            const void *from = c->paging ? paging_row(c->paging, ROLE_NGRAM_EMBD, index, at)
                                         : (const uint8_t *)t->data + (size_t)index * t->row_bytes;
            quant_find(t->type)->dequantize(from, cpu_exec_row(c, s->out, row) + k * g->n_embd,
                                            g->n_embd);
        }
    }
}

/* The gate of a stream: sigmoid(sign(s) * sqrt(|s|)), where s is the scaled product of query and
 * key. */
static float gate_of(const float *key, const float *query, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)key[i] * (double)query[i];
    const float s = (float)sum / sqrtf((float)n), root = sqrtf(fmaxf(fabsf(s), 1e-6f));
    return cpu_exec_sigmoid(s > 0 ? root : s < 0 ? -root : 0);
}

void cpu_exec_ngram_gate(cpu_exec *c, const plan_step *s, const plan_ngrams *g) {
    const model_hparams *hp = &c->model->hp;
    const int64_t n = hp->n_embd;
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;) {
        const float *value = cpu_exec_row(c, BUF_X, row);
        for (int64_t at = 0; at < hp->n_stream * n; at += n) {
            float *key = cpu_exec_row(c, s->in, row) + at;
            float *stream = cpu_exec_row(c, s->out, row) + at;
            float *y = cpu_exec_row(c, BUF_HYPER_IN, row) + at; /* first the query */
            c->kernels.rms_norm(key, g->key_norm + at, key, n, hp->norm_eps);
            c->kernels.rms_norm(stream, g->query_norm + at, y, n, hp->norm_eps);
            const float gate = gate_of(key, y, n);
            for (int64_t i = 0; i < n; i++) y[i] = gate * value[i];
            c->kernels.add(stream, y, stream, n);
            c->kernels.rms_norm(y, g->conv_norm + at, y, n, hp->norm_eps);
        }
    }
}
