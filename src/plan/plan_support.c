/* plan_support.c: see plan_support.h. The builders of steps (plan.c, plan_*.c) and the code that
 * launches them (gpu_*.c) determine which operations a part needs;
 * tests/golden/test_golden_support.c removes each operation in turn and fails if a step still uses
 * it. */
#include "plan_support.h"

#include <stdio.h>

#include "mem.h"

bool plan_tensor_moves(const model_layer *l, tensor_role role, const arch_tensor *t) {
    if (l->t[ROLE_ROUTER].data) return role >= ROLE_EXPERT_GATE_UP && role <= ROLE_EXPERT_DOWN_BIAS;
    return t && t->flags & (TENSOR_NEURON_ROWS | TENSOR_NEURON_COLS | TENSOR_NEURON_VEC);
}

/* ---- needs ----------------------------------------------------------------------------------- */

typedef struct check {
    gpu_supports *supports;
    gpu_shape shape;
    plan_lack lack;
} check;

static void need_typed(check *c, gpu_op op, quant_type type) {
    if (c->lack.op != GPU_OP_COUNT || c->supports(op, type, &c->shape)) return;
    bool known = c->supports(op, GPU_NO_TYPE, NULL), typed = c->supports(op, type, NULL);
    c->lack = (plan_lack){
        .op = op, .type = known && !typed ? type : GPU_NO_TYPE, .shape = known && typed};
}

static void need(check *c, gpu_op op) {
    need_typed(c, op, GPU_NO_TYPE);
}

/* Experts of many tokens. */
static void need_tiles(check *c, quant_type type) {
    need(c, GPU_OP_EXPERT_GROUP);
    need_typed(c, GPU_OP_EXPERT_MATMUL, type);
}

static void need_matrix(check *c, tensor_role role, quant_type type) {
    need_typed(c, GPU_OP_PACK, type);
    switch (role) {
    case ROLE_EXPERT_GATE_UP:
    case ROLE_EXPERT_GATE:
    case ROLE_EXPERT_UP:
    case ROLE_ADJUGATE_GATE:
    case ROLE_ADJUGATE_UP:
        need_typed(c, GPU_OP_EXPERT_IN, type);
        need_tiles(c, type);
        return;
    case ROLE_EXPERT_DOWN:
    case ROLE_ADJUGATE_DOWN:
        need_typed(c, GPU_OP_EXPERT_MATVEC, type);
        need_tiles(c, type);
        return;
    case ROLE_EXPERT_DOWN_T:
        need_typed(c, GPU_OP_EXPERT_DOWN, type);
        need_tiles(c, type);
        return;
    case ROLE_FFN_DOWN_T:
        need_typed(c, GPU_OP_DOWN_ROWS, type);
        need_typed(c, GPU_OP_MATMUL_T, type);
        return;
    case ROLE_ATTN_K_B:
    case ROLE_ATTN_V_B:
    case ROLE_ATTN_OUT_A:
        need_typed(c, GPU_OP_HEADS, type);
        need_typed(c, GPU_OP_MATMUL, type);
        return;
    case ROLE_FFN_GATE:
    case ROLE_FFN_UP:
    case ROLE_SHARED_GATE:
    case ROLE_SHARED_UP:
        need_typed(c, GPU_OP_FFN_IN, type);
        need(c, GPU_OP_ACTIVATE); /* for many tokens */
        break;
    case ROLE_FC2:
        need_typed(c, GPU_OP_PREDICT, type);
        need_typed(c, GPU_OP_MATMUL, type);
        return;
    default:
        break;
    }
    need_typed(c, GPU_OP_MATVEC, type);
    need_typed(c, GPU_OP_MATMUL, type);
}

static void need_matrices(check *c, const model *m, int layer, pi_mode mode, plan_layer_part part) {
    const model_layer *l = &m->layers[layer];
    for (int role = 0; role < ROLE_COUNT; role++) {
        const arch_tensor *t = arch_tensor_whole(m->arch, (tensor_role)role);
        const model_tensor *tensor = &l->t[role];
        bool predicts = tensor_role_is_predictor((tensor_role)role);
        if (!tensor->data || tensor->n_out <= 1 || (t && t->flags & TENSOR_RAW)) continue;
        if (predicts && (mode != PI_MODE_PREDICT || l->t[ROLE_ROUTER].data)) continue;
        if (plan_tensor_moves(l, (tensor_role)role, t) == (part == PLAN_PART_NEURONS))
            need_matrix(c, (tensor_role)role, tensor->type);
    }
}

static void need_attention(check *c, const model *m, const model_layer *l) {
    if (m->hp.n_rot > 0) need(c, GPU_OP_ROPE_ANGLES);
    need(c, m->hp.n_latent > 0 ? GPU_OP_LATENT_STORE : GPU_OP_ROPE_STORE);
    if (m->hp.n_latent > 0 && l->t[ROLE_ATTN_GATE].data) need(c, GPU_OP_GATE);
    if (l->hp.ratio > 0) need(c, GPU_OP_COMPRESS);
    if (l->t[ROLE_INDEX_Q].data) need(c, GPU_OP_ROPE_STORE);
    if (l->t[ROLE_INDEX_Q].data) need(c, GPU_OP_FIND_BLOCKS);
    need(c, GPU_OP_ATTENTION);
}

static void need_recurrent(check *c, const model_layer *l) {
    need(c, GPU_OP_CONV);
    if (l->hp.mixers & MIXER_CONV) return;
    need(c, GPU_OP_RECUR);
    need(c, GPU_OP_GATE);
}

static void need_gated_streams(check *c) {
    need(c, GPU_OP_HYPER_MEAN);
    need(c, GPU_OP_ACTIVATE);
}

static void need_messages(check *c) {
    need(c, GPU_OP_PUBLISH);
    need(c, GPU_OP_RECEIVE);
    need(c, GPU_OP_STAMP);
}

static void need_primary(check *c, const model *m, int layer, pi_mode mode) {
    const model_layer *l = &m->layers[layer];
    need_messages(c);
    need(c, GPU_OP_NORM);
    need(c, GPU_OP_QUANTIZE);
    need(c, GPU_OP_ADD);
    if (l->hp.mixers & MIXER_ATTENTION) need_attention(c, m, l);
    if (l->hp.mixers & MIXER_RECURRENT) need_recurrent(c, l);
    if (m->hp.hyper_rank > 0) need_gated_streams(c);
    if (m->hp.n_stream > 1)
        need(c, m->hp.hyper ? GPU_OP_HYPER : m->hp.past_period > 0 ? GPU_OP_PAST : GPU_OP_MIX);
    if (m->hp.n_embd_layer > 0) need(c, GPU_OP_ACTIVATE);
    if (l->t[ROLE_ROUTER].data) {
        need(c, GPU_OP_ROUTE);
        need(c, GPU_OP_EXPERT_SUM); /* also adds the shared expert */
    } else if (mode == PI_MODE_PREDICT) {
        if (l->t[ROLE_FFN_SIGN].data) need(c, GPU_OP_PREDICT);
        if (l->t[ROLE_FC2].data) need_typed(c, GPU_OP_PREDICT, l->t[ROLE_FC2].type);
        need(c, GPU_OP_SELECT);
    }
    need_matrices(c, m, layer, mode, PLAN_PART_PRIMARY);
}

static void need_neurons(check *c, const model *m, int layer, pi_mode mode) {
    const model_layer *l = &m->layers[layer];
    need_messages(c);
    if (l->t[ROLE_ROUTER].data)
        need(c, GPU_OP_EXPERT_SUM);
    else if (mode == PI_MODE_PREDICT)
        need(c, GPU_OP_SELECT);
    if (l->hp.ffn_top_k) need(c, GPU_OP_TOP_K);
    need_matrices(c, m, layer, mode, PLAN_PART_NEURONS);
}

/* Logits are computed for few tokens at a time; streams are merged for all tokens. */
static void need_head(check *c, const model *m) {
    const model_tensor *output = &m->t[ROLE_OUTPUT], *streams = &m->t[ROLE_STREAM_UNEMBD];
    need_messages(c);
    need(c, GPU_OP_NORM);
    if (m->hp.logit_softcap != 0) need(c, GPU_OP_SOFTCAP);
    need_typed(c, GPU_OP_PACK, output->type);
    need_typed(c, GPU_OP_MATVEC, output->type);
    if (m->hp.n_stream <= 1) return;
    if (m->hp.past_period > 0) {
        need(c, GPU_OP_PAST);
        return;
    }
    if (m->hp.hyper_rank > 0) {
        need_gated_streams(c);
        need(c, GPU_OP_QUANTIZE);
        need_matrix(c, ROLE_HYPER_HEAD_DOWN, m->t[ROLE_HYPER_HEAD_DOWN].type);
        need_matrix(c, ROLE_HYPER_HEAD_UP, m->t[ROLE_HYPER_HEAD_UP].type);
        return;
    }
    if (m->hp.hyper) {
        need(c, GPU_OP_HYPER);
        need_matrix(c, ROLE_HYPER_HEAD, m->t[ROLE_HYPER_HEAD].type);
        return;
    }
    need(c, GPU_OP_QUANTIZE);
    need(c, GPU_OP_MERGE);
    need_matrix(c, ROLE_STREAM_UNEMBD, streams->type);
}

static gpu_shape shape_of(const model *m, int layer) {
    const model_hparams *hp = &m->hp;
    gpu_shape s = {.latent = hp->n_latent > 0,
                   .joint = hp->joint_kv,
                   .n_taps = hp->n_taps,
                   .n_state = hp->n_state,
                   .n_embd = hp->n_embd,
                   .n_stream = hp->n_stream,
                   .n_expert = hp->n_expert};
    if (layer == hp->n_layer) return s;
    const model_layer_hparams *l = &m->layers[layer].hp;
    s.head_dim = l->head_dim;
    s.v_dim = l->v_dim;
    s.alibi = m->layers[layer].t[ROLE_ATTN_SLOPES].data != NULL;
    s.index_dim = m->layers[layer].t[ROLE_INDEX_Q].data ? hp->index_dim : 0;
    /* both must fit the GPU's groups of elements; adjugate experts are usually the narrower ones */
    bool even = l->n_ff_adjugate % 32 == 0;
    s.n_ff_expert = even ? l->n_ff_expert : l->n_ff_adjugate;
    if (hp->n_expert_embd % 32 != 0) s.n_ff_expert = hp->n_expert_embd;
    s.n_rank = (int32_t)m->layers[layer].t[ROLE_FC1].n_out;
    return s;
}

bool plan_is_supported(const model *m, int layer, pi_mode mode, plan_layer_part part,
                       gpu_supports *supports, plan_lack *lack) {
    check c = {.supports = supports ? supports : gpu_kernels_support,
               .shape = shape_of(m, layer),
               .lack = {.op = GPU_OP_COUNT, .type = GPU_NO_TYPE}};
    if (m->arch->encoder)
        c.lack = (plan_lack){.op = GPU_OP_ATTENTION, .type = GPU_NO_TYPE, .feature = "encoders"};
    else if (layer == m->hp.n_layer)
        need_head(&c, m);
    else if (part == PLAN_PART_PRIMARY && m->layers[layer].hp.ngrams)
        c.lack = (plan_lack){
            .op = GPU_OP_ADD, .type = GPU_NO_TYPE, .feature = "embeddings of n-grams"};
    else if (part == PLAN_PART_PRIMARY && m->layers[layer].hp.mixers & MIXER_WKV)
        c.lack = (plan_lack){.op = GPU_OP_RECUR, .type = GPU_NO_TYPE, .feature = "RWKV's mixers"};
    else if (part == PLAN_PART_NEURONS && m->arch->xielu)
        c.lack = (plan_lack){.op = GPU_OP_FFN_IN, .type = GPU_NO_TYPE, .feature = "xIELU"};
    else if (part == PLAN_PART_PRIMARY)
        need_primary(&c, m, layer, mode);
    else
        need_neurons(&c, m, layer, mode);
    *lack = c.lack;
    return lack->op == GPU_OP_COUNT;
}

/* ---- reasons --------------------------------------------------------------------------------- */

const char *plan_lack_text(const plan_lack *lack, char text[PLAN_LACK_TEXT]) {
    static const char *const shapes[GPU_OP_COUNT] = {
        [GPU_OP_ROPE_STORE] = "heads of this size",
        [GPU_OP_HEADS] = "heads of this size",
        [GPU_OP_LATENT_STORE] = "heads of this size",
        [GPU_OP_ATTENTION] = "heads of this size",
        [GPU_OP_FIND_BLOCKS] = "an index of this size",
        [GPU_OP_CONV] = "recurrent layers of this size",
        [GPU_OP_RECUR] = "recurrent layers of this size",
        [GPU_OP_MIX] = "residual streams of this width",
        [GPU_OP_HYPER] = "this number of residual streams",
        [GPU_OP_HYPER_MEAN] = "this number of residual streams",
        [GPU_OP_COMPRESS] = "an index of this size",
        [GPU_OP_PAST] = "this number of residual streams",
        [GPU_OP_MERGE] = "residual streams of this width",
        [GPU_OP_ROUTE] = "this number of experts",
        [GPU_OP_EXPERT_IN] = "experts of this size",
        [GPU_OP_PREDICT] = "predictors of this rank",
    };
    const char *shape = shapes[lack->op], *name = gpu_op_name(lack->op);
    if (lack->feature)
        snprintf(text, PLAN_LACK_TEXT, "%s", lack->feature);
    else if (lack->shape && shape)
        snprintf(text, PLAN_LACK_TEXT, "%s", shape);
    else if (lack->shape)
        snprintf(text, PLAN_LACK_TEXT, "%s in layers of this size", name);
    else if (lack->type != GPU_NO_TYPE)
        snprintf(text, PLAN_LACK_TEXT, "%s of type %s", name, quant_find(lack->type)->name);
    else
        snprintf(text, PLAN_LACK_TEXT, "operation %s", name);
    return text;
}

static plan_lack *lack_of(const plan_support *s, int layer, plan_layer_part part) {
    return &s->lacks[(size_t)layer * PLAN_PARTS + part];
}

static bool is_same(const plan_lack *a, const plan_lack *b) {
    return a->op == b->op && a->type == b->type && a->shape == b->shape && a->feature == b->feature;
}

pi_status plan_support_create(const model *m, const plan_options *options, plan_support *out,
                              pi_error *err) {
    int n = m->hp.n_layer, shared = model_shared_from(m), refused = n;
    bool any = options->stays;
    *out = (plan_support){.n_layer = n,
                          .stays = mem_calloc((size_t)n + 1, sizeof *out->stays),
                          .lacks = mem_calloc((size_t)n + 1, PLAN_PARTS * sizeof *out->lacks)};
    if (!out->stays || !out->lacks) {
        plan_support_free(out);
        return error_nomem(err, ((size_t)n + 1) * PLAN_PARTS * sizeof *out->lacks, "layers");
    }
    for (int i = 0; i <= n; i++) {
        pi_mode mode = i < n ? plan_choose_mode(m, i, options) : options->mode;
        plan_lack *primary = lack_of(out, i, PLAN_PART_PRIMARY),
                  *neurons = lack_of(out, i, PLAN_PART_NEURONS);
        uint8_t bits = options->stays ? options->stays[i] : 0;
        if (!plan_is_supported(m, i, mode, PLAN_PART_PRIMARY, options->supports, primary))
            bits |= PLAN_STAY_ALWAYS;
        if (!plan_is_supported(m, i, mode, PLAN_PART_NEURONS, options->supports, neurons))
            bits |= PLAN_STAY_NEURONS;
        if (i >= shared && i < n && refused == n && primary->op != GPU_OP_COUNT) refused = i;
        out->stays[i] = bits;
        any = any || bits;
    }
    for (int i = shared; i < n && refused < n; i++) { /* layers that share a KV cache */
        if (lack_of(out, i, PLAN_PART_PRIMARY)->op == GPU_OP_COUNT)
            *lack_of(out, i, PLAN_PART_PRIMARY) = *lack_of(out, refused, PLAN_PART_PRIMARY);
        out->stays[i] |= PLAN_STAY_ALWAYS;
    }
    if (!any) {
        mem_free(out->stays);
        out->stays = NULL;
    }
    return PI_OK;
}

void plan_support_free(plan_support *s) {
    mem_free(s->stays);
    mem_free(s->lacks);
    *s = (plan_support){0};
}

const plan_lack *plan_support_lacks_all(const plan_support *s) {
    for (int i = 0; i < s->n_layer; i++)
        for (int part = 0; part < PLAN_PARTS; part++)
            if (lack_of(s, i, (plan_layer_part)part)->op == GPU_OP_COUNT) return NULL;
    return lack_of(s, 0, PLAN_PART_PRIMARY);
}

void plan_support_explain(const model *m, const plan_support *s,
                          void (*line)(void *user, const char *text), void *user) {
    char text[160], reason[PLAN_LACK_TEXT];
    for (int part = 0; part < PLAN_PARTS; part++) {
        for (int i = 0, end; i < s->n_layer; i = end) {
            const plan_lack *lack = lack_of(s, i, (plan_layer_part)part);
            bool experts = m->layers[i].t[ROLE_ROUTER].data;
            const char *what = part == PLAN_PART_PRIMARY ? "attention"
                               : experts                 ? "experts"
                                                         : "neurons";
            for (end = i + 1; end < s->n_layer; end++)
                if (!is_same(lack_of(s, end, (plan_layer_part)part), lack)) break;
            if (lack->op == GPU_OP_COUNT) continue;
            char layers[32];
            snprintf(layers, sizeof layers, end - 1 > i ? "layers %d to %d" : "layer %d", i,
                     end - 1);
            snprintf(text, sizeof text, "%s: %s on the CPU: the GPU does not support %s", layers,
                     what, plan_lack_text(lack, reason));
            line(user, text);
        }
    }
    const plan_lack *head = lack_of(s, s->n_layer, PLAN_PART_PRIMARY);
    if (head->op == GPU_OP_COUNT) return;
    snprintf(text, sizeof text, "output head on the CPU: the GPU does not support %s",
             plan_lack_text(head, reason));
    line(user, text);
}
