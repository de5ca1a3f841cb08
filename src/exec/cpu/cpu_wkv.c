/* cpu_wkv.c: RWKV: inputs shifted towards the previous token, and the recurrence over a session's
 * state. Channels are independent, and so are heads: a thread computes some of them for one
 * session, with the tokens in order.
 *
 * Sources: Peng et al. 2024 (RWKV-6, arXiv 2404.05892), Peng et al. 2025 (RWKV-7, arXiv
 * 2503.14456). */
#include <string.h>

#include "cpu_exec.h"

/* ---- shift ----------------------------------------------------------------------------------- */

enum { SHIFT_CHANNELS = 256 };

/* Copies the input of token t to the state; t < 0: that of the last token before the ubatch. */
static void keep_input(const cpu_exec *c, const plan_step *s, const ubatch_item *item, int64_t at,
                       int64_t t, int64_t first, int64_t n, float *state) {
    const float *from = t >= 0             ? cpu_exec_row(c, s->in, item->row + t)
                        : item->state_from ? item->state_from + at
                                           : NULL;
    if (from)
        memmove(state + at + first, from + first, (size_t)n * sizeof *state);
    else
        memset(state + at + first, 0, (size_t)n * sizeof *state);
}

/* Channels [first, first + n) of one session's tokens. */
static void shift_tokens(const cpu_exec *c, const plan_step *s, const args_shift *a,
                         const ubatch_item *item, int64_t at, int64_t first, int64_t n) {
    const int64_t n_embd = c->model->hp.n_embd;
    static const float zeros[SHIFT_CHANNELS] = {0};
    for (int t = 0; t < item->n_tokens; t++) {
        const float *x = cpu_exec_row(c, s->in, item->row + t) + first;
        const float *before = t > 0              ? cpu_exec_row(c, s->in, item->row + t - 1) + first
                              : item->state_from ? item->state_from + at + first
                                                 : zeros;
        for (int k = 0; k < a->n; k++) {
            const float *w = a->weights[k] + first;
            float *y = cpu_exec_row(c, s->out, item->row + t) + k * n_embd + first;
            if (a->added)
                for (int64_t i = 0; i < n; i++) y[i] = x[i] + (before[i] - x[i]) * (w[i] + y[i]);
            else
                for (int64_t i = 0; i < n; i++) y[i] = x[i] + (before[i] - x[i]) * w[i];
        }
    }
}

void cpu_exec_shift(cpu_exec *c, const plan_step *s, const args_shift *a) {
    const int64_t n_embd = c->model->hp.n_embd;
    int64_t blocks = (n_embd + SHIFT_CHANNELS - 1) / SHIFT_CHANNELS;
    for (int64_t i; (i = pool_take(c->pool, 1)) < blocks * c->ubatch.n_items;) {
        const ubatch_item *item = &c->ubatch.items[i / blocks];
        int64_t first = i % blocks * SHIFT_CHANNELS;
        int64_t n = n_embd - first < SHIFT_CHANNELS ? n_embd - first : SHIFT_CHANNELS;
        shift_tokens(c, s, a, item, a->at, first, n);
        if (!a->keeps) continue;
        if (item->state_before)
            keep_input(c, s, item, a->at, item->n_before - 1, first, n, item->state_before);
        keep_input(c, s, item, a->at, item->n_tokens - 1, first, n, item->state_to);
    }
}

/* ---- recurrence ------------------------------------------------------------------------------ */

/* One head and token: vectors of n elements. The state S is [n][n], a row per element of a value.
 */
typedef struct wkv_token {
    int64_t n;
    const float *query, *decay, *key, *value;
    const float *erase, *insert; /* RWKV-7: S += (S . erase) insert, where S . erase uses S before
                                    the decay; else NULL */
    float *out;
} wkv_token;

enum { CHAINS = 8 }; /* partial sums, which a compiler can vectorize */

static float dot(const float *x, const float *y, int64_t n) {
    float sums[CHAINS] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + CHAINS <= n; i += CHAINS)
        for (int j = 0; j < CHAINS; j++) sums[j] += x[i + j] * y[i + j];
    for (; i < n; i++) sum += x[i] * y[i];
    for (int j = 0; j < CHAINS; j++) sum += sums[j];
    return sum;
}

/* RWKV-6 with a bonus reads the state before the token's key is added to it. */
static void update(const wkv_token *k, const float *bonus, float *state) {
    float own = 0;
    for (int64_t i = 0; bonus && i < k->n; i++) own += k->query[i] * bonus[i] * k->key[i];
    for (int64_t j = 0; j < k->n; j++) {
        float *s = state + j * k->n, v = k->value[j];
        if (bonus) k->out[j] = dot(s, k->query, k->n) + own * v;
        if (k->erase) {
            float erased = dot(s, k->erase, k->n);
            for (int64_t i = 0; i < k->n; i++)
                s[i] = s[i] * k->decay[i] + v * k->key[i] + erased * k->insert[i];
        } else {
            for (int64_t i = 0; i < k->n; i++) s[i] = s[i] * k->decay[i] + v * k->key[i];
        }
        if (!bonus) k->out[j] = dot(s, k->query, k->n);
    }
}

/* RWKV-7: sets the key, the direction to erase, the vector to insert, and the value. */
static void set_7(const cpu_exec *c, const struct plan_wkv *w, int64_t row, int64_t at,
                  wkv_token *k, float *own) {
    const float *key = k->key, *rate = cpu_exec_row(c, BUF_SSM_BETA, row) + at;
    float *erase = own, *insert = own + k->n, *out = own + 2 * k->n, *value = own + 3 * k->n;
    float squares = 0, *first = cpu_exec_row(c, BUF_LAYER_EMBD, row) + at;
    for (int64_t i = 0; i < k->n; i++) {
        erase[i] = key[i] * w->erase[at + i];
        squares += erase[i] * erase[i];
    }
    const float scale = 1 / fmaxf(sqrtf(squares), 1e-12f);
    for (int64_t i = 0; i < k->n; i++) {
        float a = cpu_exec_sigmoid(rate[i]);
        erase[i] *= -scale;
        insert[i] = -erase[i] * a;
        out[i] = key[i] * (1 + w->rate_key[at + i] * (a - 1));
    }
    const float *follow = w->keeps ? NULL : cpu_exec_row(c, BUF_SSM_LATENT, row) + at;
    for (int64_t i = 0; i < k->n; i++)
        value[i] = follow ? k->value[i] + (first[i] - k->value[i]) * cpu_exec_sigmoid(follow[i])
                          : k->value[i];
    if (w->keeps) memcpy(first, k->value, (size_t)k->n * sizeof *first);
    k->key = out;
    k->value = value;
    k->erase = erase;
    k->insert = insert;
}

static void run_token(cpu_exec *c, const plan_recurrent *r, int head, int64_t row, float *state,
                      float *own) {
    static const float norm_eps = 64e-5f, root = 0.606531f; /* e^-0.5, as trained */
    const struct plan_wkv *w = &r->wkv;
    const int64_t n = r->n_state, at = head * n, shared = head / (r->n_head / r->n_group) * n;
    const float *step = cpu_exec_row(c, BUF_SSM_STEP, row) + at;
    float *decay = own + 4 * n, *scaled = own;
    wkv_token k = {.n = n,
                   .query = cpu_exec_row(c, BUF_SSM_QUERY, row) + at,
                   .decay = decay,
                   .key = cpu_exec_row(c, BUF_SSM_KEY, row) + shared,
                   .value = cpu_exec_row(c, BUF_SSM_IN, row) + shared,
                   .out = cpu_exec_row(c, BUF_SSM_OUT, row) + at};
    for (int64_t i = 0; i < n; i++)
        decay[i] = expf(w->erase ? -root * cpu_exec_sigmoid(step[i]) : -expf(step[i]));
    if (w->erase) {
        set_7(c, w, row, at, &k, own);
    } else if (!w->bonus) {
        for (int64_t i = 0; i < n; i++) scaled[i] = k.key[i] * (1 - decay[i]);
        k.key = scaled;
    }
    update(&k, w->erase || !w->bonus ? NULL : w->bonus + at, state);
    const float scale = 1 / sqrtf((float)n);
    for (int64_t i = 0; !w->erase && !w->bonus && i < n; i++) k.out[i] *= scale;
    if (r->norm) c->kernels.layer_norm(k.out, r->norm + at, w->norm_bias + at, k.out, n, norm_eps);
    if (w->erase) {
        float bonus = 0;
        for (int64_t i = 0; i < n; i++) bonus += k.key[i] * k.query[i] * w->bonus[at + i];
        for (int64_t i = 0; i < n; i++) k.out[i] += bonus * k.value[i];
    }
    if (!w->gated) return;
    const float *gate = cpu_exec_row(c, BUF_SSM_GATE, row) + at;
    for (int64_t i = 0; i < n; i++) {
        float g = w->erase ? gate[i] : cpu_exec_sigmoid(gate[i]);
        k.out[i] *= !w->erase && w->bonus ? gate[i] * g : g;
    }
}

void cpu_exec_wkv(cpu_exec *c, const plan_recurrent *r, int ith) {
    for (int64_t index; (index = pool_take(c->pool, 1)) < (int64_t)r->n_head * c->ubatch.n_items;) {
        const int head = (int)(index % r->n_head);
        const ubatch_item *item = &c->ubatch.items[index / r->n_head];
        const int64_t n = r->n_state * r->n_state, at = r->heads_at + head * n;
        const size_t n_bytes = (size_t)n * sizeof(float);
        float *state = item->state_to + at;
        if (!item->state_from)
            memset(state, 0, n_bytes);
        else if (item->state_from != item->state_to)
            memcpy(state, item->state_from + at, n_bytes);
        for (int t = 0; t < item->n_tokens; t++) {
            if (item->state_before && t == item->n_before)
                memcpy(item->state_before + at, state, n_bytes);
            run_token(c, r, head, item->row + t, state, c->scratch[ith].recur);
        }
    }
}
