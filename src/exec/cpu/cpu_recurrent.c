/* cpu_recurrent.c: recurrent mixers: the causal convolution and the recurrence over a session's
 * state (recurrent_state.h). Channels are independent, and so are heads: a thread takes some of one
 * session and goes through the tokens in order, so the state stays in the thread's cache. A head
 * runs up to CPU_RECUR_TOKENS tokens at a time, and stops at the token after which a copy of the
 * state is kept.
 *
 * Sources: Dao and Gu 2024 (Mamba-2), Yang et al. 2024 (gated delta rule), Liquid AI 2025
 * (LFM2). */
#include <math.h>
#include <string.h>

#include "cpu_exec.h"

/* ---- convolution ----------------------------------------------------------------------------- */

enum { CONV_CHANNELS = 64, MAX_TAPS = 64 };

/* Channels [first, first + n) of one session's tokens. */
typedef struct conv_task {
    cpu_exec *c;
    const plan_recurrent *r;
    const ubatch_item *item;
    plan_buffer in;
    int64_t first;
    int n;
} conv_task;

/* Number of inputs that a session's state keeps. */
static int kept_inputs(const plan_recurrent *r) {
    return (r->n_taps - 1) * r->dilation;
}

/* The input `back` tokens before token t; NULL: zeros. */
static const float *input_at(const conv_task *k, int64_t t, int back) {
    int n_old = kept_inputs(k->r);
    if (t >= back) return cpu_exec_row(k->c, k->in, k->item->row + t - back) + k->first;
    if (!k->item->state_from) return NULL;
    return k->item->state_from + k->r->conv_at + (n_old + t - back) * k->r->n_conv + k->first;
}

/* Stores the last inputs after n_tokens. `state` may be the old state: rows move towards its
 * beginning. */
static void store_inputs(const conv_task *k, int64_t n_tokens, float *state) {
    int n_old = kept_inputs(k->r);
    for (int j = 0; j < n_old; j++) {
        const float *from = input_at(k, n_tokens, n_old - j);
        float *to = state + k->r->conv_at + j * k->r->n_conv + k->first;
        if (from)
            memmove(to, from, (size_t)k->n * sizeof *to);
        else
            memset(to, 0, (size_t)k->n * sizeof *to);
    }
}

static void convolve(const conv_task *k, float taps[][CONV_CHANNELS], int64_t t, float *y) {
    for (int i = 0; i < k->n; i++) y[i] = k->r->conv_bias ? k->r->conv_bias[k->first + i] : 0;
    for (int j = 0; j < k->r->n_taps; j++) {
        const float *x = input_at(k, t, (k->r->n_taps - 1 - j) * k->r->dilation);
        for (int i = 0; x && i < k->n; i++) y[i] += taps[j][i] * x[i];
    }
}

/* LFM2: the input of the convolution is B * x, and its output is multiplied by C. */
static void run_short_conv(const conv_task *k, float taps[][CONV_CHANNELS]) {
    for (int64_t t = 0; t < k->item->n_tokens; t++) {
        float *x = cpu_exec_row(k->c, BUF_SSM_IN, k->item->row + t) + k->first;
        const float *b = cpu_exec_row(k->c, BUF_SSM_STEP, k->item->row + t) + k->first;
        for (int i = 0; i < k->n; i++) x[i] *= b[i];
    }
    for (int64_t t = 0; t < k->item->n_tokens; t++) {
        float *y = cpu_exec_row(k->c, BUF_SSM_OUT, k->item->row + t) + k->first;
        const float *gate = cpu_exec_row(k->c, BUF_SSM_GATE, k->item->row + t) + k->first;
        convolve(k, taps, t, y);
        for (int i = 0; i < k->n; i++) y[i] *= gate[i];
    }
}

static void run_ssm_conv(const conv_task *k, float taps[][CONV_CHANNELS]) {
    for (int64_t t = 0; t < k->item->n_tokens; t++) {
        float *y = cpu_exec_row(k->c, BUF_SSM_CONV, k->item->row + t) + k->first;
        convolve(k, taps, t, y);
        k->c->kernels.activate(ACTIVATION_SILU, 0, y, NULL, y, k->n);
    }
}

/* Embeddings of n-grams: adds SiLU of the result to the streams. */
static void run_ngram_conv(const conv_task *k, float taps[][CONV_CHANNELS]) {
    for (int64_t t = 0; t < k->item->n_tokens; t++) {
        float y[CONV_CHANNELS];
        float *streams = cpu_exec_row(k->c, BUF_STREAMS, k->item->row + t) + k->first;
        convolve(k, taps, t, y);
        k->c->kernels.activate(ACTIVATION_SILU, 0, y, NULL, y, k->n);
        k->c->kernels.add(streams, y, streams, k->n);
    }
}

void cpu_exec_conv(cpu_exec *c, const plan_step *s, const plan_recurrent *r) {
    float taps[MAX_TAPS][CONV_CHANNELS];
    int64_t blocks = (r->n_conv + CONV_CHANNELS - 1) / CONV_CHANNELS;
    int64_t part = r->mixer == MIXER_KDA ? r->n_conv / 3 : r->n_conv;
    for (int64_t index; (index = pool_take(c->pool, 1)) < blocks * c->ubatch.n_items;) {
        conv_task k = {.c = c,
                       .r = r,
                       .item = &c->ubatch.items[index / blocks],
                       .in = s->in,
                       .first = index % blocks * CONV_CHANNELS};
        k.n = (int)(r->n_conv - k.first < CONV_CHANNELS ? r->n_conv - k.first : CONV_CHANNELS);
        for (int i = 0; i < k.n; i++) {
            int64_t channel = k.first + i;
            const float *from = r->taps[channel / part] + channel % part * r->n_taps;
            for (int j = 0; j < r->n_taps; j++) taps[j][i] = from[j];
        }
        if (r->mixer == MIXER_CONV)
            run_short_conv(&k, taps);
        else if (s->op == OP_NGRAM_CONV)
            run_ngram_conv(&k, taps);
        else
            run_ssm_conv(&k, taps);
        if (k.item->state_before) store_inputs(&k, k.item->n_before, k.item->state_before);
        store_inputs(&k, k.item->n_tokens, k.item->state_to);
    }
}

/* ---- recurrence ------------------------------------------------------------------------------ */

/* One head of one session. */
typedef struct recur_task {
    cpu_exec *c;
    const plan_recurrent *r;
    int64_t row; /* of the ubatch: the first token */
    int head, group;
    float *decay, *key, *query, *value; /* the thread's: [CPU_RECUR_TOKENS][n_state or head_dim] */
    float beta[CPU_RECUR_TOKENS];
    cpu_recurrence a;
} recur_task;

/* A row of SSM_CONV has values of all heads, then keys and queries of all groups (Mamba-2,
 * lightning attention), or queries, keys, values (delta rule), or only values (Mamba-1). */
static void set_ssm(recur_task *k, int t) {
    const plan_recurrent *r = k->r;
    const float *x = cpu_exec_row(k->c, BUF_SSM_CONV, k->row + t);
    const float *keys = x + r->n_head * r->head_dim, *queries = keys + r->n_group * r->n_state;
    size_t n_bytes = (size_t)r->n_state * sizeof(float);
    float step = 1;
    if (r->mixer == MIXER_SCAN) {
        keys = cpu_exec_row(k->c, BUF_SSM_KEY, k->row + t);
        queries = cpu_exec_row(k->c, BUF_SSM_QUERY, k->row + t);
    }
    if (r->dt_bias)
        step = cpu_exec_softplus(cpu_exec_row(k->c, BUF_SSM_STEP, k->row + t)[k->head] +
                                 r->dt_bias[k->head]);
    float decay = expf(step * r->a[k->head]);
    float *value = k->value + t * r->head_dim;
    for (int64_t i = 0; i < r->n_state; i++) k->decay[t * r->n_state + i] = decay;
    for (int64_t i = 0; i < r->head_dim; i++) value[i] = step * x[k->head * r->head_dim + i];
    memcpy(k->key + t * r->n_state, keys + k->group * r->n_state, n_bytes);
    memcpy(k->query + t * r->n_state, queries + k->group * r->n_state, n_bytes);
}

/* y = x / max(|x|, eps) * scale. */
static void normalize(const float *x, float *y, int64_t n, float eps, float scale) {
    enum { CHAINS = 8 }; /* partial sums, which a compiler can vectorize */
    float sums[CHAINS] = {0}, squares = 0;
    int64_t i = 0;
    for (; i + CHAINS <= n; i += CHAINS)
        for (int j = 0; j < CHAINS; j++) sums[j] += x[i + j] * x[i + j];
    for (; i < n; i++) squares += x[i] * x[i];
    for (int j = 0; j < CHAINS; j++) squares += sums[j];
    scale /= fmaxf(sqrtf(squares), eps);
    for (i = 0; i < n; i++) y[i] = x[i] * scale;
}

/* KDA: a decay for each element of a key. */
static void set_decays(recur_task *k, int t) {
    const plan_recurrent *r = k->r;
    int64_t first = k->head * r->n_state;
    const float *alpha = cpu_exec_row(k->c, BUF_SSM_STEP, k->row + t) + first;
    k->c->kernels.decay(alpha, r->dt_bias + first, r->a[k->head], k->c->model->hp.least_decay,
                        k->decay + t * r->n_state, r->n_state);
}

static void set_delta(recur_task *k, int t) {
    const plan_recurrent *r = k->r;
    int64_t row = k->row + t, n = r->n_state;
    float eps = k->c->model->hp.norm_eps;
    const float *queries = cpu_exec_row(k->c, BUF_SSM_CONV, row);
    const float *keys = queries + r->n_group * n, *values = keys + r->n_group * n;
    const float *beta = cpu_exec_row(k->c, BUF_SSM_BETA, row) + k->head;
    const float *alpha = cpu_exec_row(k->c, BUF_SSM_STEP, row) + k->head;
    if (r->paired) { /* per group the betas of its heads, then their alphas */
        int heads = r->n_head / r->n_group;
        beta = cpu_exec_row(k->c, BUF_SSM_BETA, row) + 2 * heads * k->group + k->head % heads;
        alpha = beta + heads;
    }
    if (r->mixer == MIXER_KDA) {
        set_decays(k, t);
    } else {
        float decay = expf(cpu_exec_softplus(*alpha + r->dt_bias[k->head]) * r->a[k->head]);
        for (int64_t i = 0; i < n; i++) k->decay[t * n + i] = decay;
    }
    normalize(queries + k->group * n, k->query + t * n, n, eps, 1 / sqrtf((float)n));
    normalize(keys + k->group * n, k->key + t * n, n, eps, 1);
    memcpy(k->value + t * r->head_dim, values + k->head * r->head_dim,
           (size_t)r->head_dim * sizeof(float));
    k->beta[t] = cpu_exec_sigmoid(*beta);
}

/* Runs n_tokens of an item from token t on. */
static void run_tokens(recur_task *k, const ubatch_item *item, int t, int n_tokens) {
    const plan_recurrent *r = k->r;
    k->row = item->row + t;
    for (int i = 0; i < n_tokens; i++) {
        if (k->a.beta)
            set_delta(k, i);
        else
            set_ssm(k, i);
    }
    k->a.n_tokens = n_tokens;
    k->a.out = cpu_exec_row(k->c, BUF_SSM_OUT, k->row) + k->head * r->head_dim;
    k->c->kernels.recur(&k->a);
    for (int i = 0; r->d && i < n_tokens; i++) {
        const float *x = cpu_exec_row(k->c, BUF_SSM_CONV, k->row + i) + k->head * r->head_dim;
        float *y = k->a.out + i * k->a.ld_out;
        for (int64_t j = 0; j < r->head_dim; j++) y[j] += r->d[k->head] * x[j];
    }
}

static void run_range(recur_task *k, const ubatch_item *item, int first, int end) {
    for (int t = first; t < end; t += CPU_RECUR_TOKENS)
        run_tokens(k, item, t, end - t < CPU_RECUR_TOKENS ? end - t : CPU_RECUR_TOKENS);
}

static void run_head(recur_task *k, const ubatch_item *item) {
    const plan_recurrent *r = k->r;
    int64_t n = r->head_dim * r->n_state, at = r->heads_at + k->head * n;
    size_t n_bytes = (size_t)n * sizeof(float);
    float *state = item->state_to + at;
    if (!item->state_from)
        memset(state, 0, n_bytes);
    else if (item->state_from != item->state_to)
        memcpy(state, item->state_from + at, n_bytes);
    k->a.state = state;
    k->group = r->groups_alternate ? k->head % r->n_group : k->head / (r->n_head / r->n_group);
    int kept = item->state_before ? item->n_before : 0;
    run_range(k, item, 0, kept);
    if (item->state_before) memcpy(item->state_before + at, state, n_bytes);
    run_range(k, item, kept, item->n_tokens);
}

/* ---- channels (Mamba-1) ---------------------------------------------------------------------- */

enum { SCAN_CHANNELS = 16, SCAN_CHAINS = 8 };

/* One channel and token: S = S e^(step a) + d key; returns S . query. */
static float scan_state(float *s, const float *a, float step, float d, const float *key,
                        const float *query, int64_t n) {
    float sums[SCAN_CHAINS] = {0}, sum = 0; /* partial sums, which a compiler can vectorize */
    int64_t i = 0;
    for (; i + SCAN_CHAINS <= n; i += SCAN_CHAINS) {
        float decay[SCAN_CHAINS];
        for (int j = 0; j < SCAN_CHAINS; j++) decay[j] = expf(step * a[i + j]);
        for (int j = 0; j < SCAN_CHAINS; j++) {
            s[i + j] = s[i + j] * decay[j] + d * key[i + j];
            sums[j] += s[i + j] * query[i + j];
        }
    }
    for (; i < n; i++) {
        s[i] = s[i] * expf(step * a[i]) + d * key[i];
        sum += s[i] * query[i];
    }
    for (int j = 0; j < SCAN_CHAINS; j++) sum += sums[j];
    return sum;
}

static void scan_tokens(cpu_exec *c, const plan_recurrent *r, const ubatch_item *item,
                        int64_t channel, float *state, int first, int end) {
    const float *a = r->a + channel * r->n_state;
    for (int t = first; t < end; t++) {
        int64_t row = item->row + t;
        float x = cpu_exec_row(c, BUF_SSM_CONV, row)[channel];
        float step = cpu_exec_softplus(cpu_exec_row(c, BUF_SSM_STEP, row)[channel] +
                                       r->dt_bias[channel]);
        float y = scan_state(state, a, step, step * x, cpu_exec_row(c, BUF_SSM_KEY, row),
                             cpu_exec_row(c, BUF_SSM_QUERY, row), r->n_state);
        cpu_exec_row(c, BUF_SSM_OUT, row)[channel] = y + r->d[channel] * x;
    }
}

static void scan_channel(cpu_exec *c, const plan_recurrent *r, const ubatch_item *item,
                         int64_t channel) {
    int64_t at = r->heads_at + channel * r->n_state;
    size_t n_bytes = (size_t)r->n_state * sizeof(float);
    float *state = item->state_to + at;
    if (!item->state_from)
        memset(state, 0, n_bytes);
    else if (item->state_from != item->state_to)
        memcpy(state, item->state_from + at, n_bytes);
    int kept = item->state_before ? item->n_before : 0;
    scan_tokens(c, r, item, channel, state, 0, kept);
    if (item->state_before) memcpy(item->state_before + at, state, n_bytes);
    scan_tokens(c, r, item, channel, state, kept, item->n_tokens);
}

static void scan(cpu_exec *c, const plan_recurrent *r) {
    int64_t takes = (r->n_head + SCAN_CHANNELS - 1) / SCAN_CHANNELS;
    for (int64_t index; (index = pool_take(c->pool, 1)) < takes * c->ubatch.n_items;) {
        int64_t first = index % takes * SCAN_CHANNELS;
        int64_t end = first + SCAN_CHANNELS < r->n_head ? first + SCAN_CHANNELS : r->n_head;
        for (int64_t channel = first; channel < end; channel++)
            scan_channel(c, r, &c->ubatch.items[index / takes], channel);
    }
}

void cpu_exec_recur(cpu_exec *c, const plan_recurrent *r, int ith) {
    if (r->channels) {
        scan(c, r);
        return;
    }
    int64_t n = CPU_RECUR_TOKENS * r->n_state;
    float *own = c->scratch[ith].recur;
    recur_task k = {.c = c, .r = r, .decay = own, .key = own + n, .query = own + 2 * n};
    k.value = own + 3 * n;
    k.a = (cpu_recurrence){.n_rows = r->head_dim,
                           .n = r->n_state,
                           .decay = k.decay,
                           .key = k.key,
                           .query = k.query,
                           .value = k.value,
                           .beta = r->mixer & (MIXER_DELTA | MIXER_KDA) ? k.beta : NULL,
                           .ld_out = c->plan->width[BUF_SSM_OUT],
                           .scratch = k.value + CPU_RECUR_TOKENS * r->head_dim};
    for (int64_t index; (index = pool_take(c->pool, 1)) < (int64_t)r->n_head * c->ubatch.n_items;) {
        k.head = (int)(index % r->n_head);
        run_head(&k, &c->ubatch.items[index / r->n_head]);
    }
}

/* ---- gates ----------------------------------------------------------------------------------- */

/* Mamba gates, then (Mamba-2) norms groups of heads. The delta rule norms every head, then gates
 * (Qwen4: with a sigmoid). KDA and lightning attention gate with a sigmoid; lightning attention
 * norms all heads together. */
static void gate_row(cpu_exec *c, const plan_recurrent *r, int64_t row) {
    bool first = r->mixer & (MIXER_SSM | MIXER_SCAN), all = r->mixer == MIXER_LIGHTNING;
    int64_t n = r->n_head * r->head_dim, width = first ? n / r->n_group : all ? n : r->head_dim;
    float *y = cpu_exec_row(c, BUF_SSM_OUT, row);
    const float *gate = cpu_exec_row(c, BUF_SSM_GATE, row);
    if (first) c->kernels.activate(ACTIVATION_SILU, 0, gate, y, y, n);
    for (int64_t i = 0; r->norm && i < n; i += width)
        c->kernels.rms_norm(y + i, first ? r->norm + i : r->norm, y + i, width,
                            c->model->hp.norm_eps);
    bool sigmoid = r->mixer & (MIXER_KDA | MIXER_LIGHTNING) || r->sigmoid;
    if (sigmoid) c->kernels.gate(gate, y, n);
    if (r->mixer == MIXER_DELTA && !sigmoid) c->kernels.activate(ACTIVATION_SILU, 0, gate, y, y, n);
}

void cpu_exec_gate_ssm(cpu_exec *c, const plan_recurrent *r) {
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;) gate_row(c, r, row);
}

void cpu_exec_gate_heads(cpu_exec *c, const plan_step *s, const args_gate_heads *a) {
    const model_layer_hparams *lhp = &c->model->layers[s->layer].hp;
    int n_head = lhp->n_head, n = lhp->head_dim;
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;) {
        float *y = cpu_exec_row(c, BUF_ATTN, row);
        for (int h = 0; h < n_head; h++)
            c->kernels.gate(cpu_exec_row(c, BUF_Q, row) + h * a->q_stride + n, y + h * n, n);
    }
}
