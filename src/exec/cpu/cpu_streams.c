/* cpu_streams.c: steps of models with several residual streams (plan_streams.c). Threads take
 * tokens. */
#include <math.h>
#include <string.h>

#include "cpu_exec.h"

static float magnitude(const cpu_exec *c, const float *x) {
    int64_t n = c->model->hp.n_embd;
    float part[8] = {0}, sum = 0;
    for (int64_t i = 0; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) part[k] += x[i + k] * x[i + k];
    for (int64_t i = n / 8 * 8; i < n; i++) sum += x[i] * x[i];
    for (int k = 0; k < 8; k++) sum += part[k];
    return sqrtf(sum / (float)n);
}

/* Rescales x to the magnitude `want`; an x near zero stays near zero. */
static void level(const cpu_exec *c, float *x, float want) {
    const float least = 3.1622777e-3f; /* sqrt(1e-5) */
    float is = magnitude(c, x), scale = want / (is < least ? least : is);
    for (int64_t i = 0; i < c->model->hp.n_embd; i++) x[i] *= scale;
}

void cpu_exec_spread(cpu_exec *c, const plan_step *s) {
    int64_t row, n = c->model->hp.n_embd;
    while ((row = pool_take(c->pool, 1)) < c->ubatch.n_tokens) {
        float *x = cpu_exec_row(c, BUF_X, row), *streams = cpu_exec_row(c, s->in, row);
        float want = magnitude(c, x);
        memcpy(streams, x, (size_t)n * sizeof *x);
        for (int k = 1; k < c->model->hp.n_stream; k++) level(c, streams + k * n, want);
    }
}

void cpu_exec_merge(cpu_exec *c, const plan_step *s) {
    int64_t row, n = c->model->hp.n_embd;
    int n_stream = c->model->hp.n_stream;
    while ((row = pool_take(c->pool, 1)) < c->ubatch.n_tokens) {
        float *x = cpu_exec_row(c, BUF_X, row), *others = cpu_exec_row(c, s->in, row);
        const float *first = cpu_exec_row(c, BUF_STREAMS, row);
        float want = magnitude(c, first);
        memcpy(x, first, (size_t)n * sizeof *x);
        for (int k = 0; k < n_stream - 1; k++) level(c, others + k * n, want);
        for (int k = 0; k < n_stream - 1; k++) c->kernels.add(x, others + k * n, x, n);
        for (int64_t i = 0; i < n; i++) x[i] /= (float)n_stream;
    }
}

/* y = W tanh(the router's product), [n_out] */
static void coefficients(const cpu_exec *c, const args_mix *a, int64_t row, int n_out, float *y) {
    const float *router = cpu_exec_row(c, BUF_ROUTER, row), *w = a->coefficients;
    int n = c->model->hp.n_stream;
    float r[MODEL_MAX_STREAMS];
    for (int k = 0; k < n; k++) r[k] = tanhf(router[k]);
    for (int i = 0; i < n_out; i++) {
        y[i] = 0;
        for (int k = 0; k < n; k++) y[i] += w[i * n + k] * r[k];
    }
}

/* stream_a = sum_b w_ab stream_b, piece by piece; `adds`: plus the old stream_a. w_ab is
 * w[a * n + b]; `turned`: w[b * n + a]. */
static void mix(float *streams, int64_t n_embd, int n, const float *w, bool adds, bool turned) {
    enum { PIECE = 128 };
    float piece[MODEL_MAX_STREAMS][PIECE];
    for (int64_t at = 0; at < n_embd; at += PIECE) {
        int64_t length = n_embd - at < PIECE ? n_embd - at : PIECE;
        for (int k = 0; k < n; k++)
            memcpy(piece[k], streams + k * n_embd + at, (size_t)length * sizeof(float));
        for (int a = 0; a < n; a++) {
            float *to = streams + a * n_embd + at;
            for (int64_t i = 0; i < length && !adds; i++) to[i] = 0;
            for (int b = 0; b < n; b++) {
                const float weight = turned ? w[b * n + a] : w[a * n + b];
                for (int64_t i = 0; i < length; i++) to[i] += weight * piece[b][i];
            }
        }
    }
}

void cpu_exec_predict(cpu_exec *c, const plan_step *s, const args_mix *a) {
    int64_t row, n_embd = c->model->hp.n_embd;
    size_t n_bytes = (size_t)n_embd * sizeof(float);
    int n = c->model->hp.n_stream;
    while ((row = pool_take(c->pool, 1)) < c->ubatch.n_tokens) {
        float *x = cpu_exec_row(c, BUF_X, row), *streams = cpu_exec_row(c, s->in, row);
        float w[MODEL_MAX_STREAMS * MODEL_MAX_STREAMS];
        coefficients(c, a, row, n * n, w);
        mix(streams, n_embd, n, w, true, false);
        memcpy(x, streams, n_bytes);
    }
}

/* Y = the first stream, scaled: the input of the layer's embedding. */
void cpu_exec_correct(cpu_exec *c, const plan_step *s, const args_mix *a) {
    int64_t row, n_embd = c->model->hp.n_embd;
    int n = c->model->hp.n_stream;
    while ((row = pool_take(c->pool, 1)) < c->ubatch.n_tokens) {
        float *x = cpu_exec_row(c, BUF_X, row), *y = cpu_exec_row(c, BUF_Y, row);
        float *streams = cpu_exec_row(c, s->in, row), w[MODEL_MAX_STREAMS];
        coefficients(c, a, row, n, w);
        for (int64_t i = 0; i < n_embd; i++) y[i] = x[i] - streams[i];
        for (int k = 1; k < n; k++)
            for (int64_t i = 0; i < n_embd; i++) streams[k * n_embd + i] += (1 + w[k]) * y[i];
        for (int64_t i = 0; i < n_embd; i++) {
            x[i] = streams[i] += (1 + w[0]) * y[i];
            y[i] = x[i] * a->scale[i];
        }
    }
}

/* ---- hyper-connections ----------------------------------------------------------------------- */

void cpu_exec_hyper_start(cpu_exec *c, const plan_step *s) {
    int64_t row, n = c->model->hp.n_embd;
    while ((row = pool_take(c->pool, 1)) < c->ubatch.n_tokens)
        for (int k = 0; k < c->model->hp.n_stream; k++)
            memcpy(cpu_exec_row(c, s->out, row) + k * n, cpu_exec_row(c, s->in, row),
                   (size_t)n * sizeof(float));
}

/* The weights of a token's streams from their n_stream numbers. */
static void hyper_weights(const cpu_exec *c, const args_hyper *a, const float *x, float *w) {
    const model_hparams *hp = &c->model->hp;
    for (int k = 0; k < hp->n_stream; k++)
        w[k] = a->factor * cpu_exec_sigmoid(x[k] * *a->scale + a->base[k]) + a->eps;
}

/* Divides the weights to one stream, or of one stream, by their sum. */
static void norm_weights(float *w, int n, int64_t stride, float eps) {
    float sum = eps;
    for (int i = 0; i < n; i++) sum += w[i * stride];
    for (int i = 0; i < n; i++) w[i * stride] /= sum;
}

/* The weights [from][to] with which a token's streams are mixed (Sinkhorn and Knopp 1967): a
 * softmax over `to`, then norms over `from` and `to` in turn. */
static void mix_weights(const args_hyper *a, const float *x, int n, float *w) {
    for (int from = 0; from < n; from++) {
        float *row = w + from * n, top = -INFINITY, sum = 0;
        for (int to = 0; to < n; to++) {
            row[to] = x[from * n + to] * a->scale[1] + a->base[n + from * n + to];
            top = fmaxf(top, row[to]);
        }
        for (int to = 0; to < n; to++) sum += row[to] = expf(row[to] - top);
        for (int to = 0; to < n; to++) row[to] = row[to] / sum + a->mix_eps;
    }
    for (int round = 0; round < a->rounds; round++) {
        for (int from = 0; from < n && round > 0; from++)
            norm_weights(w + from * n, n, 1, a->mix_eps);
        for (int to = 0; to < n; to++) norm_weights(w + to, n, n, a->mix_eps);
    }
}

void cpu_exec_hyper_in(cpu_exec *c, const plan_step *s, const args_hyper *a) {
    const model_hparams *hp = &c->model->hp;
    int64_t row, n = hp->n_embd;
    while ((row = pool_take(c->pool, 1)) < c->ubatch.n_tokens) {
        const float *streams = cpu_exec_row(c, s->in, row);
        float *x = cpu_exec_row(c, BUF_X, row), w[MODEL_MAX_STREAMS];
        hyper_weights(c, a, cpu_exec_row(c, BUF_HYPER, row), w);
        for (int64_t i = 0; i < n; i++) x[i] = w[0] * streams[i];
        for (int k = 1; k < hp->n_stream; k++)
            for (int64_t i = 0; i < n; i++) x[i] += w[k] * streams[k * n + i];
    }
}

void cpu_exec_hyper_mean(cpu_exec *c, const plan_step *s) {
    const model_hparams *hp = &c->model->hp;
    int64_t row, n = hp->n_embd, all = n * hp->n_stream;
    while ((row = pool_take(c->pool, 1)) < c->ubatch.n_tokens) {
        float *streams = cpu_exec_row(c, s->in, row), *x = cpu_exec_row(c, BUF_X, row);
        c->kernels.gate(cpu_exec_row(c, BUF_HYPER_GATE, row), streams, all);
        memcpy(x, streams, (size_t)n * sizeof *x);
        for (int k = 1; k < hp->n_stream; k++) c->kernels.add(x, streams + k * n, x, n);
        for (int64_t i = 0; i < n; i++) x[i] /= (float)hp->n_stream;
    }
}

void cpu_exec_hyper_out(cpu_exec *c, const plan_step *s, const args_hyper *a) {
    const model_hparams *hp = &c->model->hp;
    int64_t row, n = hp->n_embd;
    while ((row = pool_take(c->pool, 1)) < c->ubatch.n_tokens) {
        const float *y = cpu_exec_row(c, s->in, row);
        float *streams = cpu_exec_row(c, s->out, row), w[MODEL_MAX_STREAMS];
        const float *x = cpu_exec_row(c, BUF_HYPER, row) + hp->n_stream;
        hyper_weights(c, a, x, w);
        if (a->rounds > 0) {
            float keep[MODEL_MAX_STREAMS * MODEL_MAX_STREAMS];
            mix_weights(a, x + hp->n_stream, hp->n_stream, keep);
            mix(streams, n, hp->n_stream, keep, false, true);
        }
        for (int k = 0; k < hp->n_stream; k++)
            for (int64_t i = 0; i < n; i++) streams[k * n + i] += w[k] * y[i];
    }
}

/* ---- attention over earlier residuals -------------------------------------------------------- */

/* The score of a stream: the product of its norm with w. */
static double past_score(const float *x, const float *w, int64_t n, float eps) {
    double squares = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        squares += (double)x[i] * (double)x[i];
        sum += (double)x[i] * (double)w[i];
    }
    return sum / sqrt(squares / (double)n + (double)eps);
}

void cpu_exec_past_in(cpu_exec *c, const plan_step *s, const args_past *a) {
    int64_t row, n = c->model->hp.n_embd;
    while ((row = pool_take(c->pool, 1)) < c->ubatch.n_tokens) {
        float *streams = cpu_exec_row(c, s->in, row), *x = cpu_exec_row(c, BUF_X, row);
        double w[MODEL_MAX_PASTS], most = -INFINITY, sum = 0;
        for (int k = 0; k <= a->n; k++) {
            w[k] = past_score(streams + k * n, a->score, n, c->model->hp.norm_eps);
            most = fmax(most, w[k]);
        }
        for (int k = 0; k <= a->n; k++) sum += w[k] = exp(w[k] - most);
        memset(x, 0, (size_t)n * sizeof *x);
        for (int k = 0; k <= a->n; k++) {
            const float weight = (float)(w[k] / sum);
            for (int64_t i = 0; i < n; i++) x[i] += weight * streams[k * n + i];
        }
        if (a->begins) memcpy(streams + (a->n + 1) * n, streams, (size_t)n * sizeof *streams);
    }
}

void cpu_exec_past_out(cpu_exec *c, const plan_step *s, const args_past *a) {
    int64_t row, n = c->model->hp.n_embd;
    while ((row = pool_take(c->pool, 1)) < c->ubatch.n_tokens) {
        const float *y = cpu_exec_row(c, s->in, row);
        float *stream = cpu_exec_row(c, s->out, row);
        if (a->begins)
            memcpy(stream, y, (size_t)n * sizeof *y);
        else
            c->kernels.add(stream, y, stream, n);
    }
}
