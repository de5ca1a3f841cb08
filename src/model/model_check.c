/* model_check.c: refuses tensors that do not belong together. */
#include "model_check.h"

static pi_status check_size(const model *m, tensor_role role, int64_t n, int64_t want,
                            pi_error *err) {
    if (!m->t[role].data || n == want) return PI_OK;
    return error_set(err, PI_ERR_FORMAT, "wrong shape: %s: %s has %lld elements, not %lld",
                     gguf_path(m->file), tensor_role_name(role), (long long)n, (long long)want);
}

/* The sizes of a classifier's tensors, and of projections of a text's vector, come from the file
 * and must match each other. */
pi_status model_check_text(const model *m, pi_error *err) {
    const model_tensor *cls = &m->t[ROLE_CLS], *out = &m->t[ROLE_CLS_OUT];
    bool hidden = cls->data && (out->data || m->t[ROLE_CLS_NORM].data);
    pi_status status = check_size(m, ROLE_CLS_BIAS, m->t[ROLE_CLS_BIAS].n_in, cls->n_out, err);
    if (status == PI_OK)
        status = check_size(m, ROLE_CLS_OUT_BIAS, m->t[ROLE_CLS_OUT_BIAS].n_in, out->n_out, err);
    if (status == PI_OK)
        status = check_size(m, ROLE_CLS, cls->n_out,
                            hidden || cls->n_out > m->hp.n_embd ? m->hp.n_embd : cls->n_out, err);
    const model_tensor *dense = &m->t[ROLE_DENSE_2];
    if (status == PI_OK)
        status = check_size(m, ROLE_DENSE_2_BIAS, m->t[ROLE_DENSE_2_BIAS].n_in, dense->n_out, err);
    if (status == PI_OK)
        status = check_size(m, ROLE_DENSE_3, m->t[ROLE_DENSE_3].n_in,
                            dense->data ? dense->n_out : m->hp.n_embd, err);
    return status;
}

/* Checks the experts of every token. */
static pi_status check_table(const model *m, int layer, pi_error *err) {
    const model_tensor *t = &m->layers[layer].t[ROLE_ROUTER_TABLE];
    const int32_t *expert = t->data;
    char name[64];
    for (int64_t i = 0; expert && i < t->n_in * t->n_out; i++) {
        if (expert[i] >= 0 && expert[i] < m->hp.n_expert) continue;
        arch_tensor_name(arch_tensor_of(m->arch, ROLE_ROUTER_TABLE), layer, name);
        return error_set(err, PI_ERR_FORMAT, "no such expert: %s: tensor %s: %d for token %lld",
                         gguf_path(m->file), name, expert[i], (long long)(i / t->n_in));
    }
    return PI_OK;
}

/* Checks that a layer with a router has experts. */
static pi_status check_experts(const model *m, int layer, pi_error *err) {
    const model_tensor *t = m->layers[layer].t;
    char name[64];
    if (!t[ROLE_ROUTER].data) return PI_OK;
    tensor_role missing = ROLE_COUNT;
    bool gated = arch_tensor_of(m->arch, ROLE_EXPERT_GATE);
    if (gated && !t[ROLE_EXPERT_GATE_UP].data && !t[ROLE_EXPERT_GATE].data)
        missing = ROLE_EXPERT_GATE;
    if (!t[ROLE_EXPERT_GATE_UP].data && !t[ROLE_EXPERT_UP].data) missing = ROLE_EXPERT_UP;
    if (!t[ROLE_EXPERT_DOWN].data && !t[ROLE_EXPERT_DOWN_T].data) missing = ROLE_EXPERT_DOWN;
    if (missing == ROLE_COUNT) return check_table(m, layer, err);
    arch_tensor_name(arch_tensor_of(m->arch, missing), layer, name);
    return error_set(err, PI_ERR_FORMAT,
                     "missing tensor: %s: %s is not in the file; is it complete?",
                     gguf_path(m->file), name);
}

static pi_status fail_layer(const model *m, int layer, const char *what, pi_error *err) {
    return error_set(err, PI_ERR_UNSUPPORTED, "not supported: %s: layer %d: %s", gguf_path(m->file),
                     layer, what);
}

/* Refuses combinations of tensors and keys that steps do not compute. */
static pi_status check_features(const model *m, int layer, pi_error *err) {
    const model_tensor *t = m->layers[layer].t;
    if (m->hp.qkv_clamp > 0 && t[ROLE_ATTN_Q_NORM].data)
        return fail_layer(m, layer, "clamped queries and keys that are also normed", err);
    const model_ngrams *g = &m->hp.ngrams;
    for (int i = 0; m->layers[layer].hp.ngrams && i < g->n_rows; i++)
        if (g->first[i] + g->rows[i] > m->t[ROLE_NGRAM_EMBD].n_out)
            return fail_layer(m, layer, "embeddings of n-grams after the end of their table", err);
    if (t[ROLE_FFN_ACT_SCALE].data && !t[ROLE_FFN_DOWN].data)
        return fail_layer(m, layer, "scales of activations in a prepared model", err);
    return PI_OK;
}

/* The two matrices of a product must have the same inner size, which only the file states. */
static pi_status check_low_rank(const model *m, int layer, pi_error *err) {
    static const tensor_role pairs[][2] = {{ROLE_SSM_ALPHA_A, ROLE_SSM_ALPHA_B},
                                           {ROLE_SSM_RATE_A, ROLE_SSM_RATE_B},
                                           {ROLE_SSM_FIRST_A, ROLE_SSM_FIRST_B},
                                           {ROLE_SSM_GATE_A, ROLE_SSM_GATE_B},
                                           {ROLE_SSM_SHIFT_A, ROLE_SSM_SHIFT_B}};
    const model_tensor *t = m->layers[layer].t;
    if (!(m->layers[layer].hp.mixers & MIXER_WKV)) return PI_OK;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const model_tensor *a = &t[pairs[i][0]], *b = &t[pairs[i][1]];
        int64_t n = pairs[i][1] == ROLE_SSM_SHIFT_B ? 5 * b->n_in : b->n_in;
        if (!a->data == !b->data && a->n_out == n) continue;
        return error_set(err, PI_ERR_FORMAT,
                         "wrong shape: %s: layer %d: the rows of %s and %s do not match",
                         gguf_path(m->file), layer, tensor_role_name(pairs[i][0]),
                         tensor_role_name(pairs[i][1]));
    }
    /* RWKV-7: one row less without a gate; values of later layers follow those of the first */
    bool wkv7 = t[ROLE_SSM_ERASE].data, first = t[ROLE_SSM_FIRST_A].data && layer > 0;
    int64_t n = wkv7 && t[ROLE_SSM_GATE_A].data ? 6 : 5;
    if (!t[ROLE_SSM_SHIFT].data && !t[ROLE_SSM_SHIFT_W].data) n = -1;
    if (t[ROLE_SSM_SHIFT].data && t[ROLE_SSM_SHIFT].n_out != n) n = -1;
    if (t[ROLE_SSM_SHIFT_W].data && !(t[ROLE_SSM_SHIFT_K].data && t[ROLE_SSM_SHIFT_V].data &&
                                      t[ROLE_SSM_SHIFT_R].data && t[ROLE_SSM_SHIFT_G].data))
        n = -1;
    if (n > 0 && (!wkv7 || layer == 0 || (first && t[ROLE_SSM_FIRST_BIAS].data))) return PI_OK;
    return error_set(err, PI_ERR_FORMAT,
                     "missing tensor: %s: layer %d has no weights of %s; is the file complete?",
                     gguf_path(m->file), layer,
                     n > 0 ? "the first layer's values" : "the token before");
}

pi_status model_check_layer(const model *m, int layer, pi_error *err) {
    pi_status status = check_experts(m, layer, err);
    if (status == PI_OK) status = check_features(m, layer, err);
    return status == PI_OK ? check_low_rank(m, layer, err) : status;
}
