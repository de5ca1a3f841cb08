/* model_drafter.c: a head is bound like the layers of a model, then its layer becomes the only
 * one. */
#include "model_drafter.h"

#include <stdio.h>
#include <string.h>

#include "arch_pieces.h"
#include "mem.h"
#include "model_sparse.h"

/* ---- tensors --------------------------------------------------------------------------------- */

#define NEXTN(role, name, dim_in, dim_out, flags)                                                  \
    { role, "blk.%d.nextn." name ".weight", NULL, {dim_in, dim_out}, TENSOR_PER_LAYER | (flags) }
static const arch_tensor nextn_tensors[] = {
    NEXTN(ROLE_TOKEN_EMBD, "embed_tokens", DIM_EMBD, DIM_VOCAB, TENSOR_OPTIONAL),
    NEXTN(ROLE_DRAFT_EMBD_NORM, "enorm", DIM_EMBD, DIM_NONE, TENSOR_F32),
    NEXTN(ROLE_DRAFT_NORM, "hnorm", DIM_EMBD, DIM_NONE, TENSOR_F32),
    NEXTN(ROLE_DRAFT_PROJ, "eh_proj", DIM_2EMBD, DIM_EMBD, 0),
    PLAIN_VECTOR(ROLE_OUTPUT_NORM, "layer_output_norm.weight", DIM_EMBD, TENSOR_OPTIONAL),
    NEXTN(ROLE_OUTPUT_NORM, "shared_head_norm", DIM_EMBD, DIM_NONE, TENSOR_F32 | TENSOR_OPTIONAL),
    NEXTN(ROLE_OUTPUT, "shared_head_head", DIM_EMBD, DIM_VOCAB, TENSOR_OPTIONAL),
};

static const arch_tensor eagle3_tensors[] = {
    PLAIN_MATRIX(ROLE_ATTN_Q, "attn_q", DIM_2EMBD, DIM_Q, 0),
    PLAIN_MATRIX(ROLE_ATTN_K, "attn_k", DIM_2EMBD, DIM_KV, 0),
    PLAIN_MATRIX(ROLE_ATTN_V, "attn_v", DIM_2EMBD, DIM_VALUES, 0),
    PLAIN_MATRIX(ROLE_ATTN_OUT, "attn_output", DIM_ATTN, DIM_EMBD, 0),
    GATED_FFN_TENSORS,
};

static const arch_tensor eagle3_globals[] = {
    {ROLE_TOKEN_EMBD, "token_embd.weight", NULL, {DIM_EMBD, DIM_VOCAB}, TENSOR_OPTIONAL},
    PLAIN_VECTOR(ROLE_DRAFT_EMBD_NORM, "attn_norm.weight", DIM_EMBD, 0),
    PLAIN_VECTOR(ROLE_DRAFT_NORM, "attn_norm_2.weight", DIM_EMBD, 0),
    {ROLE_DRAFT_FUSE, "fc.weight", NULL, {DIM_OPEN, DIM_EMBD}, 0},
    {ROLE_DRAFT_FUSE_NORM,
     "enc.output_norm.weight",
     NULL,
     {DIM_OPEN, DIM_NONE},
     TENSOR_F32 | TENSOR_OPTIONAL},
    {ROLE_OUTPUT_NORM, "output_norm.weight", NULL, {DIM_EMBD, DIM_NONE}, TENSOR_F32},
    {ROLE_OUTPUT, "output.weight", NULL, {DIM_EMBD, DIM_OPEN}, TENSOR_OPTIONAL},
    {ROLE_ROPE_FREQS,
     "rope_freqs.weight",
     NULL,
     {DIM_HALF_ROT, DIM_NONE},
     TENSOR_OPTIONAL | TENSOR_F32},
};

enum {
    N_NEXTN = sizeof nextn_tensors / sizeof nextn_tensors[0],
    N_EAGLE3 = sizeof eagle3_tensors / sizeof eagle3_tensors[0],
    N_EAGLE3_GLOBALS = sizeof eagle3_globals / sizeof eagle3_globals[0]
};

static const arch_row eagle3 = {.name = MODEL_EAGLE3_ARCHITECTURE,
                                .norm = NORM_RMS,
                                .rope = ROPE_INTERLEAVED,
                                .has = ARCH_FFN_UNSCALED,
                                .default_activation = ACTIVATION_SILU,
                                .tensors = eagle3_tensors,
                                .n_tensors = N_EAGLE3};

const arch_tensor *model_nextn_tensors(int *n) {
    *n = N_NEXTN;
    return nextn_tensors;
}

/* ---- binding --------------------------------------------------------------------------------- */

/* Tensors of the head; those with the names of layers are not part of its layer. */
static pi_status bind_rows(model *m, const arch_tensor *rows, int n, int layer, pi_error *err) {
    pi_status status = PI_OK;
    for (int i = 0; i < n && status == PI_OK; i++) {
        model_tensor *in_layer = &m->layers[layer].t[rows[i].role];
        status = model_bind_tensor(m, &rows[i], layer, err);
        if (in_layer->data) m->t[rows[i].role] = *in_layer;
        *in_layer = (model_tensor){0};
    }
    return status;
}

static pi_status fail(const model *m, pi_status status, const char *problem, pi_error *err) {
    return error_set(err, status, "no head that drafts: %s: %s", gguf_path(m->file), problem);
}

/* All layers of the file, the drafting ones included. */
static pi_status read_layers(model *m, pi_error *err) {
    m->hp.n_layer = 0;
    pi_status status = model_read_hparams(m->file, m->arch, true, &m->hp, NULL, err);
    if (status != PI_OK) return status;
    size_t n = (size_t)m->hp.n_layer;
    model_layer_hparams *hps = mem_calloc(n, sizeof *hps);
    m->layers = arena_calloc(&m->arena, n, sizeof *m->layers);
    if (!hps || !m->layers) {
        mem_free(hps);
        return error_nomem(err, n * sizeof *m->layers, "layers");
    }
    status = model_read_hparams(m->file, m->arch, true, &m->hp, hps, err);
    for (size_t i = 0; i < n; i++) m->layers[i].hp = hps[i];
    mem_free(hps);
    return status;
}

/* The layer becomes the only one. */
static void keep_layer(model *m, int layer) {
    m->layers += layer;
    m->layers[0].hp.kv_layer = 0;
    m->hp.n_layer = 1;
    m->hp.n_draft_layer = 0;
}

static pi_status open_nextn(model *m, int number, pi_error *err) {
    const model *target = m->draft.target;
    m->arch = target->arch;
    pi_status status = read_layers(m, err);
    if (status != PI_OK) return status;
    int layer = m->hp.n_layer - m->hp.n_draft_layer + number;
    if (m->hp.n_draft_layer == 0)
        return fail(m, PI_ERR_NOT_FOUND,
                    "it has no layers for multi-token prediction (nextn_predict_layers)", err);
    if (number >= m->hp.n_draft_layer)
        return fail(m, PI_ERR_NOT_FOUND, "it has fewer layers for multi-token prediction", err);
    m->draft.n_layers = m->hp.n_draft_layer;
    if (m->hp.n_embd != target->hp.n_embd)
        return fail(m, PI_ERR_FORMAT, "embedding_length is not the model's", err);
    m->hp.n_vocab = target->hp.n_vocab;
    m->hp.n_pos = target->hp.n_pos;
    if (m->layers[layer].hp.ratio > 0)
        return fail(m, PI_ERR_UNSUPPORTED, "its layer has compressed keys", err);
    m->layers[layer].hp.kv_layer = layer;
    status = model_bind_layers(m, layer, err);
    model_clear_sparse(m); /* `prepare` leaves these layers as they are */
    /* llama.cpp's heads of DSA attend to all positions */
    for (tensor_role role = ROLE_INDEX_Q; role <= ROLE_INDEX_WEIGHTS; role++)
        m->layers[layer].t[role] = (model_tensor){0};
    m->hp.n_index_head = 0;
    m->hp.index_sums = false;
    for (int i = 0; i < m->arch->n_tensors && status == PI_OK; i++) {
        const arch_tensor *row = &m->arch->tensors[i];
        bool here = !m->shares_file && gguf_find_tensor(m->file, row->name);
        if (row->flags & TENSOR_PER_LAYER) continue;
        if (here)
            status = model_bind_tensor(m, row, 0, err);
        else
            m->t[row->role] = target->t[row->role];
    }
    if (!m->t[ROLE_OUTPUT].data) m->t[ROLE_OUTPUT] = target->t[ROLE_OUTPUT];
    if (status == PI_OK) status = bind_rows(m, nextn_tensors, N_NEXTN, layer, err);
    m->draft.n_reads = 1;
    m->draft.reads[0] = target->hp.n_layer;
    keep_layer(m, layer);
    return status;
}

static pi_status read_eagle3_keys(model *m, pi_error *err) {
    const gguf_value *v = gguf_find(m->file, "eagle3.extract_layers");
    if (!v) v = gguf_find(m->file, "eagle3.target_layers"); /* its name in newer files */
    int64_t layer = 0, before = 0, width = m->hp.n_embd;
    bool fits = v && v->type == GGUF_ARRAY && v->count >= 1 && v->count <= MODEL_DRAFT_READS;
    for (uint64_t i = 0; fits && i < v->count; i++, before = layer) {
        fits = gguf_item_i64(v, i, &layer) && layer >= before &&
               layer <= m->draft.target->hp.n_layer;
        m->draft.reads[i] = (int32_t)layer;
        m->draft.n_reads++;
    }
    if (!fits)
        return fail(m, PI_ERR_FORMAT,
                    "eagle3.extract_layers is not an ascending list of layers of the model", err);
    v = gguf_find(m->file, "eagle3.target_hidden_size");
    if (v) gguf_as_i64(v, &width);
    if (width != m->draft.target->hp.n_embd)
        return fail(m, PI_ERR_FORMAT, "eagle3.target_hidden_size is not the model's", err);
    v = gguf_find(m->file, "eagle3.norm_before_residual");
    if (v && !gguf_as_bool(v, &m->draft.normed_residual))
        return fail(m, PI_ERR_FORMAT, "eagle3.norm_before_residual is not a bool", err);
    v = gguf_find(m->file, "eagle3.norm_before_fc");
    if (v && !gguf_as_bool(v, &m->draft.normed_reads))
        return fail(m, PI_ERR_FORMAT, "eagle3.norm_before_fc is not a bool", err);
    return PI_OK;
}

/* "d2t": the token of each row of the output matrix. */
static pi_status bind_ids(model *m, pi_error *err) {
    const gguf_tensor *t = gguf_find_tensor(m->file, "d2t");
    int64_t n_rows = m->t[ROLE_OUTPUT].n_out, before = -1;
    if (!t) {
        bool whole = n_rows == m->hp.n_vocab;
        return whole ? PI_OK : fail(m, PI_ERR_FORMAT, "its vocabulary is not the model's", err);
    }
    if (t->type != QUANT_I64 || t->n_elems != (uint64_t)n_rows || n_rows > m->hp.n_vocab)
        return fail(m, PI_ERR_FORMAT, "d2t does not have an I64 for every row of the output", err);
    int32_t *ids = arena_calloc(&m->arena, (size_t)n_rows, sizeof *ids);
    if (!ids) return error_nomem(err, (size_t)n_rows * sizeof *ids, "d2t");
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t id;
        memcpy(&id, (const uint8_t *)t->data + (size_t)i * sizeof id, sizeof id);
        if (id <= before || id >= m->hp.n_vocab)
            return fail(m, PI_ERR_FORMAT, "d2t is not an ascending list of the model's tokens",
                        err);
        ids[i] = (int32_t)id;
        before = id;
    }
    m->draft.ids = ids;
    m->draft.n_ids = (int32_t)n_rows;
    return PI_OK;
}

static pi_status open_eagle3(model *m, int number, pi_error *err) {
    const model *target = m->draft.target;
    if (number > 0) return fail(m, PI_ERR_NOT_FOUND, "an EAGLE-3 head has one layer", err);
    m->draft.n_layers = 1;
    m->arch = &eagle3;
    pi_status status = read_layers(m, err);
    if (status == PI_OK && m->hp.n_layer != 1)
        status = fail(m, PI_ERR_UNSUPPORTED, "an EAGLE-3 head with several layers", err);
    if (status == PI_OK) status = read_eagle3_keys(m, err);
    if (status != PI_OK) return status;
    m->hp.n_vocab = target->hp.n_vocab;
    model_clear_sparse(m);
    status = bind_rows(m, eagle3_globals, N_EAGLE3_GLOBALS, 0, err);
    if (status == PI_OK) status = model_bind_layers(m, 0, err);
    if (status != PI_OK) return status;
    bool wide = m->hp.n_embd == target->hp.n_embd;
    if (!wide && (!m->t[ROLE_TOKEN_EMBD].data || !m->t[ROLE_OUTPUT].data))
        return fail(m, PI_ERR_FORMAT,
                    "embedding_length is not the model's, and it has no "
                    "embeddings or output matrix",
                    err);
    if (!m->t[ROLE_TOKEN_EMBD].data) m->t[ROLE_TOKEN_EMBD] = target->t[ROLE_TOKEN_EMBD];
    if (!m->t[ROLE_OUTPUT].data) m->t[ROLE_OUTPUT] = target->t[ROLE_OUTPUT];
    int64_t n_fused = (int64_t)m->draft.n_reads * target->hp.n_embd;
    if (m->t[ROLE_DRAFT_FUSE].n_in != n_fused)
        return fail(m, PI_ERR_FORMAT, "fc.weight does not read the layers of eagle3.extract_layers",
                    err);
    const model_tensor *norm = &m->t[ROLE_DRAFT_FUSE_NORM];
    if (m->draft.normed_reads && norm->n_in != n_fused)
        return fail(m, PI_ERR_FORMAT, "enc.output_norm.weight does not have the size of fc.weight",
                    err);
    return bind_ids(m, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool names(const gguf_file *file, const char *architecture) {
    gguf_string s;
    const gguf_value *v = gguf_find(file, "general.architecture");
    return v && gguf_as_string(v, &s) && gguf_string_is(s, architecture);
}

static pi_status bind(model *m, int layer, pi_error *err) {
    const model *target = m->draft.target;
    bool eagle = names(m->file, MODEL_EAGLE3_ARCHITECTURE);
    bool streams = target->hp.n_stream > 1 && (eagle || !target->arch->draft_raw);
    if (streams || model_keeps_embedding(target) || target->arch->encoder)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "not supported: %s: heads that draft for architecture %s",
                         gguf_path(target->file), target->arch->name);
    if (eagle) return open_eagle3(m, layer, err);
    if (!names(m->file, target->arch->name))
        return fail(m, PI_ERR_FORMAT, "its architecture is neither the model's nor eagle3", err);
    return open_nextn(m, layer, err);
}

pi_status model_open_drafter(const model *target, gguf_file *file, int layer, model **out,
                             pi_error *err) {
    *out = NULL;
    model *m = mem_calloc(1, sizeof *m);
    if (!m) {
        gguf_close(file);
        return error_nomem(err, sizeof *m, "head that drafts");
    }
    arena_init(&m->arena);
    m->shares_file = !file;
    m->file = file ? file : target->file;
    m->draft.target = target;
    pi_status status = bind(m, layer, err);
    snprintf(m->name, sizeof m->name, "%s", target->name);
    if (status != PI_OK) {
        model_close(m);
        return status;
    }
    *out = m;
    return PI_OK;
}
