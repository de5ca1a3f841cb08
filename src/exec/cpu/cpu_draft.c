/* cpu_draft.c: steps for heads that draft (plan_draft.c). Threads take tokens. */
#include <string.h>

#include "cpu_exec.h"

void cpu_exec_draft_read(cpu_exec *c, const args_draft_read *a) {
    size_t n_bytes = (size_t)c->model->hp.n_embd * sizeof(float);
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;)
        memcpy(cpu_exec_row(c, BUF_DRAFT_READS, row) + a->at, cpu_exec_row(c, BUF_X, row), n_bytes);
}

void cpu_exec_draft_keep(cpu_exec *c) {
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;) {
        const pi_session *s = c->ubatch.item_of_row[row]->session;
        memcpy(session_features_row(s, c->ubatch.positions[row]),
               cpu_exec_row(c, BUF_FEATURES, row), (size_t)s->features.width * sizeof(float));
    }
}

void cpu_exec_draft_in(cpu_exec *c, const plan_step *s, const args_draft_in *a) {
    const int64_t n = c->model->hp.n_embd, width = plan_residual_width(c->model);
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;) {
        const ubatch_item *item = c->ubatch.item_of_row[row];
        const float *features = item->features + (row - item->row) * width;
        float *x = cpu_exec_row(c, BUF_X, row), *out = cpu_exec_row(c, BUF_DRAFT_IN, row);
        for (int64_t k = 0; k < width; k += n) {
            cpu_exec_norm_row(c, s, &a->embd, x, out + 2 * k);
            cpu_exec_norm_row(c, s, &a->features, features + k, out + 2 * k + n);
        }
        if (a->residual) memcpy(x, a->normed ? out + n : features, (size_t)n * sizeof *x);
    }
}

/* In place, from the last one on: a token's id is at least its index. */
void cpu_exec_draft_logits(cpu_exec *c) {
    const model_draft *d = &c->model->draft;
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_out;) {
        float *x = cpu_exec_row(c, BUF_LOGITS, c->ubatch.first_logits_row + row);
        for (int32_t i = d->n_ids - 1; i >= 0; i--) x[d->ids[i]] = x[i];
        int32_t next = 0;
        for (int32_t i = 0; i < d->n_ids; i++, next++)
            for (; next < d->ids[i]; next++) x[next] = -INFINITY;
        for (; next < c->model->hp.n_vocab; next++) x[next] = -INFINITY;
    }
}
