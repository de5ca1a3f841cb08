/* synth_model.c: a model without weights. Placement uses sizes, types and statistics only, so a
 * shape is enough, even of a model too large for this disk. Tensors, types and probabilities are
 * those that pi_synth would write (docs/synth.md), for an error-free predictor of recall 0.98. */
#include <math.h>
#include <string.h>

#include "synth.h"
#include "synth_model.h"

static const double RECALL = 0.98; /* as pi_synth plans its predictors */

static const quant_traits *type_of(const arch_tensor *t, const quant_traits *matrix) {
    if (t->flags & TENSOR_RAW) return quant_find(QUANT_I32);
    return t->flags & TENSOR_F32 ? quant_find(QUANT_F32) : matrix;
}

static uint64_t dim_of(const synth_shape *s, const arch_row *arch, int32_t rank, arch_dim dim) {
    if (dim == DIM_RANK) return (uint64_t)rank;
    if (dim == DIM_POS) return (uint64_t)(s->n_ctx + arch->pos_offset);
    return synth_shape_dim(s, dim, 0);
}

static pi_status add_tensor(model *m, int layer, const arch_tensor *t, const synth_shape *s,
                            const pi_synth_options *o, pi_error *err) {
    static const uint8_t nowhere; /* present, but never read */
    const quant_traits *traits = type_of(t, quant_find_name(o->type));
    model_tensor tensor = {.data = &nowhere, .n_out = 1, .scale = 1};
    uint64_t n_in = dim_of(s, m->arch, o->rank, t->dims[0]);
    tensor.n_out = (int64_t)(dim_of(s, m->arch, o->rank, t->dims[1]) *
                             dim_of(s, m->arch, o->rank, t->dims[2]));
    if (!quant_row_bytes(traits->type, n_in, &tensor.row_bytes)) {
        /* fc2 has short rows: blocks of Q8_0 are as short as ranks */
        traits = quant_find(QUANT_Q8_0);
        if (t->role != ROLE_FC2 || !quant_row_bytes(traits->type, n_in, &tensor.row_bytes))
            return error_set(
                err, PI_ERR_ARG,
                "rows of %llu elements are not a multiple of %s blocks: place: use another type",
                (unsigned long long)n_in, o->type);
    }
    tensor.type = traits->type;
    tensor.n_in = (int64_t)n_in;
    tensor.n_bytes = tensor.row_bytes * (size_t)tensor.n_out;
    if (t->dims[2] == DIM_EXPERTS) tensor.expert_bytes = tensor.n_bytes / (size_t)s->n_expert;
    m->weight_bytes += tensor.n_bytes;
    if (layer < 0)
        m->t[t->role] = tensor;
    else
        m->layers[layer].t[t->role] = tensor;
    return PI_OK;
}

static pi_status add_tensors(model *m, int layer, const synth_shape *s, const pi_synth_options *o,
                             pi_error *err) {
    for (int i = 0; i < m->arch->n_tensors; i++) {
        const arch_tensor *t = &m->arch->tensors[i];
        bool per_layer = t->flags & TENSOR_PER_LAYER;
        if (per_layer != (layer >= 0) || !synth_has_tensor(s, t, layer, !o->plain)) continue;
        pi_status status = add_tensor(m, layer, t, s, o, err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

/* A fused matrix of queries, keys and values becomes three when a model is bound. */
static void split_projection(model_layer *l) {
    static const tensor_role parts[] = {ROLE_ATTN_Q, ROLE_ATTN_K, ROLE_ATTN_V};
    model_tensor whole = l->t[ROLE_ATTN_QKV];
    if (!whole.data) return;
    for (int i = 0; i < 3; i++) {
        model_tensor *part = &l->t[parts[i]];
        *part = whole;
        part->n_out = (int64_t)(i == 0 ? l->hp.n_head : l->hp.n_head_kv) * l->hp.head_dim;
        part->n_bytes = part->row_bytes * (size_t)part->n_out;
    }
    l->t[ROLE_ATTN_QKV] = (model_tensor){0};
}

/* Probabilities of n neurons or experts, hottest first: Phi at their distribution's quantiles. */
static float *make_frequencies(model *m, const synth_profile *profile, int32_t n) {
    float *freq = arena_calloc(&m->arena, (size_t)n, sizeof *freq);
    for (int32_t i = 0; freq && i < n; i++) {
        double quantile = synth_probit(1 - (i + 0.5) / n);
        freq[i] = (float)synth_phi(synth_clamp_mean(profile->mu + profile->tau * quantile));
    }
    return freq;
}

static pi_status add_layers(model *m, const synth_shape *s, const pi_synth_options *o,
                            const synth_profile *profile, pi_error *err) {
    bool experts = s->n_expert > 0;
    synth_predictor predictor = {0};
    if (!experts) predictor = synth_predictor_solve(profile, RECALL, 0, 0);
    float *freq = make_frequencies(m, profile, experts ? s->n_expert : s->n_ff);
    m->layers = arena_calloc(&m->arena, (size_t)m->hp.n_layer, sizeof *m->layers);
    if (!freq || !m->layers) return error_nomem(err, sizeof *m->layers, "layers of a shape");
    for (int i = 0; i < m->hp.n_layer; i++) {
        model_layer *l = &m->layers[i];
        bool dense = i < s->n_dense;
        l->hp = (model_layer_hparams){.mixers = MIXER_ATTENTION,
                                      .ffn = true,
                                      .rope = ROPE_SET_GLOBAL,
                                      .n_head = s->n_head,
                                      .n_head_kv = s->n_head_kv,
                                      .head_dim = m->hp.head_dim,
                                      .v_dim = m->hp.head_dim,
                                      .kv_layer = i,
                                      .index_own = s->n_index_head > 0,
                                      .n_ff = dense ? s->n_ff_dense : s->n_ff,
                                      .n_ff_expert = experts && !dense ? s->n_ff : 0};
        l->sparse = (model_layer_sparse){.cut = NAN,
                                         .cut_down = NAN,
                                         .up_rows = NAN,
                                         .down_rows = NAN,
                                         .density = NAN,
                                         .recall = NAN,
                                         .expert_active = NAN};
        if (!o->plain && experts && !dense) l->sparse.expert_freq = freq;
        if (!o->plain && !experts) {
            l->sparse.predictor = PREDICTOR_LOWRANK;
            l->sparse.rank = o->rank;
            l->sparse.density = (float)predictor.density;
            l->sparse.freq = freq;
        }
        pi_status status = add_tensors(m, i, s, o, err);
        if (status != PI_OK) return status;
        split_projection(l);
    }
    return PI_OK;
}

static pi_status check(const pi_synth_options *o, const synth_shape **shape, pi_error *err) {
    *shape = o->shape ? synth_shape_find(o->shape) : NULL;
    if (!*shape)
        return error_set(err, PI_ERR_ARG, "unknown shape: %.64s: choose one of %s",
                         o->shape ? o->shape : "", synth_shape_names());
    if ((*shape)->n_stream > 0 || (*shape)->period > 0)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "shape %s: place reads its file: write one with synth", o->shape);
    if (!o->type || !quant_find_name(o->type) || !quant_find_name(o->type)->quantize)
        return error_set(err, PI_ERR_ARG, "unknown type of weights: %.64s: try q4_0 or f16",
                         o->type ? o->type : "");
    if (o->n_layer < 0 || o->n_layer > (*shape)->n_layer)
        return error_set(err, PI_ERR_ARG, "%d layers: shape %s: give 1 to %d", (int)o->n_layer,
                         o->shape, (int)(*shape)->n_layer);
    if (o->rank < 32 || o->rank > (*shape)->n_embd || o->rank % 32 != 0)
        return error_set(err, PI_ERR_ARG, "rank %d: shape %s: give a multiple of 32 up to %d",
                         (int)o->rank, o->shape, (int)(*shape)->n_embd);
    return PI_OK;
}

pi_status synth_model_create(const pi_synth_options *o, model *m, pi_error *err) {
    const synth_shape *s;
    synth_profile neurons = {0}, experts = {0};
    *m = (model){0};
    arena_init(&m->arena);
    pi_status status = check(o, &s, err);
    if (status == PI_OK) status = synth_profiles_solve(s, o, &neurons, &experts, err);
    if (status != PI_OK) return status;
    m->arch = arch_find(s->arch, strlen(s->arch));
    m->hp = (model_hparams){.n_layer = o->n_layer ? o->n_layer : s->n_layer,
                            .parallel = m->arch->parallel,
                            .n_embd = s->n_embd,
                            .n_stream = 1,
                            .n_vocab = s->n_vocab,
                            .n_ctx_train = s->n_ctx,
                            .n_head = s->n_head,
                            .head_dim = s->n_latent ? s->n_latent + s->n_rot
                                                    : synth_shape_head_dim(s),
                            .n_latent = s->n_latent,
                            .n_latent_q = s->n_latent_q,
                            .n_index_head = s->n_index_head,
                            .n_index_choice = s->n_index_head > 0,
                            .index_dim = s->index_dim,
                            .index_sums = s->n_index_head > 0,
                            .block_size = 1,
                            .block_top = s->index_top,
                            .n_expert = s->n_expert,
                            .n_expert_used = s->n_expert_used,
                            .n_expert_embd = s->n_embd,
                            .norm = m->arch->norm,
                            .rope = m->arch->rope,
                            .n_rot = s->n_latent ? s->n_rot : synth_shape_head_dim(s),
                            .q_dim = synth_shape_head_dim(s),
                            .v_dim = synth_shape_head_dim(s),
                            .embd_scale = 1,
                            .residual_scale = 1,
                            .logit_scale = 1,
                            .value_scale = 1,
                            .expert_scale = 1,
                            .attn_scale = 1 / sqrtf((float)synth_shape_head_dim(s)),
                            .activation = s->activation};
    m->sparse.prepared = !o->plain;
    snprintf(m->name, sizeof m->name, "synthetic %s", s->name);
    status = add_tensors(m, -1, s, o, err);
    const synth_profile *of_units = s->n_expert > 0 ? &experts : &neurons;
    if (status == PI_OK) status = add_layers(m, s, o, of_units, err);
    if (status != PI_OK) synth_model_free(m);
    return status;
}

void synth_model_free(model *m) {
    arena_free(&m->arena);
    *m = (model){0};
}
