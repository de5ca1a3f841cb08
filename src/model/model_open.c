/* model_open.c: opens a model: finds its row of the architecture table, reads hyperparameters,
 * binds and validates every tensor that the row names. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "affix.h"
#include "bundle.h"
#include "mem.h"
#include "model_delta.h"
#include "model_drafter.h"
#include "model_latent.h"
#include "model_lora.h"
#include "model_scale.h"
#include "model_sparse.h"
#include "model_split.h"

/* Rank of the layer's predictors; 0: not known yet. */
static int64_t rank_of(const model *m, const model_layer *l) {
    const model_tensor *fc1 = &l->t[ROLE_EXPERT_FC1];
    return fc1->n_out ? fc1->n_out / m->hp.n_expert : l->t[ROLE_FC1].n_out;
}

/* Ranks and the sizes of some tables come from the file. fc2 has the rank of fc1, which is bound
 * before it, and the second matrix of a low-rank branch has the rank of the first. */
static int64_t resolve_dim(const model *m, int layer, arch_dim dim) {
    const model_layer *l = layer < 0 ? NULL : &m->layers[layer];
    int32_t head_dim = l ? l->hp.head_dim : m->hp.head_dim;
    arch_sizes sizes = {.n_embd = m->hp.n_embd,
                        .n_vocab = m->hp.n_vocab,
                        .n_ff = l ? l->hp.n_ff : 0,
                        .n_layer = m->hp.n_layer,
                        .n_index_head = m->hp.n_index_head,
                        .index_dim = m->hp.index_dim,
                        .n_embd_layer = m->hp.n_embd_layer,
                        .n_stream = m->hp.n_stream,
                        .n_hyper_rank = m->hp.hyper_rank,
                        .n_embd_ngram = m->hp.ngrams.n_embd,
                        .n_ngram_taps = m->hp.ngrams.n_taps,
                        .n_laurel = l ? l->t[ROLE_LAUREL_A].n_out : 0,
                        .n_expert = m->hp.n_expert,
                        .n_expert_embd = m->hp.n_expert_embd,
                        .n_ff_expert = l ? l->hp.n_ff_expert : 0,
                        .n_ff_shared = l ? l->hp.n_ff_shared : 0,
                        .n_head = l ? l->hp.n_head : 0,
                        .n_head_kv = l ? l->hp.n_head_kv : 0,
                        .head_dim = head_dim,
                        .q_dim = m->hp.n_latent ? m->hp.q_dim : 0,
                        .v_dim = m->hp.v_dim,
                        .n_rot = m->hp.n_rots[ROPE_SET_GLOBAL],
                        .n_rots = m->hp.n_rot,
                        .n_latent = m->hp.n_latent,
                        .n_latent_q = m->hp.n_latent_q,
                        .n_adjugate = m->hp.n_adjugate,
                        .n_ff_adjugate = l ? l->hp.n_ff_adjugate : 0,
                        .ratio = l ? l->hp.ratio : 0,
                        .n_parts = l && l->hp.overlaps ? 2 : 1,
                        .n_out_group = m->hp.n_out_group,
                        .n_out_rank = m->hp.n_out_rank,
                        .n_expert_used = m->hp.n_expert_used,
                        .n_taps = m->hp.n_taps,
                        .n_conv = m->hp.n_conv,
                        .n_inner = m->hp.n_inner,
                        .n_ssm_head = m->hp.n_ssm_head,
                        .n_ssm_group = m->hp.n_ssm_group,
                        .n_state = m->hp.n_state,
                        .n_step_rank = m->hp.n_step_rank,
                        .n_rank = l ? rank_of(m, l) : m->t[ROLE_OUTPUT_FC1].n_out};
    return arch_dim_size(dim, &sizes);
}

static pi_status fail_shape(const model *m, const gguf_tensor *t, const int64_t want[3],
                            pi_error *err) {
    char is[96]; /* at most four numbers of 20 digits */
    size_t used = 0;
    for (int d = 0; d < t->n_dims; d++)
        used += (size_t)snprintf(is + used, sizeof is - used, d ? ", %llu" : "%llu",
                                 (unsigned long long)t->dims[d]);
    return error_set(err, PI_ERR_FORMAT,
                     "wrong shape: %s: tensor %s is [%s], the hyperparameters need "
                     "[%lld%s%.0lld%s%.0lld]",
                     gguf_path(m->file), t->name, is, (long long)want[0], want[1] > 1 ? ", " : "",
                     want[1] > 1 ? (long long)want[1] : 0, want[2] > 1 ? ", " : "",
                     want[2] > 1 ? (long long)want[2] : 0);
}

/* Binds a small vector as F32: in place when it is F32 and aligned, otherwise converted. */
static pi_status bind_vector(model *m, const gguf_tensor *t, model_tensor *out, pi_error *err) {
    const quant_traits *traits = quant_find(t->type);
    if (!traits || traits->is_quantized || !traits->dequantize)
        return error_set(err, PI_ERR_FORMAT,
                         "wrong type: %s: tensor %s must be f32, f16 or bf16, not %s",
                         gguf_path(m->file), t->name, traits ? traits->name : "unknown");
    out->type = QUANT_F32;
    out->n_bytes = out->row_bytes = (size_t)t->n_elems * sizeof(float);
    if (t->type == QUANT_F32 && (uintptr_t)t->data % _Alignof(float) == 0) {
        out->data = t->data;
        return PI_OK;
    }
    float *copy = arena_alloc(&m->arena, out->n_bytes);
    if (!copy) return error_nomem(err, out->n_bytes, t->name);
    traits->dequantize(t->data, copy, (int64_t)t->n_elems);
    out->data = copy;
    return PI_OK;
}

/* Binds integers: signs as one byte per eight weights, others with 32 bits. */
static pi_status bind_raw(model *m, const arch_tensor *row, const gguf_tensor *t, model_tensor *out,
                          pi_error *err) {
    bool table = row->role == ROLE_ROUTER_TABLE;
    quant_type want = row->dims[1] == DIM_NONE || table ? QUANT_I32 : QUANT_I8;
    if (t->type != want)
        return error_set(err, PI_ERR_FORMAT,
                         "wrong type: %s: tensor %s must be %s, not %s; prepare the model again",
                         gguf_path(m->file), t->name, quant_find(want)->name,
                         quant_find(t->type) ? quant_find(t->type)->name : "unknown");
    out->type = want;
    out->n_bytes = t->n_bytes;
    out->row_bytes = t->n_bytes / (size_t)out->n_out;
    out->data = t->data;
    if ((uintptr_t)t->data % _Alignof(int32_t) == 0) return PI_OK;
    void *copy = arena_alloc(&m->arena, t->n_bytes);
    if (!copy) return error_nomem(err, t->n_bytes, t->name);
    memcpy(copy, t->data, t->n_bytes);
    out->data = copy;
    return PI_OK;
}

bool model_reads_scale(const arch_row *arch, const arch_tensor *row) {
    bool ffn = row->flags & (TENSOR_NEURON_ROWS | TENSOR_NEURON_COLS);
    bool of_expert = row->role >= ROLE_EXPERT_GATE_UP && row->role <= ROLE_SHARED_DOWN;
    if (row->flags & TENSOR_UNSCALED) return false;
    if (row->role == ROLE_ROUTER && arch_tensor_of(arch, ROLE_ROUTER_SCALE)) return false;
    if (of_expert && arch->has & ARCH_EXPERTS_UNSCALED) return false;
    if (ffn && arch->has & ARCH_FFN_UNSCALED) return false;
    return tensor_role_part(row->role) != PART_RECURRENT || !arch->ssm_unscaled;
}

/* Reads the scale of "blk.0.ffn_up.weight" from "blk.0.ffn_up.scale", if present; for experts'
 * matrices one number per expert. */
static pi_status read_scale(model *m, const arch_tensor *row, int layer, model_tensor *out,
                            pi_error *err) {
    char weight[64], name[64 + sizeof ".scale"];
    bool experts = row->dims[2] == DIM_EXPERTS;
    out->scale = 1;
    if (!model_reads_scale(m->arch, row)) return PI_OK;
    arch_tensor_name(row, layer, weight);
    const char *end = strstr(weight, ".weight");
    if (!end) return PI_OK;
    snprintf(name, sizeof name, "%.*s.scale", (int)(end - weight), weight);
    const gguf_tensor *s = gguf_find_tensor(m->file, name);
    if (!s) return PI_OK;
    const quant_traits *traits = quant_find(s->type);
    uint64_t n = experts ? (uint64_t)m->hp.n_expert : 1;
    if (s->n_elems != n || !traits || traits->is_quantized || !traits->dequantize)
        return error_set(err, PI_ERR_FORMAT, "bad scale: %s: tensor %s must be %llu float%s",
                         gguf_path(m->file), name, (unsigned long long)n, n == 1 ? "" : "s");
    if (!experts) {
        traits->dequantize(s->data, &out->scale, 1);
        return PI_OK;
    }
    model_tensor vector = {0};
    pi_status status = bind_vector(m, s, &vector, err);
    out->scales = vector.data;
    return status;
}

static pi_status bind_matrix(const model *m, const gguf_tensor *t, model_tensor *out,
                             pi_error *err) {
    const quant_traits *traits = quant_find(t->type);
    if (!traits || !traits->dequantize)
        return error_set(
            err, PI_ERR_UNSUPPORTED,
            "no kernels for type %s: %s: tensor %s; quantize the model to another type",
            traits ? traits->name : "unknown", gguf_path(m->file), t->name);
    out->type = t->type;
    out->data = t->data;
    out->n_bytes = t->n_bytes;
    if (!quant_row_bytes(t->type, t->dims[0], &out->row_bytes))
        return error_set(err, PI_ERR_FORMAT, "row does not fill blocks: %s: tensor %s of type %s",
                         gguf_path(m->file), t->name, traits->name);
    if (t->n_dims == 3) out->expert_bytes = t->n_bytes / (size_t)t->dims[2];
    return PI_OK;
}

/* Tensors with an alternative form: files have one or the other. */
static const struct {
    tensor_role role, instead;
} other_forms[] = {
    {ROLE_ATTN_Q, ROLE_ATTN_QKV},           {ROLE_ATTN_K, ROLE_ATTN_QKV},
    {ROLE_ATTN_V, ROLE_ATTN_QKV},           {ROLE_ATTN_Q_BIAS, ROLE_ATTN_QKV_BIAS},
    {ROLE_ATTN_K_BIAS, ROLE_ATTN_QKV_BIAS}, {ROLE_ATTN_V_BIAS, ROLE_ATTN_QKV_BIAS},
    {ROLE_FFN_DOWN, ROLE_FFN_DOWN_T},       {ROLE_FFN_DOWN_BIAS, ROLE_FFN_DOWN_T_BIAS},
    {ROLE_ATTN_Q, ROLE_ATTN_Q_B},           {ROLE_ATTN_K_B, ROLE_ATTN_KV_B},
    {ROLE_ATTN_V_B, ROLE_ATTN_KV_B},        {ROLE_EXPERT_DOWN, ROLE_EXPERT_DOWN_T},
    {ROLE_FFN_GATE, ROLE_FFN_BUNDLE},       {ROLE_FFN_UP, ROLE_FFN_BUNDLE},
    {ROLE_FFN_DOWN, ROLE_FFN_BUNDLE},       {ROLE_FFN_DOWN_T, ROLE_FFN_BUNDLE},
    {ROLE_FFN_GATE_UP, ROLE_FFN_BUNDLE},    {ROLE_SSM_IN, ROLE_SSM_QKVZ},
    {ROLE_SSM_GATE, ROLE_SSM_QKVZ},         {ROLE_EXPERT_GATE_UP, ROLE_EXPERT_BUNDLE},
    {ROLE_EXPERT_GATE, ROLE_EXPERT_BUNDLE}, {ROLE_EXPERT_UP, ROLE_EXPERT_BUNDLE},
    {ROLE_EXPERT_DOWN, ROLE_EXPERT_BUNDLE}, {ROLE_EXPERT_DOWN_T, ROLE_EXPERT_BUNDLE},
};

enum { N_OTHER_FORMS = sizeof other_forms / sizeof other_forms[0] };

static const gguf_tensor *find_role(const model *m, tensor_role role, int layer, char name[64]) {
    const arch_tensor *row = arch_tensor_of(m->arch, role);
    if (!row) return NULL;
    arch_tensor_name(row, layer, name);
    const gguf_tensor *t = gguf_find_tensor(m->file, name);
    const model_split *split = t ? NULL : model_find_split(m, role, layer);
    return split ? &split->all : t;
}

static bool has_ngrams(const model *m, const arch_tensor *row, int layer) {
    return row->flags & TENSOR_PER_LAYER ? m->layers[layer].hp.ngrams : m->hp.ngrams.size > 0;
}

/* Checks a tensor that the file lacks: it may be optional, or present in another form. */
static pi_status check_missing(const model *m, const arch_tensor *row, int layer, pi_error *err) {
    char name[64], other[64];
    bool table = row->role == ROLE_ROUTER_TABLE && m->layers[layer].hp.routes_by_token;
    if (row->flags & TENSOR_OPTIONAL && !table) return PI_OK;
    bool first = row->role == ROLE_ATTN_NORM || row->role == ROLE_ATTN_NORM_BIAS;
    if (first && m->arch->layers == LAYERS_BY_HEADS && !m->layers[layer].hp.mixers) return PI_OK;
    if (row->flags & TENSOR_OWN_KV && m->layers[layer].hp.kv_layer != layer) return PI_OK;
    if (row->flags & TENSOR_OWN_INDEX && !m->layers[layer].hp.index_own) return PI_OK;
    if (row->flags & TENSOR_COMPRESSED && m->layers[layer].hp.ratio == 0) return PI_OK;
    if (row->flags & TENSOR_LAYER_EMBD && m->hp.n_embd_layer == 0) return PI_OK;
    if (row->flags & TENSOR_NGRAMS && !has_ngrams(m, row, layer)) return PI_OK;
    if (row->flags & TENSOR_NO_EXPERTS && find_role(m, ROLE_ROUTER, layer, other)) return PI_OK;
    if (row->flags & TENSOR_NO_DENSE && !find_role(m, ROLE_ROUTER, layer, other)) return PI_OK;
    for (int i = 0; i < N_OTHER_FORMS; i++)
        if (other_forms[i].role == row->role && find_role(m, other_forms[i].instead, layer, other))
            return PI_OK;
    arch_tensor_name(row, layer, name);
    return error_set(err, PI_ERR_FORMAT,
                     "missing tensor: %s: %s is not in the file; is it complete?",
                     gguf_path(m->file), name);
}

/* Refuses files with two forms of the same matrix, which may contradict each other. Some files of
 * Qwen3-Next have both; the newer form takes precedence, as in llama.cpp. */
static pi_status check_twice(const model *m, const arch_tensor *row, int layer, pi_error *err) {
    char name[64], other[64];
    for (int i = 0; i < N_OTHER_FORMS; i++) {
        if (other_forms[i].role != row->role || row->role == ROLE_SSM_IN ||
            row->role == ROLE_SSM_GATE || !find_role(m, other_forms[i].instead, layer, other))
            continue;
        arch_tensor_name(row, layer, name);
        return error_set(err, PI_ERR_FORMAT,
                         "duplicate matrix: %s: %s and %s are both present; remove one",
                         gguf_path(m->file), name, other);
    }
    return PI_OK;
}

static pi_status check_shape(const model *m, const arch_tensor *row, int layer,
                             const gguf_tensor *t, model_tensor *out, pi_error *err) {
    int64_t want[3];
    uint64_t is[3] = {t->dims[0], t->dims[1], t->dims[2]};
    bool fourth = row->flags & TENSOR_FOURTH && is[1] == 1 && is[2] == 1;
    bool fits = fourth || t->dims[3] == 1;
    if (fourth) is[1] = t->dims[3];
    for (int i = 0; i < 3; i++) {
        want[i] = resolve_dim(m, layer, row->dims[i]);
        bool open = row->dims[i] == DIM_RANK || row->dims[i] == DIM_POS ||
                    row->dims[i] == DIM_BUNDLE || row->dims[i] == DIM_LAUREL ||
                    row->dims[i] == DIM_PROFILER || row->dims[i] == DIM_TYPES ||
                    row->dims[i] == DIM_OPEN || row->dims[i] == DIM_NGRAM_ROWS;
        uint64_t most = row->dims[i] == DIM_BUNDLE       ? t->n_bytes
                        : row->dims[i] == DIM_PROFILER   ? t->n_elems
                        : row->dims[i] == DIM_NGRAM_ROWS ? (uint64_t)INT32_MAX
                                                         : MODEL_MAX_VOCAB;
        if (row->dims[i] == DIM_ATTN_GATE && is[i] == (uint64_t)m->layers[layer].hp.n_head)
            want[i] = m->layers[layer].hp.n_head;
        if (open && want[i] == 0) want[i] = is[i] <= most ? (int64_t)is[i] : 0;
        if (is[i] != (uint64_t)want[i]) fits = false;
    }
    out->n_in = want[0];
    out->n_out = want[1] * want[2];
    if (row->flags & TENSOR_STACKED && t->n_dims == 2 && t->dims[0] == (uint64_t)want[0] &&
        t->dims[1] == (uint64_t)out->n_out)
        fits = true;
    if (row->flags & TENSOR_STACKED && row->flags & TENSOR_F32 && t->n_dims == 1 &&
        t->dims[0] == (uint64_t)(out->n_in * out->n_out))
        fits = true;
    return fits ? PI_OK : fail_shape(m, t, want, err);
}

bool model_layer_has(const model_layer_hparams *l, tensor_role role) {
    arch_part part = tensor_role_part(role);
    return part == PART_ANY || (part == PART_ATTENTION && l->mixers & MIXER_ATTENTION) ||
           (part == PART_RECURRENT && l->mixers & MIXER_RECURRENT) || (part == PART_FFN && l->ffn);
}

/* Reads the order in which `prepare` stored n neurons or experts, `twice` for two fused matrices.
 * *out is NULL if `prepare` did not sort them. */
static pi_status read_order(const model *m, tensor_role role, int layer, int64_t n, bool twice,
                            int32_t **out, pi_error *err) {
    char name[64];
    const gguf_tensor *t = find_role(m, role, layer, name);
    size_t n_bytes = (size_t)n * sizeof **out;
    *out = NULL;
    if (!t) return PI_OK;
    if (t->type != QUANT_I32 || t->n_bytes != n_bytes)
        return error_set(err, PI_ERR_FORMAT, "unexpected shape: %s: tensor %s is not [%lld] of I32",
                         gguf_path(m->file), name, (long long)n);
    *out = mem_alloc(2 * n_bytes);
    if (!*out) return error_nomem(err, 2 * n_bytes, name);
    memcpy(*out, t->data, n_bytes);
    pi_status status = perm_check(*out, n, name, err);
    for (int64_t i = 0; i < n && twice && status == PI_OK; i++)
        (*out)[n + i] = (*out)[i] + (int32_t)n;
    return status;
}

/* Adapters refer to matrices as they were before `prepare`. */
static pi_status merge_adapters(model *m, const arch_tensor *row, int layer, const gguf_tensor *t,
                                model_tensor *out, pi_error *err) {
    lora_form form = {.layer = layer,
                      .embedding = row->role == ROLE_TOKEN_EMBD || row->role == ROLE_POS_EMBD ||
                                   row->role == ROLE_TOKEN_TYPES,
                      .transposed = row->role == ROLE_FFN_DOWN_T ||
                                    row->role == ROLE_EXPERT_DOWN_T};
    tensor_role known = row->role == ROLE_FFN_DOWN_T      ? ROLE_FFN_DOWN
                        : row->role == ROLE_EXPERT_DOWN_T ? ROLE_EXPERT_DOWN
                                                          : row->role;
    bool both = row->role == ROLE_FFN_GATE_UP, router = row->role == ROLE_ROUTER;
    bool rows = row->flags & TENSOR_NEURON_ROWS;
    bool columns = row->flags & TENSOR_NEURON_COLS;
    bool experts = router || row->role == ROLE_EXPERT_DOWN_T ||
                   (row->role >= ROLE_EXPERT_GATE_UP && row->role <= ROLE_EXPERT_DOWN_BIAS);
    int32_t *order = NULL;
    pi_status status = PI_OK;
    arch_tensor_name(arch_tensor_of(m->arch, known), layer, form.name);
    if (experts)
        status = read_order(m, ROLE_EXPERT_PERM, layer, m->hp.n_expert, false, &order, err);
    else if (rows || columns)
        status = read_order(m, ROLE_FFN_PERM, layer, m->layers[layer].hp.n_ff, both, &order, err);
    if (experts && !router)
        form.items = order;
    else if (columns)
        form.columns = order;
    else
        form.rows = order;
    if (status == PI_OK) status = lora_merge(m->adapters, m, t, &form, out, err);
    mem_free(order);
    return status;
}

/* The weights of a norm that has none. */
static pi_status bind_ones(model *m, const arch_tensor *row, int layer, model_tensor *out,
                           pi_error *err) {
    int64_t n_in = resolve_dim(m, layer, row->dims[0]), n_out = resolve_dim(m, layer, row->dims[1]);
    size_t n = (size_t)(n_in * n_out), n_bytes = n * sizeof(float);
    float *ones = arena_alloc(&m->arena, n_bytes);
    if (!ones) return error_nomem(err, n_bytes, row->name);
    for (size_t i = 0; i < n; i++) ones[i] = 1;
    *out = (model_tensor){.data = ones,
                          .n_bytes = n_bytes,
                          .row_bytes = (size_t)n_in * sizeof(float),
                          .n_in = n_in,
                          .n_out = n_out,
                          .scale = 1,
                          .type = QUANT_F32};
    return PI_OK;
}

pi_status model_bind_tensor(model *m, const arch_tensor *row, int layer, pi_error *err) {
    char name[64];
    if (row->flags & TENSOR_PER_LAYER && !model_layer_has(&m->layers[layer].hp, row->role))
        return PI_OK;
    if (row->role == ROLE_SSM_QKVZ && find_role(m, ROLE_SSM_IN, layer, name)) return PI_OK;
    model_tensor *out = row->flags & TENSOR_PER_LAYER ? &m->layers[layer].t[row->role]
                                                      : &m->t[row->role];
    arch_tensor_name(row, layer, name);
    const gguf_tensor *t = gguf_find_tensor(m->file, name);
    const model_split *split = t ? NULL : model_find_split(m, row->role, layer);
    if (split) t = &split->all;
    if (row->flags & TENSOR_UNUSED) return PI_OK;
    if (row->flags & TENSOR_NGRAMS && !has_ngrams(m, row, layer)) return PI_OK;
    if (row->flags & TENSOR_OWN_INDEX && m->arch->index_pools && !m->layers[layer].hp.index_own)
        return PI_OK;
    if (row->role == ROLE_ROUTER_TABLE && !m->layers[layer].hp.routes_by_token) return PI_OK;
    /* one name, and its shape tells which role it has */
    if (row->role == ROLE_FFN_UP && m->layers[layer].t[ROLE_FFN_GATE_UP].data) return PI_OK;
    if (t && row->flags & TENSOR_IF_FITS &&
        t->dims[1] != (uint64_t)resolve_dim(m, layer, row->dims[1]))
        return PI_OK;
    if (!t && row->flags & TENSOR_ONES) return bind_ones(m, row, layer, out, err);
    if (!t) return check_missing(m, row, layer, err);
    pi_status status = check_shape(m, row, layer, t, out, err);
    if (status == PI_OK) status = check_twice(m, row, layer, err);
    if (status != PI_OK) return status;
    bool sparse = row->flags & TENSOR_SPARSE;
    if (!sparse || row->role == ROLE_FFN_DOWN_T || row->role == ROLE_FFN_DOWN_T_BIAS ||
        row->role == ROLE_EXPERT_DOWN_T)
        m->n_params += t->n_elems;
    m->weight_bytes += t->n_bytes;
    if (row->flags & TENSOR_RAW) return bind_raw(m, row, t, out, err);
    if (row->flags & TENSOR_F32) return bind_vector(m, t, out, err);
    status = bind_matrix(m, t, out, err);
    if (status == PI_OK && split) out->expert_bytes = split->expert_bytes;
    if (status == PI_OK && m->adapters) status = merge_adapters(m, row, layer, t, out, err);
    return status == PI_OK ? read_scale(m, row, layer, out, err) : status;
}

/* Rows [first, first + n) of a matrix. */
static model_tensor row_view(const model_tensor *t, int64_t first, int64_t n) {
    model_tensor view = *t;
    view.data = (const uint8_t *)t->data + (size_t)first * t->row_bytes;
    view.n_bytes = (size_t)n * t->row_bytes;
    view.n_out = n;
    return view;
}

static model_tensor vector_view(const float *data, int64_t n) {
    size_t n_bytes = (size_t)n * sizeof *data;
    return (model_tensor){.data = data,
                          .n_bytes = n_bytes,
                          .row_bytes = n_bytes,
                          .n_in = n,
                          .n_out = 1,
                          .scale = 1,
                          .type = QUANT_F32};
}

/* Splits fused tensors into their parts and renames a bias. */
static void bind_parts(model *m, int layer) {
    model_tensor *t = m->layers[layer].t;
    const model_layer_hparams *lhp = &m->layers[layer].hp;
    if (t[ROLE_ATTN_QKV].data) {
        int64_t n_q = (int64_t)lhp->n_head * lhp->head_dim;
        int64_t n_kv = (int64_t)lhp->n_head_kv * lhp->head_dim;
        int64_t n_v = (int64_t)lhp->n_head_kv * lhp->v_dim;
        t[ROLE_ATTN_Q] = row_view(&t[ROLE_ATTN_QKV], 0, n_q);
        t[ROLE_ATTN_K] = row_view(&t[ROLE_ATTN_QKV], n_q, n_kv);
        t[ROLE_ATTN_V] = row_view(&t[ROLE_ATTN_QKV], n_q + n_kv, n_v);
        t[ROLE_ATTN_QKV] = (model_tensor){0};
    }
    if (t[ROLE_ATTN_QKV_BIAS].data) {
        const float *bias = t[ROLE_ATTN_QKV_BIAS].data;
        int64_t n_q = (int64_t)lhp->n_head * lhp->head_dim;
        int64_t n_kv = (int64_t)lhp->n_head_kv * lhp->head_dim;
        t[ROLE_ATTN_Q_BIAS] = vector_view(bias, n_q);
        t[ROLE_ATTN_K_BIAS] = vector_view(bias + n_q, n_kv);
        t[ROLE_ATTN_V_BIAS] = vector_view(bias + n_q + n_kv, (int64_t)lhp->n_head_kv * lhp->v_dim);
        t[ROLE_ATTN_QKV_BIAS] = (model_tensor){0};
    }
    if (t[ROLE_FFN_GATE_UP].data) {
        t[ROLE_FFN_GATE] = row_view(&t[ROLE_FFN_GATE_UP], 0, lhp->n_ff);
        t[ROLE_FFN_UP] = row_view(&t[ROLE_FFN_GATE_UP], lhp->n_ff, lhp->n_ff);
        t[ROLE_FFN_GATE_UP] = (model_tensor){0};
    }
    if (!t[ROLE_ATTN_V].data) t[ROLE_ATTN_V] = t[ROLE_ATTN_K]; /* the keys serve as values */
    if (t[ROLE_FFN_DOWN_T_BIAS].data) {
        t[ROLE_FFN_DOWN_BIAS] = t[ROLE_FFN_DOWN_T_BIAS];
        t[ROLE_FFN_DOWN_T_BIAS] = (model_tensor){0};
    }
}

/* A part of a bundle that an adapter changes becomes a separate matrix; the rows of the layer are
 * then no longer read together. */
static pi_status merge_part(model *m, bundle_kind kind, const arch_tensor *row, int layer,
                            const gguf_tensor *bundle, pi_error *err) {
    model_layer *l = &m->layers[layer];
    model_tensor *out = &l->t[row->role];
    const void *was = out->data;
    gguf_tensor part = *bundle;
    arch_tensor_name(row, layer, part.name);
    part.type = out->type;
    part.data = out->data;
    part.dims[0] = (uint64_t)out->n_in;
    if (kind == BUNDLE_EXPERTS) {
        part.dims[2] = bundle->dims[1];
        part.dims[1] = (uint64_t)out->n_out / part.dims[2];
    }
    pi_status status = merge_adapters(m, row, layer, &part, out, err);
    if (out->data != was && kind == BUNDLE_NEURONS) l->bundle = NULL;
    if (out->data != was && kind == BUNDLE_EXPERTS) l->expert_bundle = NULL;
    return status;
}

/* Like merge_part, for gate and up of adapters that have one matrix with the rows of both. */
static pi_status merge_fused(model *m, const arch_tensor *row, int layer, const gguf_tensor *bundle,
                             pi_error *err) {
    model_layer *l = &m->layers[layer];
    const model_tensor *gate = &l->t[ROLE_FFN_GATE], *up = &l->t[ROLE_FFN_UP];
    int64_t n_ff = gate->n_out;
    model_tensor both = *gate;
    both.row_bytes = gate->n_bytes / (size_t)n_ff;
    both.n_bytes = gate->n_bytes + up->n_bytes;
    both.n_out = 2 * n_ff;
    uint8_t *rows = mem_alloc(both.n_bytes);
    if (!rows) return error_nomem(err, both.n_bytes, bundle->name);
    for (int64_t i = 0; i < 2 * n_ff; i++) {
        const model_tensor *part = i < n_ff ? gate : up;
        const uint8_t *from = (const uint8_t *)part->data + (size_t)(i % n_ff) * part->row_bytes;
        memcpy(rows + (size_t)i * both.row_bytes, from, both.row_bytes);
    }
    both.data = rows;
    gguf_tensor whole = *bundle;
    arch_tensor_name(row, layer, whole.name);
    whole.type = both.type;
    whole.data = rows;
    whole.dims[0] = (uint64_t)both.n_in;
    whole.dims[1] = (uint64_t)both.n_out;
    pi_status status = merge_adapters(m, row, layer, &whole, &both, err);
    if (status == PI_OK && both.data != rows) {
        l->t[ROLE_FFN_GATE] = row_view(&both, 0, n_ff);
        l->t[ROLE_FFN_UP] = row_view(&both, n_ff, n_ff);
        l->bundle = NULL;
    }
    mem_free(rows);
    return status;
}

/* The scales of the parts are separate tensors, with the same names as without the bundle. */
static pi_status bind_bundle(model *m, bundle_kind kind, int layer, pi_error *err) {
    model_layer *l = &m->layers[layer];
    pi_status status = model_bind_bundle(m, kind, layer, err);
    const gguf_tensor *bundle = model_bundle(l, kind);
    const arch_tensor *fused = kind == BUNDLE_NEURONS ? arch_tensor_of(m->arch, ROLE_FFN_GATE_UP)
                                                      : NULL;
    if (bundle && status == PI_OK && m->adapters && fused)
        status = merge_fused(m, fused, layer, bundle, err);
    for (int i = 0; i < BUNDLE_PARTS && bundle && status == PI_OK; i++) {
        tensor_role role = bundle_part_role(kind, i);
        if (role == ROLE_COUNT || !l->t[role].data) continue;
        const arch_tensor *row = arch_tensor_whole(m->arch, role);
        if (row && row != fused && m->adapters)
            status = merge_part(m, kind, row, layer, bundle, err);
        if (row && status == PI_OK) status = read_scale(m, row, layer, &l->t[role], err);
    }
    return status;
}

static pi_status check_size(const model *m, tensor_role role, int64_t n, int64_t want,
                            pi_error *err) {
    if (!m->t[role].data || n == want) return PI_OK;
    return error_set(err, PI_ERR_FORMAT, "wrong shape: %s: %s has %lld elements, not %lld",
                     gguf_path(m->file), tensor_role_name(role), (long long)n, (long long)want);
}

/* The sizes of a classifier's tensors, and of projections of a text's vector, come from the file
 * and must match each other. */
static pi_status check_text_tensors(const model *m, pi_error *err) {
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

/* Learned positions limit the context. */
static pi_status bind_positions(model *m, pi_error *err) {
    const model_tensor *t = &m->t[ROLE_POS_EMBD];
    if (!t->data) return PI_OK;
    if (t->n_out <= m->arch->pos_offset)
        return error_set(err, PI_ERR_FORMAT,
                         "no positions: %s: the position table has %lld rows, and the "
                         "first %d are unused; is the file complete?",
                         gguf_path(m->file), (long long)t->n_out, m->arch->pos_offset);
    m->hp.n_pos = (int32_t)(t->n_out - m->arch->pos_offset);
    if (m->hp.n_ctx_train > m->hp.n_pos) m->hp.n_ctx_train = m->hp.n_pos;
    return PI_OK;
}

/* Expert widths come from the tensors, because programs disagree about the keys. */
static void read_expert_widths(model *m) {
    for (int layer = 0; layer < m->hp.n_layer && m->hp.n_expert > 0; layer++) {
        char name[64];
        model_layer_hparams *hp = &m->layers[layer].hp;
        const gguf_tensor *down = find_role(m, ROLE_EXPERT_DOWN, layer, name);
        const gguf_tensor *down_t = find_role(m, ROLE_EXPERT_DOWN_T, layer, name);
        const gguf_tensor *shared = find_role(m, ROLE_SHARED_DOWN, layer, name);
        const gguf_tensor *adjugate = find_role(m, ROLE_ADJUGATE_DOWN, layer, name);
        if (!find_role(m, ROLE_ROUTER, layer, name)) continue;
        if (adjugate && adjugate->dims[0] <= MODEL_MAX_DIM)
            hp->n_ff_adjugate = (int32_t)adjugate->dims[0];
        model_bundle_width(m, layer, &hp->n_ff_expert);
        if (down && down->dims[0] <= MODEL_MAX_DIM) hp->n_ff_expert = (int32_t)down->dims[0];
        if (down_t && down_t->dims[1] <= MODEL_MAX_DIM) hp->n_ff_expert = (int32_t)down_t->dims[1];
        if (shared && shared->dims[0] <= MODEL_MAX_DIM) hp->n_ff_shared = (int32_t)shared->dims[0];
    }
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

/* Binds an output head that shares the embedding matrix. Adapters change each of the two
 * separately. */
static pi_status bind_tied(model *m, pi_error *err) {
    char name[64];
    const gguf_tensor *t = find_role(m, ROLE_TOKEN_EMBD, 0, name);
    model_tensor *out = &m->t[ROLE_OUTPUT];
    if (out->data || m->arch->encoder) return PI_OK;
    *out = m->t[ROLE_TOKEN_EMBD];
    if (!m->adapters || !t || !arch_tensor_of(m->arch, ROLE_OUTPUT)) return PI_OK;
    pi_status status = bind_matrix(m, t, out, err);
    if (status == PI_OK)
        status = merge_adapters(m, arch_tensor_of(m->arch, ROLE_OUTPUT), 0, t, out, err);
    if (out->data != m->t[ROLE_TOKEN_EMBD].data) m->weight_bytes += t->n_bytes;
    return status;
}

/* ALiBi's slopes: powers of 2^(-bias / n) for the largest power of two n of the heads; the other
 * heads lie between them. */
static pi_status bind_slopes(model *m, int layer, pi_error *err) {
    int n_head = m->layers[layer].hp.n_head, n = 1;
    size_t n_bytes = (size_t)n_head * sizeof(float);
    float bias = m->hp.alibi_bias;
    if (bias == 0) return PI_OK;
    float *slopes = arena_alloc(&m->arena, n_bytes);
    if (!slopes) return error_nomem(err, n_bytes, "slopes");
    while (2 * n <= n_head) n *= 2;
    for (int h = 0; h < n_head; h++)
        slopes[h] = h < n ? exp2f(-bias * (float)(h + 1) / (float)n)
                          : exp2f(-bias * (float)(2 * (h - n) + 1) / (float)(2 * n));
    m->layers[layer].t[ROLE_ATTN_SLOPES] = vector_view(slopes, n_head);
    return PI_OK;
}

/* Lightning attention's decay per head: e^-s, where s are ALiBi's slopes for a power of two of
 * heads (bias 8), and smaller in later layers. */
static pi_status bind_decays(model *m, int layer, pi_error *err) {
    int n_head = m->hp.n_ssm_head;
    size_t n_bytes = (size_t)n_head * sizeof(float);
    if (!(m->layers[layer].hp.mixers & MIXER_LIGHTNING)) return PI_OK;
    float *decays = arena_alloc(&m->arena, n_bytes);
    if (!decays) return error_nomem(err, n_bytes, "decays");
    float by = (float)(1 - (double)layer / (m->hp.n_layer - 1) + 1e-5);
    for (int h = 0; h < n_head; h++) decays[h] = -by * exp2f(-8 * (float)(h + 1) / (float)n_head);
    m->layers[layer].t[ROLE_SSM_A] = vector_view(decays, n_head);
    return PI_OK;
}

static pi_status negate_decays(model *m, int layer, pi_error *err) {
    model_tensor *t = &m->layers[layer].t[ROLE_SSM_A];
    int64_t n = t->n_in * t->n_out;
    size_t n_bytes = (size_t)n * sizeof(float);
    if (!t->data || !m->arch->decays_positive) return PI_OK;
    const float *from = t->data;
    float *to = arena_alloc(&m->arena, n_bytes);
    if (!to) return error_nomem(err, n_bytes, "decays");
    for (int64_t i = 0; i < n; i++) to[i] = -from[i];
    t->data = to;
    return PI_OK;
}

static pi_status fail_layer(const model *m, int layer, const char *what, pi_error *err) {
    return error_set(err, PI_ERR_UNSUPPORTED, "not supported: %s: layer %d: %s", gguf_path(m->file),
                     layer, what);
}

/* Refuses combinations of tensors and keys that steps do not compute. */
static pi_status check_layer(const model *m, int layer, pi_error *err) {
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

/* A number per head replaces a head's weights, which are all equal. */
static pi_status bind_head_numbers(model *m, int layer, pi_error *err) {
    model_tensor *t = &m->layers[layer].t[ROLE_ATTN_Q_NORM];
    int64_t n_head = t->n_out, dim = m->layers[layer].hp.head_dim;
    size_t n_bytes = (size_t)(n_head * dim) * sizeof(float);
    if (!t->data || t->n_in > 1) return PI_OK;
    const float *numbers = t->data;
    float *weights = arena_alloc(&m->arena, n_bytes);
    if (!weights) return error_nomem(err, n_bytes, "norms of heads");
    for (int64_t i = 0; i < n_head * dim; i++) weights[i] = numbers[i / dim];
    *t = vector_view(weights, dim);
    t->n_out = n_head;
    return PI_OK;
}

pi_status model_bind_layers(model *m, int first, pi_error *err) {
    read_expert_widths(m);
    for (int i = 0; i < m->arch->n_tensors; i++) {
        const arch_tensor *row = &m->arch->tensors[i];
        bool in_layers = row->flags & TENSOR_PER_LAYER;
        int end = in_layers ? m->hp.n_layer : first == 0;
        for (int layer = first; layer < end; layer++) {
            pi_status status = model_bind_tensor(m, row, layer, err);
            if (status != PI_OK) return status;
        }
    }
    for (int layer = first; layer < m->hp.n_layer; layer++) {
        bind_parts(m, layer);
        pi_status status = bind_bundle(m, BUNDLE_NEURONS, layer, err);
        if (status == PI_OK) status = bind_bundle(m, BUNDLE_EXPERTS, layer, err);
        if (status == PI_OK) status = bind_slopes(m, layer, err);
        if (status == PI_OK) status = bind_head_numbers(m, layer, err);
        if (status == PI_OK) status = bind_decays(m, layer, err);
        if (status == PI_OK) status = negate_decays(m, layer, err);
        if (status == PI_OK) status = check_experts(m, layer, err);
        if (status == PI_OK) status = check_layer(m, layer, err);
        if (status == PI_OK) status = check_low_rank(m, layer, err);
        if (status == PI_OK) status = model_bind_latent(m, layer, err);
        if (status == PI_OK) status = model_bind_delta(m, layer, err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

static pi_status bind_all(model *m, pi_error *err) {
    pi_status status = model_bind_layers(m, 0, err);
    if (status == PI_OK) status = bind_tied(m, err);
    if (status == PI_OK) status = check_text_tensors(m, err);
    return status == PI_OK ? bind_positions(m, err) : status;
}

int model_shared_from(const model *m) {
    int from = m->hp.n_layer, index = 0;
    for (int i = 0; i < m->hp.n_layer; i++) {
        const model_layer_hparams *l = &m->layers[i].hp;
        if (l->kv_layer != i && l->kv_layer < from) from = l->kv_layer;
        if (l->index_own) index = i;
        if (l->index_shared && index < from) from = index;
    }
    return from;
}

bool model_layer_is_parallel(const model *m, int layer) {
    const model_layer *l = &m->layers[layer];
    bool shares = arch_tensor_of(m->arch, ROLE_FFN_NORM) && !l->t[ROLE_FFN_NORM].data;
    return l->hp.mixers && l->hp.ffn && (m->hp.parallel || shares);
}

int64_t model_layer_units(const model *m, int layer) {
    const model_layer *l = &m->layers[layer];
    return l->t[ROLE_ROUTER].data ? m->hp.n_expert : l->hp.n_ff;
}

/* Whether a layer's tensor, named `rest` after "blk.N.", is in the architecture row or has no
 * effect here: scales (see read_scale), ranges for other programs' activation formats, and the
 * rotary tables of very old files. */
static bool is_known(const model *m, const model_layer_hparams *l, const char *rest) {
    const arch_row *arch = m->arch;
    if (ends_with(rest, ".scale") || ends_with(rest, ".input_scale")) return true;
    if (strcmp(rest, "attn_rot_embd.weight") == 0) return true;
    if (l->mixers & MIXER_KDA && starts_with(rest, "attn_") && ends_with(rest, ".bias"))
        return true; /* not added, as in llama.cpp */
    for (int i = 0; i < arch->n_tensors; i++) {
        const char *dot = strstr(arch->tensors[i].name, "%d.");
        if (dot && strcmp(dot + 3, rest) == 0 && model_layer_has(l, arch->tensors[i].role))
            return true;
    }
    return false;
}

/* Like is_known for tensors outside layers. Image and audio encoders with their projectors, and
 * classification heads, are not used here. */
static bool is_known_global(const model *m, const char *name) {
    static const char *const others[] = {"v.", "a.", "mm.", "vision.", "audio.", "cls."};
    if (ends_with(name, ".scale") || ends_with(name, ".input_scale")) return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (starts_with(name, others[i])) return true;
    for (int i = 0; i < m->arch->n_tensors; i++)
        if (strcmp(m->arch->tensors[i].name, name) == 0) return true;
    return false;
}

/* Ignoring an unknown bias or norm would silently give wrong results. Tensors of layers after the
 * last one (next-token predictors and similar) are not part of the model. */
static pi_status refuse_unknown(const model *m, pi_error *err) {
    for (uint64_t i = 0; i < gguf_n_tensors(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        int layer, expert, used = 0;
        bool in_layer = sscanf(t->name, "blk.%9d.%n", &layer, &used) == 1 && used > 0;
        if (model_split_of(m, t->name, &expert)) continue;
        if (!in_layer ? is_known_global(m, t->name)
                      : layer < 0 || layer >= m->hp.n_layer ||
                            is_known(m, &m->layers[layer].hp, t->name + used))
            continue;
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "unknown tensor: %s: %s is not in this version's tensor list of "
                         "architecture %s; ignoring it would give wrong results",
                         gguf_path(m->file), t->name, m->arch->name);
    }
    return PI_OK;
}

static pi_status find_arch(model *m, pi_error *err) {
    gguf_string name;
    const gguf_value *v = gguf_find(m->file, "general.architecture");
    if (!v || !gguf_as_string(v, &name))
        return error_set(
            err, PI_ERR_FORMAT,
            "no architecture: %s: key general.architecture is missing or not a string; is "
            "it a model?",
            gguf_path(m->file));
    gguf_string type;
    const gguf_value *kind = gguf_find(m->file, "general.type");
    if (kind && gguf_as_string(kind, &type) && gguf_string_is(type, "adapter"))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "a LoRA adapter, not a model: %s: open its model and set adapters",
                         gguf_path(m->file));
    if (gguf_string_is(name, MODEL_EAGLE3_ARCHITECTURE))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "not a model: %s: a head that drafts for another model (EAGLE-3): open "
                         "that model and give it this file as its drafter",
                         gguf_path(m->file));
    if (gguf_string_is(name, MODEL_GPU_INDEX_ARCHITECTURE))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "not a model: %s: a GPU index file of the original PowerInfer; give the "
                         "model that it belongs to",
                         gguf_path(m->file));
    m->arch = arch_find(name.data, name.n_bytes);
    char closest[ARCH_CLOSEST_TEXT];
    if (!m->arch)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "unknown architecture '%.*s': %s: this version knows %d, closest: %s",
                         (int)(name.n_bytes < 64 ? name.n_bytes : 64), name.data,
                         gguf_path(m->file), arch_count(),
                         arch_closest_names(name.data, name.n_bytes, closest));
    return PI_OK;
}

/* The vocabulary size is the number of rows of the embedding table. */
static pi_status read_vocab_size(model *m, pi_error *err) {
    char name[64];
    arch_tensor_name(arch_tensor_of(m->arch, ROLE_TOKEN_EMBD), 0, name);
    const gguf_tensor *t = gguf_find_tensor(m->file, name);
    if (!t)
        return error_set(err, PI_ERR_FORMAT,
                         "missing tensor: %s: %s is not in the file; is it a vocabulary only?",
                         gguf_path(m->file), name);
    if (t->dims[1] < 1 || t->dims[1] > MODEL_MAX_VOCAB)
        return error_set(err, PI_ERR_FORMAT, "bad vocabulary size: %s: tensor %s has %llu rows",
                         gguf_path(m->file), name, (unsigned long long)t->dims[1]);
    m->hp.n_vocab = (int32_t)t->dims[1];
    return PI_OK;
}

static pi_status load(model *m, pi_error *err) {
    pi_status status = find_arch(m, err);
    if (status != PI_OK) return status;
    status = model_read_hparams(m->file, m->arch, false, &m->hp, NULL, err);
    if (status != PI_OK) return status;

    size_t n_layer = (size_t)m->hp.n_layer;
    m->layers = arena_calloc(&m->arena, n_layer, sizeof *m->layers);
    model_layer_hparams *hps = mem_calloc(n_layer, sizeof *hps);
    if (!m->layers || !hps) {
        mem_free(hps);
        return error_nomem(err, n_layer * sizeof *m->layers, "layers");
    }
    status = model_read_hparams(m->file, m->arch, false, &m->hp, hps, err);
    for (size_t i = 0; i < n_layer; i++) m->layers[i].hp = hps[i];
    mem_free(hps);
    if (status == PI_OK) status = read_vocab_size(m, err);
    if (status == PI_OK) status = model_join_experts(m, err);
    if (status == PI_OK) status = bind_all(m, err);
    if (status == PI_OK) status = model_bind_sparse(m, err);
    if (status == PI_OK) status = model_read_tuning(m, err);
    if (status == PI_OK) status = refuse_unknown(m, err);
    return status;
}

/* Merges the adapters into layers [first, end). */
static pi_status load_adapted(model *m, const model_adapter *adapters, size_t n, int first, int end,
                              pi_error *err) {
    pi_status status = n > 0 ? find_arch(m, err) : PI_OK;
    if (status == PI_OK && n > 0) status = lora_open(adapters, n, m->arch, &m->adapters, err);
    if (status == PI_OK && n > 0) lora_restrict(m->adapters, first, end);
    if (status == PI_OK) status = load(m, err);
    if (status == PI_OK && n > 0) status = lora_check_all(m->adapters, m, err);
    lora_close(m->adapters);
    m->adapters = NULL;
    return status;
}

static pi_status open_layers(gguf_file *file, bool shares_file, const model_adapter *adapters,
                             size_t n, int first, int end, model **out, pi_error *err) {
    *out = NULL;
    model *m = mem_calloc(1, sizeof *m);
    if (!m) {
        if (!shares_file) gguf_close(file);
        return error_nomem(err, sizeof *m, "model");
    }
    arena_init(&m->arena);
    m->file = file;
    m->shares_file = shares_file;
    pi_status status = load_adapted(m, adapters, n, first, end, err);
    if (status != PI_OK) {
        model_close(m);
        return status;
    }
    gguf_string name;
    const gguf_value *v = gguf_find(m->file, "general.name");
    if (v && gguf_as_string(v, &name))
        snprintf(m->name, sizeof m->name, "%.*s", (int)(name.n_bytes < 255 ? name.n_bytes : 255),
                 name.data);
    *out = m;
    return PI_OK;
}

pi_status model_open_adapted(gguf_file *file, const model_adapter *adapters, size_t n, bool merge,
                             model **out, pi_error *err) {
    return open_layers(file, false, adapters, n, 0, merge ? INT_MAX : 0, out, err);
}

pi_status model_open_part(const model *of, const model_adapter *adapters, size_t n, int first,
                          int end, model **out, pi_error *err) {
    return open_layers(of->file, true, adapters, n, first, end, out, err);
}

pi_status model_open(const char *path, const gguf_open_options *options, model **out,
                     pi_error *err) {
    gguf_file *file = NULL;
    *out = NULL;
    pi_status status = gguf_open(path, options, &file, err);
    return status == PI_OK ? model_open_adapted(file, NULL, 0, true, out, err) : status;
}

void model_close(model *m) {
    if (!m) return;
    if (!m->shares_file) gguf_close(m->file);
    arena_free(&m->arena);
    mem_free(m);
}
