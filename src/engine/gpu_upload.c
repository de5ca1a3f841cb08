/* gpu_upload.c: what the plan's GPU steps read, from the model to the device. Rows pass through
 * two stages in pinned memory: while one is copied to the device and packed there, the next is
 * filled. Rows that have moved need not stay in host memory, so their pages are let go. */
#include <assert.h>
#include <string.h>

#include "gpu_exec_impl.h"
#include "mem.h"

enum { ALIGN = 256 }; /* of device memory, as the device hands it out */

pi_status hybrid_alloc(hybrid *h, size_t n_bytes, const char *what, void **out, pi_error *err) {
    size_t size;
    *out = NULL;
    if (n_bytes == 0) return PI_OK;
    if (!size_align(n_bytes, ALIGN, &size))
        return error_set(err, PI_ERR_NOMEM, "out of memory: %s: too large for the GPU", what);
    h->n_bytes += size;
    if (!h->d) return PI_OK;
    if (h->slab) {
        *out = h->slab + h->slab_used;
        h->slab_used += size;
        return PI_OK;
    }
    pi_status status = h->b->alloc(h->d, size, what, out, err);
    if (status != PI_OK) return status;
    assert(h->n_blocks < h->max_blocks);
    h->blocks[h->n_blocks++] = *out;
    return PI_OK;
}

pi_status hybrid_take_slab(hybrid *h, uint64_t n_bytes, pi_error *err) {
    void *p;
    if (h->b->granularity <= ALIGN || n_bytes == 0) return PI_OK;
    pi_status status = h->b->alloc(h->d, (size_t)n_bytes, "weights and buffers", &p, err);
    if (status != PI_OK) return status;
    h->blocks[h->n_blocks++] = p;
    h->slab = p;
    return PI_OK;
}

/* A stage that nothing on the way to the device uses any more. */
static uint8_t *take_stage(hybrid *h, uint8_t **device) {
    int i = h->next_stage;
    h->next_stage = (i + 1) % HYBRID_STAGES;
    gpu_event *busy = h->staged[i];
    while (busy && !h->b->event_done(busy) && h->b->status(h->d, NULL) == PI_OK) continue;
    *device = h->stage + (size_t)i * HYBRID_STAGE_BYTES;
    return (uint8_t *)h->stage_host.host + (size_t)i * HYBRID_STAGE_BYTES;
}

static void send_stage(hybrid *h, const uint8_t *host, uint8_t *device, size_t n_bytes) {
    int i = (int)((size_t)(device - h->stage) / HYBRID_STAGE_BYTES);
    h->b->upload(h->stream, device, host, n_bytes);
    h->b->event_record(h->stream, h->staged[i]);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static pi_status upload_bytes(hybrid *h, const void *from, size_t n_bytes, const char *what,
                              const void **out, pi_error *err) {
    void *to;
    *out = NULL;
    if (!from) return PI_OK;
    pi_status status = hybrid_alloc(h, n_bytes, what, &to, err);
    if (status != PI_OK || !h->d) return status;
    *out = to;
    for (size_t done = 0; done < n_bytes;) {
        size_t n = n_bytes - done < HYBRID_STAGE_BYTES ? n_bytes - done : HYBRID_STAGE_BYTES;
        uint8_t *device, *host = take_stage(h, &device);
        memcpy(host, (const uint8_t *)from + done, n);
        send_stage(h, host, device, n);
        h->b->copy(h->stream, (uint8_t *)to + done, device, n);
        done += n;
    }
    return PI_OK;
}

pi_status hybrid_upload_floats(hybrid *h, const float *from, int64_t n, const char *what,
                               const float **out, pi_error *err) {
    return upload_bytes(h, from, (size_t)n * sizeof *from, what, (const void **)out, err);
}

void hybrid_pack_rows(hybrid *h, const plan_matrix *pm, const gpu_mat *to) {
    int64_t most = (int64_t)(HYBRID_STAGE_BYTES / pm->row_size);
    for (int64_t r = 0; r < pm->w.n_out;) {
        int64_t n = pm->w.n_out - r < most ? pm->w.n_out - r : most;
        uint8_t *device, *host = take_stage(h, &device);
        const uint8_t *from = (const uint8_t *)pm->w.data + (size_t)r * pm->w.row_bytes;
        for (int64_t i = 0; i < n; i++)
            memcpy(host + (size_t)i * pm->row_size, from + (size_t)i * pm->w.row_bytes,
                   pm->row_size);
        send_stage(h, host, device, (size_t)n * pm->row_size);
        const gpu_pack pack = {
            .src = device, .src_row_bytes = pm->row_size, .dst = *to, .row0 = r, .n_rows = n};
        h->b->ops.pack(h->stream, &pack);
        r += n;
    }
}

static pi_status upload_matrix(hybrid *h, const plan_matrix *pm, gpu_mat *out, pi_error *err) {
    void *data;
    if (!pm->w.data) return PI_OK;
    *out = (gpu_mat){.row_bytes = gpu_mat_row_bytes(pm->row_size),
                     .n_in = pm->w.n_in,
                     .n_out = pm->w.n_out,
                     .type = pm->w.type};
    size_t n_bytes;
    if (pm->row_size > HYBRID_STAGE_BYTES ||
        !size_mul(out->row_bytes, (size_t)pm->w.n_out, &n_bytes))
        return error_set(err, PI_ERR_UNSUPPORTED, "rows are too long: %s: for the GPU",
                         tensor_role_name(pm->role));
    pi_status status = hybrid_alloc(h, n_bytes, tensor_role_name(pm->role), &data, err);
    if (status != PI_OK || !h->d) return status;
    out->data = data;
    hybrid_pack_rows(h, pm, out);
    /* A table of embeddings that is the head's matrix too is still read on the host. */
    if (pm->w.data != h->model->t[ROLE_TOKEN_EMBD].data && pm->row_size == pm->w.row_bytes)
        gguf_forget_data(h->model->file, pm->w.data, pm->row_size * (size_t)pm->w.n_out);
    return PI_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static pi_status upload_ffn(hybrid *h, const plan_step *s, hybrid_step *out, pi_error *err) {
    const plan_ffn *f = s->ffn;
    const char *what = "a predictor";
    pi_status status = PI_OK;
    if (s->op == OP_FFN_DOWN) {
        status = upload_matrix(h, &f->down, &out->down, err);
        if (status == PI_OK)
            status = hybrid_upload_floats(h, f->down.bias, f->down.w.n_in, "a bias",
                                          &out->down_bias, err);
    }
    if (s->op != OP_CHOOSE || s->bits) return status;
    status = upload_matrix(h, &f->fc2, &out->fc2, err);
    if (status == PI_OK)
        status = hybrid_upload_floats(h, f->score_bias, f->n_scored, what, &out->score_bias, err);
    if (status == PI_OK)
        status = upload_bytes(h, f->sign, (size_t)(f->n_scored * (h->model->hp.n_embd / 8)), what,
                              (const void **)&out->sign, err);
    return status;
}

static pi_status upload_norms(hybrid *h, const plan_step *s, hybrid_step *out, pi_error *err) {
    const char *what = "a norm";
    int64_t n = h->model->hp.n_embd, n_head = h->model->hp.head_dim;
    pi_status status = hybrid_upload_floats(h, s->norm_weight, n, what, &out->norm_weight, err);
    if (status == PI_OK)
        status = hybrid_upload_floats(h, s->norm_bias, n, what, &out->norm_bias, err);
    if (status == PI_OK)
        status = hybrid_upload_floats(h, s->q_norm, n_head, what, &out->q_norm, err);
    if (status == PI_OK)
        status = hybrid_upload_floats(h, s->k_norm, n_head, what, &out->k_norm, err);
    return status;
}

/* Whatever the number of positions, heads that are read by 16-byte loads are aligned: others may
 * lie before them in a cache of mixed types. */
static size_t cache_offset(size_t at, quant_type type) {
    return type == QUANT_Q8_0 ? at : (at + GPU_ROW_ALIGN - 1) / GPU_ROW_ALIGN * GPU_ROW_ALIGN;
}

/* Keys and values of the layers whose home is the GPU, in the order of the layers. */
static void lay_out_cache(hybrid *h, const plan_step *s, gpu_kv_layout *kv) {
    uint64_t head_dim = (uint64_t)h->model->hp.head_dim;
    size_t n_heads = (size_t)h->model->layers[s->layer].hp.n_head_kv, row_k = 0, row_v = 0;
    quant_row_bytes(h->type_k, head_dim, &row_k);
    quant_row_bytes(h->type_v, head_dim, &row_v);
    size_t k_offset = cache_offset(h->kv_per_position, h->type_k);
    size_t v_offset = cache_offset(k_offset + n_heads * row_k, h->type_v);
    *kv = (gpu_kv_layout){.k_offset = k_offset,
                          .v_offset = v_offset,
                          .k_row = n_heads * row_k,
                          .v_row = n_heads * row_v,
                          .type_k = h->type_k,
                          .type_v = h->type_v,
                          .n_head_kv = (int32_t)n_heads,
                          .head_dim = h->model->hp.head_dim};
    h->kv_per_position = v_offset + n_heads * row_v;
}

static pi_status upload_step(hybrid *h, int index, pi_error *err) {
    const plan_step *s = &h->plan->gpu_steps[index];
    hybrid_step *out = &h->steps[index];
    pi_status status = upload_norms(h, s, out, err);
    for (int k = 0; k < s->n_matrices && status == PI_OK; k++) {
        const plan_matrix *pm = &s->matrix[k];
        status = upload_matrix(h, pm, &out->w[k], err);
        if (status == PI_OK)
            status = hybrid_upload_floats(h, pm->bias, pm->w.n_out, "a bias", &out->bias[k], err);
    }
    if (status == PI_OK && s->ffn) status = upload_ffn(h, s, out, err);
    if (s->op == OP_ROPE_STORE) lay_out_cache(h, s, &out->kv);
    if (s->op == OP_ATTENTION) out->kv = h->steps[index - 1].kv;
    return status;
}

pi_status hybrid_upload(hybrid *h, pi_error *err) {
    pi_status status = PI_OK;
    for (int i = 0; i < h->plan->n_gpu_steps && status == PI_OK; i++)
        status = upload_step(h, i, err);
    if (status == PI_OK && h->d) status = h->b->stream_sync(h->stream, err);
    return status;
}
