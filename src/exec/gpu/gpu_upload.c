/* gpu_upload.c: copies what the plan's GPU steps read from the model to the device. Rows pass
 * through two stages in pinned memory: while one is copied to the device and packed there, the next
 * is filled. Rows on the device need not stay in host memory, so their pages are released. */
#include <assert.h>
#include <string.h>

#include "gpu_exec_impl.h"
#include "mem.h"

enum { ALIGN = 256 }; /* of device memory, as in the device's own allocations */

pi_status gpu_exec_alloc(gpu_exec *g, size_t n_bytes, const char *what, void **out, pi_error *err) {
    size_t size;
    *out = NULL;
    if (n_bytes == 0) return PI_OK;
    if (!size_align(n_bytes, ALIGN, &size))
        return error_set(err, PI_ERR_NOMEM, "out of GPU memory: %s: use a smaller budget", what);
    g->n_bytes += size;
    if (!g->d) return PI_OK;
    if (g->slab) {
        *out = g->slab + g->slab_used;
        g->slab_used += size;
        return PI_OK;
    }
    pi_status status = g->b->alloc(g->d, size, what, out, err);
    if (status != PI_OK) return status;
    assert(g->n_blocks < g->max_blocks);
    g->blocks[g->n_blocks++] = *out;
    return PI_OK;
}

pi_status gpu_exec_take_slab(gpu_exec *g, uint64_t n_bytes, pi_error *err) {
    void *p;
    if (g->b->granularity <= ALIGN || n_bytes == 0) return PI_OK;
    pi_status status = g->b->alloc(g->d, (size_t)n_bytes, "weights and buffers", &p, err);
    if (status != PI_OK) return status;
    g->blocks[g->n_blocks++] = p;
    g->slab = p;
    return PI_OK;
}

/* Takes the next stage, when its last copy to the device is done. */
static uint8_t *take_stage(gpu_exec *g, uint8_t **device) {
    int i = g->next_stage;
    g->next_stage = (i + 1) % GPU_EXEC_STAGES;
    gpu_event *busy = g->staged[i];
    while (busy && !g->b->event_done(busy) && g->b->status(g->d, NULL) == PI_OK) pool_yield();
    *device = g->stage + (size_t)i * GPU_EXEC_STAGE_BYTES;
    return (uint8_t *)g->stage_host.host + (size_t)i * GPU_EXEC_STAGE_BYTES;
}

static void send_stage(gpu_exec *g, gpu_stream *s, const uint8_t *host, uint8_t *device,
                       size_t n_bytes) {
    int i = (int)((size_t)(device - g->stage) / GPU_EXEC_STAGE_BYTES);
    g->b->upload(s, device, host, n_bytes);
    g->b->event_record(s, g->staged[i]);
}

/* ---- filling --------------------------------------------------------------------------------- */

enum { FILL_BYTES = 128 << 10 }; /* that a thread takes at a time */

typedef struct fill_job {
    pool *pool;
    const uint8_t *from;
    uint8_t *to;
    size_t row_bytes, from_step; /* of a row, and to the next one */
    int64_t n_rows, chunk;
} fill_job;

static void fill_rows(const fill_job *j, int64_t first, int64_t end) {
    if (j->row_bytes == j->from_step) {
        memcpy(j->to + (size_t)first * j->row_bytes, j->from + (size_t)first * j->from_step,
               (size_t)(end - first) * j->row_bytes);
        return;
    }
    for (int64_t r = first; r < end; r++)
        memcpy(j->to + (size_t)r * j->row_bytes, j->from + (size_t)r * j->from_step, j->row_bytes);
}

static void fill_chunks(void *arg, int ith, int nth) {
    const fill_job *j = arg;
    (void)ith;
    (void)nth;
    for (int64_t r; (r = pool_take(j->pool, j->chunk)) < j->n_rows;)
        fill_rows(j, r, r + j->chunk < j->n_rows ? r + j->chunk : j->n_rows);
}

/* Uses all threads if the work is worth waking them. */
static void fill_stage(gpu_exec *g, fill_job *j) {
    j->pool = g->fillers;
    j->chunk = (int64_t)(FILL_BYTES / j->row_bytes) + 1;
    if (g->fillers && j->n_rows > 2 * j->chunk)
        pool_run(g->fillers, pool_size(g->fillers), fill_chunks, j);
    else
        fill_rows(j, 0, j->n_rows);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static pi_status upload_bytes(gpu_exec *g, const void *from, size_t n_bytes, const char *what,
                              const void **out, pi_error *err) {
    void *to;
    *out = NULL;
    if (!from) return PI_OK;
    pi_status status = gpu_exec_alloc(g, n_bytes, what, &to, err);
    if (status != PI_OK || !g->d) return status;
    *out = to;
    for (size_t done = 0; done < n_bytes;) {
        size_t n = n_bytes - done < GPU_EXEC_STAGE_BYTES ? n_bytes - done : GPU_EXEC_STAGE_BYTES;
        uint8_t *device, *host = take_stage(g, &device);
        memcpy(host, (const uint8_t *)from + done, n);
        send_stage(g, g->stream, host, device, n);
        g->b->copy(g->stream, (uint8_t *)to + done, device, n);
        done += n;
    }
    return PI_OK;
}

pi_status gpu_exec_upload_floats(gpu_exec *g, const float *from, int64_t n, const char *what,
                                 const float **out, pi_error *err) {
    return upload_bytes(g, from, (size_t)n * sizeof *from, what, (const void **)out, err);
}

void gpu_exec_pack_rows(gpu_exec *g, gpu_stream *s, const plan_matrix *pm, const gpu_mat *to) {
    int64_t most = (int64_t)(GPU_EXEC_STAGE_BYTES / pm->row_size);
    for (int64_t r = 0; r < pm->w.n_out;) {
        int64_t n = pm->w.n_out - r < most ? pm->w.n_out - r : most;
        uint8_t *device, *host = take_stage(g, &device);
        fill_job fill = {.from = (const uint8_t *)pm->w.data + (size_t)r * pm->w.row_bytes,
                         .to = host,
                         .row_bytes = pm->row_size,
                         .from_step = pm->w.row_bytes,
                         .n_rows = n};
        fill_stage(g, &fill);
        send_stage(g, s, host, device, (size_t)n * pm->row_size);
        const gpu_pack pack = {
            .src = device, .src_row_bytes = pm->row_size, .dst = *to, .row0 = r, .n_rows = n};
        g->b->ops.pack(s, &pack);
        r += n;
    }
}

/* Allocates a matrix; out->data is NULL without a device. */
static pi_status alloc_matrix(gpu_exec *g, const plan_matrix *pm, gpu_mat *out, pi_error *err) {
    void *data;
    *out = (gpu_mat){.row_bytes = gpu_mat_row_bytes(pm->row_size),
                     .n_in = pm->w.n_in,
                     .n_out = pm->w.n_out,
                     .type = pm->w.type};
    size_t n_bytes;
    if (pm->row_size > GPU_EXEC_STAGE_BYTES ||
        !size_mul(out->row_bytes, (size_t)pm->w.n_out, &n_bytes))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "not supported on the GPU: rows of %s are too long",
                         tensor_role_name(pm->role));
    pi_status status = gpu_exec_alloc(g, n_bytes, tensor_role_name(pm->role), &data, err);
    if (status == PI_OK && g->d) out->data = data;
    return status;
}

/* If host and device share memory, the device reads rows from the mapped file or its copy
 * (--no-mmap): float rows if they are aligned like packed rows, quantized rows always. It cannot do
 * so if neurons or experts move, because a move writes rows. False: the rows must be copied. */
static bool import_matrix(gpu_exec *g, const plan_matrix *pm, gpu_mat *out) {
    void *data;
    size_t size;
    const bool in_file = gpu_type_wants_q8(pm->w.type);
    *out = (gpu_mat){.row_bytes = pm->row_size,
                     .n_in = pm->w.n_in,
                     .n_out = pm->w.n_out,
                     .type = pm->w.type,
                     .in_file = in_file};
    const size_t n_bytes = out->row_bytes * (size_t)pm->w.n_out; /* of memory: fits */
    if (!g->d || !g->b->import || g->slab || g->moves || g->adapts || g->paging || n_bytes == 0 ||
        (!in_file && out->row_bytes != gpu_mat_row_bytes(pm->row_size)) ||
        pm->w.row_bytes != pm->row_size || !gguf_holds(g->model->file, pm->w.data) ||
        !size_align(n_bytes, ALIGN, &size) || g->n_blocks == g->max_blocks ||
        g->b->import(g->d, pm->w.data, n_bytes, tensor_role_name(pm->role), &data, NULL) != PI_OK)
        return false;
    g->n_bytes += size;
    g->blocks[g->n_blocks++] = data;
    out->data = data;
    return true;
}

static pi_status upload_matrix(gpu_exec *g, const plan_matrix *pm, gpu_mat *out, pi_error *err) {
    if (!pm->w.data || import_matrix(g, pm, out)) return PI_OK;
    pi_status status = alloc_matrix(g, pm, out, err);
    if (status != PI_OK || !g->d) return status;
    gpu_exec_pack_rows(g, g->stream, pm, out);
    /* The host still reads a table of embeddings that is also the head's matrix. A bundle is
     * released when its last matrix, down, is uploaded. */
    bool apart = pm->row_size == pm->w.row_bytes;
    if (pm->w.data != g->model->t[ROLE_TOKEN_EMBD].data && (apart || pm->role == ROLE_FFN_DOWN_T))
        gguf_forget_data(g->model->file, pm->w.data,
                         pm->w.row_bytes * (size_t)pm->w.n_out - (pm->w.row_bytes - pm->row_size));
    return PI_OK;
}

/* ---- arguments of operations ----------------------------------------------------------------- */

/* What a step needs on the device besides its matrices, and where it finds that in a session's
 * memory. */

static pi_status upload_norm(gpu_exec *g, const args_norm *a, gpu_exec_step *out, pi_error *err) {
    const char *what = "a norm";
    const int64_t n = a->width * (a->n > 1 ? a->n : 1);
    pi_status status = gpu_exec_upload_floats(g, a->weight, n, what, &out->norm_weight, err);
    if (status != PI_OK) return status;
    return gpu_exec_upload_floats(g, a->bias, n, what, &out->norm_bias, err);
}

static pi_status upload_mix(gpu_exec *g, const plan_step *s, const args_mix *a, gpu_exec_step *out,
                            pi_error *err) {
    int64_t n = g->model->hp.n_stream, rows = s->op == OP_PREDICT ? n * n : n;
    pi_status status = gpu_exec_upload_floats(g, a->scale, g->model->hp.n_embd, "a norm",
                                              &out->norm_weight, err);
    if (status != PI_OK) return status;
    return gpu_exec_upload_floats(g, a->coefficients, rows * n, "coefficients", &out->coefficients,
                                  err);
}

static pi_status upload_hyper(gpu_exec *g, const args_hyper *a, gpu_exec_step *out, pi_error *err) {
    const bool mixes = a->rounds > 0;
    const int64_t n = g->model->hp.n_stream;
    pi_status status = gpu_exec_upload_floats(g, a->scale, mixes ? 2 : 1, "a scale",
                                              &out->norm_weight, err);
    if (status != PI_OK) return status;
    return gpu_exec_upload_floats(g, a->base, mixes ? n + n * n : n, "coefficients",
                                  &out->coefficients, err);
}

static pi_status upload_past(gpu_exec *g, const args_past *a, gpu_exec_step *out, pi_error *err) {
    return gpu_exec_upload_floats(g, a->score, g->model->hp.n_embd, "scores of residuals",
                                  &out->norm_weight, err);
}

/* ---- FFN and experts ------------------------------------------------------------------------- */

static pi_status upload_ffn_in(gpu_exec *g, const plan_step *s, gpu_exec_step *out, pi_error *err) {
    const plan_ffn *f = &g->plan->gpu_ffn[s->layer];
    return gpu_exec_upload_floats(g, f->divisors, f->n_ff, "scales of activations", &out->divisors,
                                  err);
}

static pi_status upload_ffn_down(gpu_exec *g, const plan_ffn *f, gpu_exec_step *out,
                                 pi_error *err) {
    const plan_matrix *down = &f->down;
    pi_status status = upload_matrix(g, down, &out->down, err);
    if (status != PI_OK) return status;
    return gpu_exec_upload_floats(g, down->bias, down->w.n_in, "a bias", &out->down_bias, err);
}

static pi_status upload_select(gpu_exec *g, const args_select *a, gpu_exec_step *out,
                               pi_error *err) {
    const plan_ffn *f = a->ffn;
    const char *what = "a predictor";
    if (a->bits) return PI_OK;
    pi_status status = upload_matrix(g, &f->fc2, &out->fc2, err);
    if (status == PI_OK)
        status = gpu_exec_upload_floats(g, f->score_bias, f->n_scored, what, &out->score_bias, err);
    if (status == PI_OK)
        status = upload_bytes(g, f->sign, (size_t)(f->n_scored * (g->model->hp.n_embd / 8)), what,
                              (const void **)&out->sign, err);
    return status;
}

/* Uploads the first `hot` experts' rows of a matrix, `rows` for each expert. */
static pi_status upload_expert_rows(gpu_exec *g, const plan_experts *e, const plan_matrix *first,
                                    int64_t rows, gpu_mat *out, pi_error *err) {
    plan_matrix part = *first;
    if (!first->w.data) return PI_OK;
    part.w.n_out = e->hot * rows;
    if (part.expert_bytes == (size_t)rows * part.row_size && import_matrix(g, &part, out))
        return PI_OK;
    pi_status status = alloc_matrix(g, &part, out, err);
    gpu_mat to = *out;
    part.w.n_out = rows;
    for (int64_t i = 0; i < e->hot && status == PI_OK && g->d; i++) {
        gpu_exec_pack_rows(g, g->stream, &part, &to);
        /* experts that may move back are still read on the host */
        if (!g->adapts)
            gguf_forget_data(g->model->file, part.w.data, (size_t)rows * part.w.row_bytes);
        part.w.data = (const uint8_t *)part.w.data + part.expert_bytes;
        to.data = (const uint8_t *)to.data + (size_t)rows * to.row_bytes;
    }
    return status;
}

/* Uploads the biases and scales of one of the experts' matrices. */
static pi_status upload_expert_vectors(gpu_exec *g, const plan_experts *e, const plan_matrix *m,
                                       const float *scales, const float **bias, const float **scale,
                                       pi_error *err) {
    const char *what = "experts";
    pi_status status = gpu_exec_upload_floats(g, m->bias, e->hot * m->w.n_out, what, bias, err);
    return status == PI_OK ? gpu_exec_upload_floats(g, scales, e->hot, what, scale, err) : status;
}

/* Gate and up in one tensor are also one matrix on the device. */
static pi_status upload_experts_in(gpu_exec *g, const plan_experts *e, gpu_exec_step *out,
                                   pi_error *err) {
    bool gated = e->gate.w.data, fused = e->up_rows > e->n_ff;
    pi_status status = PI_OK;
    if (gated) status = upload_expert_rows(g, e, &e->gate, e->up_rows, &out->w[0], err);
    if (gated && status == PI_OK)
        status = upload_expert_vectors(g, e, &e->gate, e->gate_scales, &out->bias[0],
                                       &out->scales[0], err);
    if (status == PI_OK && fused) {
        out->w[1] = out->w[0];
        if (out->w[1].data)
            out->w[1].data = (const uint8_t *)out->w[0].data +
                             (size_t)e->n_ff * out->w[0].row_bytes;
    } else if (status == PI_OK) {
        status = upload_expert_rows(g, e, &e->up, e->up_rows, &out->w[1], err);
    }
    if (status != PI_OK) return status;
    return upload_expert_vectors(g, e, &e->up, e->up_scales, &out->bias[1], &out->scales[1], err);
}

static pi_status upload_experts_down(gpu_exec *g, const plan_experts *e, gpu_exec_step *out,
                                     pi_error *err) {
    pi_status status = upload_expert_rows(g, e, &e->down, e->down.w.n_out, &out->down, err);
    if (status != PI_OK) return status;
    plan_matrix vectors = e->down; /* n_embd elements in both forms of down */
    vectors.w.n_out = e->n_embd;
    return upload_expert_vectors(g, e, &vectors, e->down_scales, &out->down_bias, &out->scales[2],
                                 err);
}

static pi_status upload_route(gpu_exec *g, const plan_experts *e, gpu_exec_step *out,
                              pi_error *err) {
    const char *what = "a router";
    pi_status status = gpu_exec_upload_floats(g, e->select_bias, e->n_scored, what,
                                              &out->select_bias, err);
    if (status == PI_OK)
        status = upload_bytes(g, e->perm, (size_t)e->n_scored * sizeof *e->perm, what,
                              (const void **)&out->perm, err);
    if (status != PI_OK) return status;
    const size_t n = (size_t)g->model->hp.n_vocab * (size_t)e->n_used;
    return upload_bytes(g, e->by_token, n * sizeof *e->by_token, "experts of tokens",
                        (const void **)&out->by_token, err);
}

/* ---- attention and its cache ----------------------------------------------------------------- */

/* Aligns the offset of heads that are read by 16-byte loads, for any number of positions: in a
 * cache of mixed types unaligned heads may precede them. */
static size_t cache_offset(size_t at, quant_type type) {
    if (quant_find((uint32_t)type)->is_quantized) return at;
    return (at + GPU_ROW_ALIGN - 1) / GPU_ROW_ALIGN * GPU_ROW_ALIGN;
}

/* Lays out the keys and values of layers whose primary is the GPU, in the order of the layers. A
 * layer that reads another layer's cache has none. */
static void lay_out_cache(gpu_exec *g, const plan_step *s, gpu_kv_layout *kv) {
    const model_layer_hparams *l = &g->model->layers[s->layer].hp;
    size_t n_heads = (size_t)model_kv_heads(l, s->layer);
    size_t row_k = 0, row_v = 0;
    quant_row_bytes(g->type_k, (uint64_t)l->head_dim, &row_k);
    const bool joint = g->model->hp.n_latent > 0 || g->model->hp.joint_kv; /* values are the keys */
    if (!joint) quant_row_bytes(g->type_v, (uint64_t)l->v_dim, &row_v);
    size_t k_offset = cache_offset(g->kv_per_position, g->type_k);
    size_t v_offset = cache_offset(k_offset + n_heads * row_k, g->type_v);
    *kv = (gpu_kv_layout){.k_offset = k_offset,
                          .v_offset = v_offset,
                          .k_row = n_heads * row_k,
                          .v_row = n_heads * row_v,
                          .type_k = g->type_k,
                          .type_v = g->type_v,
                          .k_hadamard = kv_hadamard(g->type_k, l->head_dim),
                          .v_hadamard = joint ? kv_hadamard(g->type_k, l->head_dim)
                                              : kv_hadamard(g->type_v, l->v_dim),
                          .n_head_kv = (int32_t)n_heads,
                          .head_dim = l->head_dim,
                          .v_dim = l->v_dim};
    g->kv_per_position = v_offset + n_heads * row_v;
}

/* Lays out the layer's index keys, or compressed keys, of `dim` elements, one for `per`
 * positions. */
static void lay_out_keys(gpu_exec *g, size_t per, int64_t dim, gpu_kv_layout *kv) {
    *kv = (gpu_kv_layout){.k_offset = cache_offset(g->kv_per_position, g->type_k),
                          .type_k = g->type_k,
                          .k_hadamard = kv_hadamard(g->type_k, dim),
                          .n_head_kv = 1,
                          .head_dim = (int32_t)dim};
    quant_row_bytes(g->type_k, (uint64_t)kv->head_dim, &kv->k_row);
    g->kv_per_position = kv->k_offset + (kv->k_row + per - 1) / per;
}

/* Lays out the block scores, which layers write one after the other. */
static void lay_out_scores(gpu_exec *g) {
    const model_hparams *hp = &g->model->hp;
    bool any = false;
    for (int i = 0; i < g->plan->n_gpu_steps; i++)
        any = any || g->plan->gpu_steps[i].op == OP_FIND_BLOCKS;
    if (!any) return;
    size_t size = (size_t)hp->block_size;
    g->scores_bytes = (size_t)g->n_batch * (size_t)hp->n_index_choice * sizeof(float);
    if (hp->index_sums)
        g->lists_bytes = (size_t)g->n_batch * (size_t)hp->block_top * sizeof(int32_t);
    g->scores_at = (g->kv_per_position + GPU_ROW_ALIGN - 1) / GPU_ROW_ALIGN * GPU_ROW_ALIGN;
    g->kv_per_position = g->scores_at + (g->scores_bytes + size - 1) / size;
}

/* The step that stores what a step's layer reads of the cache. */
static const gpu_exec_step *storing(const gpu_exec *g, const plan_step *s, plan_op op) {
    int layer = g->model->layers[s->layer].hp.kv_layer;
    do s--;
    while (s->layer != layer || s->op != op);
    return &g->steps[s - g->plan->gpu_steps];
}

static pi_status upload_rope(gpu_exec *g, const plan_step *s, const args_rope *a,
                             gpu_exec_step *out, pi_error *err) {
    const model_layer_hparams *l = &g->model->layers[s->layer].hp;
    int64_t heads = a->norm_stride > 0 ? l->n_head : 1;
    int64_t heads_kv = a->norm_stride > 0 ? l->n_head_kv : 1;
    lay_out_cache(g, s, &out->kv);
    pi_status status = gpu_exec_upload_floats(g, a->q_norm, heads * l->head_dim, "a norm",
                                              &out->q_norm, err);
    if (status != PI_OK) return status;
    return gpu_exec_upload_floats(g, a->k_norm, heads_kv * l->head_dim, "a norm", &out->k_norm,
                                  err);
}

static pi_status upload_compress(gpu_exec *g, const plan_step *s, const args_compress *a,
                                 gpu_exec_step *out, pi_error *err) {
    pi_status status = PI_OK;
    out->state_at = g->n_state;
    g->n_state += model_state(&g->model->hp, &g->model->layers[s->layer].hp);
    for (int kind = 0; kind < 2 && status == PI_OK; kind++) {
        const struct plan_compressed *of = &a->of[kind];
        const int64_t n_positions = a->ratio * a->n_parts * of->dim;
        if (of->dim == 0) continue;
        lay_out_keys(g, (size_t)a->ratio, of->dim, kind == 0 ? &out->compressed : &out->kv);
        status = gpu_exec_upload_floats(g, of->positions, n_positions, "weights of positions",
                                        &out->positions[kind], err);
        if (status == PI_OK)
            status = gpu_exec_upload_floats(g, of->norm, of->dim, "a norm", &out->key_norm[kind],
                                            err);
    }
    return status;
}

/* OP_COMPRESS stores the keys of blocks. */
static pi_status upload_index(gpu_exec *g, const plan_step *s, const args_rope *a,
                              gpu_exec_step *out, pi_error *err) {
    int64_t n = g->model->hp.index_dim;
    if (a->no_values) {
        out->kv = storing(g, s, OP_COMPRESS)->kv;
        out->kv.n_head_kv = 0;
    } else {
        lay_out_keys(g, 1, n, &out->kv);
    }
    pi_status status = gpu_exec_upload_floats(g, a->q_norm, n, "a norm", &out->q_norm, err);
    if (status != PI_OK) return status;
    return gpu_exec_upload_floats(g, a->k_norm, n, "a norm", &out->k_norm, err);
}

static pi_status upload_latent_store(gpu_exec *g, const plan_step *s, const args_latent_store *a,
                                     gpu_exec_step *out, pi_error *err) {
    lay_out_cache(g, s, &out->kv);
    pi_status status = gpu_exec_upload_floats(g, a->k_norm, g->model->hp.n_rot, "a norm",
                                              &out->q_norm, err);
    if (status != PI_OK) return status;
    return gpu_exec_upload_floats(g, a->norm, g->model->hp.n_latent, "a norm", &out->k_norm, err);
}

static pi_status upload_blocks(const gpu_exec *g, const plan_step *s, gpu_exec_step *out) {
    out->kv = storing(g, s, OP_INDEX_STORE)->kv;
    return PI_OK;
}

static pi_status upload_attention(gpu_exec *g, const plan_step *s, const args_attention *a,
                                  gpu_exec_step *out, pi_error *err) {
    const int64_t n_head = g->model->layers[s->layer].hp.n_head;
    out->kv = storing(g, s, g->model->hp.n_latent > 0 ? OP_LATENT_STORE : OP_ROPE_STORE)->kv;
    if (a->latent && g->model->hp.joint_kv) out->kv.k_hadamard = 0; /* OP_ROPE_STORE did that */
    if (a->ratio > 0) out->compressed = storing(g, s, OP_COMPRESS)->compressed;
    pi_status status = gpu_exec_upload_floats(g, a->sinks, n_head, "sinks", &out->sinks, err);
    if (status != PI_OK) return status;
    return gpu_exec_upload_floats(g, a->slopes, n_head, "slopes", &out->slopes, err);
}

/* ---- recurrent mixers ------------------------------------------------------------------------ */

static const char recurrent_layer[] = "a recurrent layer";

/* The layer's part of a session's state: the last inputs, then the state of heads. */
static pi_status upload_conv(gpu_exec *g, const plan_step *s, const plan_recurrent *r,
                             gpu_exec_step *out, pi_error *err) {
    int64_t part = r->n_conv / (r->mixer == MIXER_KDA ? 3 : 1) * r->n_taps;
    pi_status status = PI_OK;
    out->state_at = g->n_state;
    g->n_state += model_state(&g->model->hp, &g->model->layers[s->layer].hp);
    for (int i = 0; i < 3 && status == PI_OK; i++)
        status = gpu_exec_upload_floats(g, r->taps[i], part, recurrent_layer, &out->taps[i], err);
    if (status != PI_OK) return status;
    return gpu_exec_upload_floats(g, r->conv_bias, r->n_conv, recurrent_layer, &out->bias[0], err);
}

static pi_status upload_recur(gpu_exec *g, const plan_step *s, const plan_recurrent *r,
                              gpu_exec_step *out, pi_error *err) {
    int64_t n_dt = r->mixer == MIXER_KDA ? r->n_head * r->n_state : r->n_head;
    int64_t n_a = r->channels ? r->n_head * r->n_state : r->n_head;
    int conv = -1;
    while (s[conv].op != OP_CONV) conv--;
    out->state_at = out[conv].state_at + r->heads_at - r->conv_at; /* after the convolution's */
    pi_status status = gpu_exec_upload_floats(g, r->dt_bias, n_dt, recurrent_layer, &out->dt_bias,
                                              err);
    if (status == PI_OK)
        status = gpu_exec_upload_floats(g, r->a, n_a, recurrent_layer, &out->decay, err);
    if (status != PI_OK) return status;
    return gpu_exec_upload_floats(g, r->d, r->n_head, recurrent_layer, &out->skip, err);
}

static pi_status upload_gate_ssm(gpu_exec *g, const plan_recurrent *r, gpu_exec_step *out,
                                 pi_error *err) {
    bool whole = r->mixer & (MIXER_SSM | MIXER_LIGHTNING);
    int64_t n = whole ? r->n_head * r->head_dim : r->head_dim;
    return gpu_exec_upload_floats(g, r->norm, n, recurrent_layer, &out->norm_weight, err);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static pi_status upload_args(gpu_exec *g, const plan_step *s, gpu_exec_step *out, pi_error *err) {
    switch (s->op) {
#define PLAN_OP(name, text, args, print, reads, alone, cpu, gpu) STEP_CASE(name, args, return gpu)
#define ON_GPU(one, few, many, ways, upload, launches)           upload
#define NOT_ON_GPU                                               PI_OK
#define NOTHING                                                  PI_OK
#include "ops.def"
    case OP_COUNT:
        break;
    }
    return PI_OK;
}

static pi_status upload_step(gpu_exec *g, int index, pi_error *err) {
    const plan_step *s = &g->plan->gpu_steps[index];
    gpu_exec_step *out = &g->steps[index];
    pi_status status = PI_OK;
    for (int k = 0; k < s->n_matrices && status == PI_OK; k++) {
        const plan_matrix *pm = &s->matrix[k];
        status = upload_matrix(g, pm, &out->w[k], err);
        if (status == PI_OK)
            status = gpu_exec_upload_floats(g, pm->bias, pm->w.n_out, "a bias", &out->bias[k], err);
    }
    return status == PI_OK ? upload_args(g, s, out, err) : status;
}

pi_status gpu_exec_upload(gpu_exec *g, pi_error *err) {
    pi_status status = PI_OK;
    for (int i = 0; i < g->plan->n_gpu_steps && status == PI_OK; i++)
        status = upload_step(g, i, err);
    lay_out_scores(g);
    if (status == PI_OK && g->d) status = g->b->stream_sync(g->stream, err);
    return status;
}
