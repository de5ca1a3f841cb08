/* gpu_exec.c: making the GPU's side of a context, and running its part of a pass. */
#include "gpu_exec.h"

#include <string.h>

#include "clock.h"
#include "gpu_exec_impl.h"
#include "mem.h"

enum {
    POLLS_AT_ONCE = 256, /* of a flag, before the device is asked and the core is given away */
    WAIT_SECONDS = 120   /* for one message: a prompt's attention on a slow device takes seconds */
};

/* ---- device memory --------------------------------------------------------------------------- */

static pi_status alloc_floats(hybrid *h, int64_t n, const char *what, float **out, pi_error *err) {
    void *p;
    pi_status status = hybrid_alloc(h, (size_t)n * sizeof **out, what, &p, err);
    *out = p;
    return status;
}

static pi_status alloc_vectors(hybrid *h, pi_error *err) {
    const plan *p = h->plan;
    pi_status status = PI_OK;
    for (int b = 0; b < BUF_COUNT && status == PI_OK; b++) {
        int64_t rows = b == BUF_LOGITS ? HYBRID_LOGIT_ROWS : h->n_batch;
        status = alloc_floats(h, rows * p->gpu_width[b], "working buffers", &h->buf[b], err);
    }
    for (int i = 0; i < PLAN_SLOTS && status == PI_OK; i++) {
        const plan_slot *slot = &p->slots[SIDE_GPU][i];
        if (!(slot->kinds & (1u << CPU_ACT_Q8))) continue;
        int64_t n = (slot->width + CPU_ACT_GROUP - 1) / CPU_ACT_GROUP * CPU_ACT_GROUP;
        status = hybrid_alloc(h, (size_t)h->n_batch * gpu_q8_bytes(n), "encoded vectors", &h->q8[i],
                              err);
    }
    return status;
}

/* Inputs of products of many columns; a layer's scales make them of few ones too. */
static pi_status alloc_halves(hybrid *h, pi_error *err) {
    int64_t n_embd = h->model->hp.n_embd;
    int64_t longest = n_embd > HYBRID_TILE_ROWS ? n_embd : HYBRID_TILE_ROWS;
    for (int i = 0; i < h->plan->n_gpu_steps; i++) {
        const plan_step *s = &h->plan->gpu_steps[i];
        for (int k = 0; k < s->n_matrices; k++)
            if (s->matrix[k].w.n_in > longest) longest = s->matrix[k].w.n_in;
        if (s->op == OP_FFN_DOWN && s->ffn->n_ff > longest) longest = s->ffn->n_ff;
        if (s->op == OP_CHOOSE && s->ffn->fc2.w.n_in > longest) longest = s->ffn->fc2.w.n_in;
    }
    return hybrid_alloc(h, gpu_matmul_scratch(longest, h->n_batch), "products of prompts",
                        &h->halves, err);
}

static pi_status alloc_attention(hybrid *h, pi_error *err) {
    const model_hparams *hp = &h->model->hp;
    int64_t half = h->model->hp.rope == ROPE_NONE ? 0 : hp->n_rot / 2;
    const char *what = "attention's buffers";
    size_t partial = gpu_attention_partial(GPU_MAX_COLS, hp->n_head, GPU_ATTN_SPLITS, hp->head_dim);
    pi_status status = alloc_floats(h, half, what, &h->inv_freq, err);
    if (status == PI_OK) status = alloc_floats(h, 2 * half * h->n_batch, what, &h->angles, err);
    if (status == PI_OK) status = alloc_floats(h, (int64_t)partial, what, &h->attn_partial, err);
    return status;
}

static pi_status alloc_neurons(hybrid *h, pi_error *err) {
    int64_t most = 0, n_layer = h->model->hp.n_layer;
    bool rows = false;
    void *p = NULL;
    for (int i = 0; i < h->model->hp.n_layer; i++) {
        const plan_ffn *f = &h->plan->gpu_ffn[i];
        if (f->n_ff > most) most = f->n_ff;
        rows = rows || f->down.w.data;
    }
    size_t partial = rows ? gpu_down_partial(h->model->hp.n_embd, GPU_MAX_COLS) : 0;
    const char *what = "lists of neurons";
    pi_status status = alloc_floats(h, (int64_t)partial, what, &h->down_partial, err);
    if (status == PI_OK) status = hybrid_alloc(h, (size_t)most * sizeof *h->list, what, &p, err);
    h->list = p;
    if (status == PI_OK)
        status = hybrid_alloc(h, hybrid_counts(h) * sizeof *h->count, what, &p, err);
    h->count = p;
    if (p) h->read = h->count + n_layer;
    if (p) h->bad = h->read + 2 * n_layer;
    int64_t words = h->plan->bits_words * h->n_batch;
    if (status == PI_OK) status = hybrid_alloc(h, (size_t)words * sizeof *h->bits, what, &p, err);
    h->bits = p;
    return status;
}

static size_t header_bytes(const hybrid *h, int n_cols) {
    return sizeof *h->header + (size_t)n_cols * sizeof h->header->columns[0];
}

static pi_status alloc_scratch(hybrid *h, pi_error *err) {
    void *p = NULL;
    pi_status status = hybrid_alloc(h, header_bytes(h, h->n_batch), "columns", &p, err);
    h->header = p;
    if (status == PI_OK)
        status = hybrid_alloc(h, (size_t)HYBRID_STAGES * HYBRID_STAGE_BYTES, "copies", &p, err);
    h->stage = p;
    if (status == PI_OK) status = alloc_vectors(h, err);
    if (status == PI_OK) status = alloc_halves(h, err);
    if (status == PI_OK) status = alloc_attention(h, err);
    if (status == PI_OK) status = alloc_neurons(h, err);
    return status;
}

/* ---- pinned memory --------------------------------------------------------------------------- */

static pi_status pin(hybrid *h, size_t n_bytes, gpu_pinned *out, pi_error *err) {
    return n_bytes ? h->b->host_alloc(h->d, n_bytes, out, err) : PI_OK;
}

static pi_status pin_all(hybrid *h, pi_error *err) {
    const model_hparams *hp = &h->model->hp;
    size_t n_batch = (size_t)h->n_batch;
    bool head = h->plan->head == SIDE_GPU;
    pi_status status = pin(h, header_bytes(h, h->n_batch), &h->header_host, err);
    if (status == PI_OK) status = pin(h, hybrid_counts(h) * sizeof *h->count, &h->counts_host, err);
    if (status == PI_OK)
        status = pin(h, (size_t)HYBRID_STAGES * HYBRID_STAGE_BYTES, &h->stage_host, err);
    if (status == PI_OK && head)
        status = pin(h, HYBRID_LOGIT_ROWS * (size_t)h->plan->gpu_width[BUF_LOGITS] * sizeof(float),
                     &h->logits_host, err);
    for (int side = 0; side < PLAN_SIDES && status == PI_OK; side++) {
        size_t n = (size_t)h->plan->n_exchanges[side];
        if (n == 0) continue;
        status = pin(h, n * GPU_FLAG_BYTES, &h->flags[side], err);
        if (status == PI_OK)
            status = pin(h, n_batch * (size_t)hp->n_embd * sizeof(float), &h->message_x[side], err);
        if (status == PI_OK)
            status = pin(h, n_batch * (size_t)h->plan->bits_words * sizeof(uint32_t),
                         &h->message_bits[side], err);
    }
    return status;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Candidates, cuts and FATReLU make activations jump. */
static bool can_jump(const plan *p) {
    bool jumps = p->model->hp.activation == ACTIVATION_FATRELU;
    for (int i = 0; i < p->model->hp.n_layer; i++)
        jumps = jumps || p->ffn[i].mode == FFN_PREDICT || p->ffn[i].mode == FFN_THRESHOLD;
    return jumps;
}

static void describe(hybrid *h, const engine_context *c) {
    *h = (hybrid){.plan = c->plan,
                  .model = c->model,
                  .type_k = c->type_k,
                  .type_v = c->type_v,
                  .n_batch = c->n_batch,
                  .precise = can_jump(c->plan),
                  .angle_scale = c->angle_scale};
}

/* Weights and the rest of device memory, in `out` what they take. */
static pi_status fill(hybrid *h, engine_prompts prompts, engine_gpu_bytes *out, pi_error *err) {
    size_t n_steps = (size_t)h->plan->n_gpu_steps;
    h->steps = mem_calloc(n_steps ? n_steps : 1, sizeof *h->steps);
    h->cold = mem_calloc((size_t)h->model->hp.n_layer, sizeof *h->cold);
    if (!h->steps || !h->cold)
        return error_nomem(err, n_steps * sizeof *h->steps, "the GPU's steps");
    pi_status status = alloc_scratch(h, err);
    if (status == PI_OK && prompts != ENGINE_PROMPTS_SPLIT) status = hybrid_prompts_create(h, err);
    out->scratch = h->n_bytes;
    h->n_bytes = 0;
    if (status == PI_OK) status = hybrid_upload(h, err);
    out->weights = h->n_bytes;
    out->kv_per_position = h->kv_per_position;
    return status;
}

pi_status hybrid_size(const engine_context *c, engine_gpu_bytes *out, pi_error *err) {
    hybrid h;
    describe(&h, c);
    pi_status status = fill(&h, c->options.prompts, out, err);
    mem_free(h.cold);
    mem_free(h.steps);
    return status;
}

static pi_status make_streams(hybrid *h, pi_error *err) {
    pi_status status = h->b->stream_create(h->d, &h->stream, err);
    for (int i = 0; i < HYBRID_STAGES && status == PI_OK; i++) {
        status = h->b->event_create(h->d, &h->staged[i], err);
        if (status == PI_OK) h->b->event_record(h->stream, h->staged[i]);
    }
    if (status == PI_OK) status = h->b->event_create(h->d, &h->ended, err);
    return status;
}

/* What is counted is what is taken: where a device gives memory away in large pieces only, all of
 * it is one. */
static pi_status reserve(hybrid *h, const engine_context *c, pi_error *err) {
    engine_gpu_bytes bytes;
    pi_status status = hybrid_size(c, &bytes, err);
    return status == PI_OK ? hybrid_take_slab(h, bytes.scratch + bytes.weights, err) : status;
}

pi_status hybrid_create(engine_context *c, const engine_options *options, hybrid **out,
                        pi_error *err) {
    engine_gpu_bytes bytes;
    enum { BLOCKS_PER_STEP = 16, OTHER_BLOCKS = 32 }; /* more than any step has operands */
    hybrid *h = mem_calloc(1, sizeof *h);
    *out = h;
    if (!h) return error_nomem(err, sizeof *h, "the GPU's side");
    describe(h, c);
    h->b = options->gpu;
    h->d = options->device;
    h->max_blocks = c->plan->n_gpu_steps * BLOCKS_PER_STEP + OTHER_BLOCKS +
                    c->model->hp.n_layer * PLAN_MAX_GROUP; /* biases of cold neurons */
    h->blocks = mem_calloc((size_t)h->max_blocks, sizeof *h->blocks);
    if (!h->blocks) return error_nomem(err, (size_t)h->max_blocks * sizeof *h->blocks, "blocks");
    pi_status status = make_streams(h, err);
    if (status == PI_OK) status = pin_all(h, err);
    if (status == PI_OK) status = reserve(h, c, err);
    if (status == PI_OK) status = fill(h, options->prompts, &bytes, err);
    if (status == PI_OK && h->inv_freq) {
        h->b->upload(h->stream, h->inv_freq, c->inv_freq,
                     (size_t)(h->model->hp.n_rot / 2) * sizeof(float));
        status = h->b->stream_sync(h->stream, err);
    }
    if (status == PI_OK) hybrid_prompts_choose(h, c, options->prompts);
    return status;
}

void hybrid_programs_free(hybrid *h, hybrid_programs *p) {
    for (int i = 0; i < GPU_MAX_COLS; i++)
        for (int k = 0; k < HYBRID_SPLIT_BUCKETS; k++) h->b->program_free(p->of[i][k]);
    *p = (hybrid_programs){0};
}

void hybrid_destroy(hybrid *h) {
    if (!h) return;
    if (h->stream) h->b->stream_destroy(h->stream); /* waits for what uses all the rest */
    hybrid_programs_free(h, &h->programs);
    for (int i = 0; i < HYBRID_STAGES; i++)
        if (h->staged[i]) h->b->event_destroy(h->staged[i]);
    if (h->ended) h->b->event_destroy(h->ended);
    for (int i = 0; i < h->n_blocks; i++) h->b->free(h->d, h->blocks[i]);
    gpu_pinned *pinned[] = {&h->header_host,
                            &h->counts_host,
                            &h->logits_host,
                            &h->stage_host,
                            &h->message_x[SIDE_CPU],
                            &h->message_x[SIDE_GPU],
                            &h->message_bits[SIDE_CPU],
                            &h->message_bits[SIDE_GPU],
                            &h->flags[SIDE_CPU],
                            &h->flags[SIDE_GPU]};
    for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++)
        if (pinned[i]->host) h->b->host_free(h->d, pinned[i]);
    mem_free(h->blocks);
    mem_free(h->cold);
    mem_free(h->steps);
    mem_free(h);
}

/* ---- sessions -------------------------------------------------------------------------------- */

pi_status hybrid_kv_create(hybrid *h, int64_t n_ctx, void **out, pi_error *err) {
    size_t n_bytes;
    *out = NULL;
    if (h->kv_per_position == 0) return PI_OK;
    if (!size_mul(h->kv_per_position, (size_t)n_ctx, &n_bytes))
        return error_set(err, PI_ERR_NOMEM, "out of memory: KV cache: too large for the GPU");
    return h->b->alloc(h->d, n_bytes, "the KV cache", out, err);
}

void hybrid_kv_destroy(hybrid *h, void *kv) {
    if (kv) h->b->free(h->d, kv);
}

static uint8_t *kv_rows(const hybrid *h, const engine_session *s, int layer, bool values,
                        size_t *row) {
    for (int i = 0; i < h->plan->n_gpu_steps; i++) {
        if (h->plan->gpu_steps[i].op != OP_ROPE_STORE || h->plan->gpu_steps[i].layer != layer)
            continue;
        const gpu_kv_layout *kv = &h->steps[i].kv;
        *row = values ? kv->v_row : kv->k_row;
        return (uint8_t *)s->device_kv +
               (size_t)s->kv.n_ctx * (values ? kv->v_offset : kv->k_offset);
    }
    *row = 0;
    return NULL;
}

pi_status hybrid_kv_read(hybrid *h, const engine_session *s, int layer, bool values, int64_t first,
                         int64_t n, void *out, pi_error *err) {
    size_t row;
    const uint8_t *from = kv_rows(h, s, layer, values, &row);
    h->b->download(h->stream, out, from + (size_t)first * row, (size_t)n * row);
    return h->b->stream_sync(h->stream, err);
}

pi_status hybrid_kv_write(hybrid *h, engine_session *s, int layer, bool values, int64_t first,
                          int64_t n, const void *from, pi_error *err) {
    size_t row;
    uint8_t *to = kv_rows(h, s, layer, values, &row);
    h->b->upload(h->stream, to + (size_t)first * row, from, (size_t)n * row);
    return h->b->stream_sync(h->stream, err);
}

pi_status hybrid_kv_copy(hybrid *h, engine_session *to, const engine_session *from, int64_t n,
                         pi_error *err) {
    for (int layer = 0; layer < h->model->hp.n_layer; layer++) {
        for (int values = 0; values < 2; values++) {
            size_t row;
            uint8_t *there = kv_rows(h, to, layer, values, &row);
            const uint8_t *here = kv_rows(h, from, layer, values, &row);
            if (row) h->b->copy(h->stream, there, here, (size_t)n * row);
        }
    }
    return h->b->stream_sync(h->stream, err);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

static hybrid_shape shape_of(const engine_context *c) {
    int64_t longest = 0;
    for (int i = 0; i < c->pass.n_tokens; i++)
        if (c->positions[i] + 1 > longest) longest = c->positions[i] + 1;
    bool few = c->pass.n_tokens <= GPU_MAX_COLS;
    return (hybrid_shape){.n_cols = c->pass.n_tokens,
                          .n_splits = few ? gpu_attention_splits(longest) : 1,
                          .few = few};
}

static void write_header(hybrid *h, const engine_context *c) {
    hybrid_header *to = h->header_host.host;
    to->epoch = ++h->epoch;
    for (int i = 0; i < c->pass.n_tokens; i++) {
        const engine_session *s = c->item_of_row[i]->session;
        to->columns[i] = (gpu_column){.kv = s->device_kv,
                                      .n_ctx = s->kv.n_ctx,
                                      .token = c->tokens[i],
                                      .pos = (int32_t)c->positions[i]};
    }
    h->b->upload(h->stream, h->header, to, header_bytes(h, c->pass.n_tokens));
}

/* The head's two steps are enqueued when it is known whose logits are wanted. */
static int end_of_layers(const hybrid *h) {
    return h->plan->n_gpu_steps - (h->plan->head == SIDE_GPU ? 2 : 0);
}

static void enqueue_all(hybrid *h, const hybrid_shape *shape) {
    hybrid_enqueue_start(h, shape);
    hybrid_mark_start(h);
    for (int i = 0; i < end_of_layers(h); i++) {
        hybrid_enqueue_step(h, i, shape);
        hybrid_mark_step(h, i, false);
    }
}

/* Steps up to the next RECEIVE whose message is not there yet; it is the processor's SEND that
 * comes here for it. */
static void enqueue_segment(hybrid *h, const hybrid_shape *shape) {
    bool first = true;
    hybrid_mark_start(h);
    for (; h->next_step < end_of_layers(h); h->next_step++) {
        const plan_step *s = &h->plan->gpu_steps[h->next_step];
        bool stream = s->cold && h->streaming;
        if (stream && s->op != OP_RECEIVE) continue;
        if (s->op == OP_RECEIVE && !stream && !first) break;
        if (stream)
            hybrid_stream_cold(h, s->layer, shape->n_cols);
        else
            hybrid_enqueue_step(h, h->next_step, shape);
        hybrid_mark_step(h, h->next_step, stream);
        first = first && stream;
    }
    h->b->event_record(h->stream, h->ended);
}

/* A pass of few tokens, recorded when it is not yet; NULL when it cannot be. */
static gpu_program *program_for(hybrid *h, const hybrid_shape *shape) {
    int bucket = 0;
    while (1 << bucket < shape->n_splits) bucket++;
    hybrid_programs *all = hybrid_is_marked(h) ? hybrid_marked_programs(h) : &h->programs;
    gpu_program **program = &all->of[shape->n_cols - 1][bucket];
    if (!*program && h->b->record_begin(h->stream, NULL) == PI_OK) {
        enqueue_all(h, shape);
        if (h->b->record_end(h->stream, program, NULL) != PI_OK) *program = NULL;
    }
    return *program;
}

void hybrid_record(hybrid *h, const engine_context *c) {
    const hybrid_shape shape = shape_of(c);
    if (shape.few) program_for(h, &shape);
}

static bool launch(hybrid *h, const hybrid_shape *shape) {
    gpu_program *program = program_for(h, shape);
    if (!program) return false;
    hybrid_mark_program(h, end_of_layers(h));
    h->b->program_launch(h->stream, program);
    h->b->event_record(h->stream, h->ended);
    return true;
}

void hybrid_begin(hybrid *h, engine_context *c) {
    const hybrid_shape shape = shape_of(c);
    h->streaming = !shape.few && shape.n_cols >= h->stream_from;
    write_header(h, c);
    h->next_step = end_of_layers(h);
    if (shape.few && launch(h, &shape)) return;
    /* The first step is a RECEIVE: what the GPU begins with comes from the processor. */
    h->next_step = 0;
    hybrid_enqueue_start(h, &shape);
}

static pi_status download_logits(hybrid *h, engine_context *c, pi_error *err) {
    int64_t n_vocab = h->model->hp.n_vocab, ld = h->plan->gpu_width[BUF_LOGITS];
    const float *from = h->logits_host.host;
    float *to = c->buf[BUF_LOGITS] + c->pass.first_logits_row * n_vocab;
    for (int done = 0; done < c->pass.n_out;) {
        /* rows that follow each other in X */
        int n = 1, row = c->out_rows[done];
        while (n < HYBRID_LOGIT_ROWS && done + n < c->pass.n_out &&
               c->out_rows[done + n] == row + n)
            n++;
        hybrid_mark_start(h);
        hybrid_enqueue_head(h, row, n);
        hybrid_mark_step(h, h->plan->n_gpu_steps - 1, false);
        h->b->download(h->stream, h->logits_host.host, h->buf[BUF_LOGITS],
                       (size_t)(n * ld) * sizeof *to);
        pi_status status = h->b->stream_sync(h->stream, err);
        if (status != PI_OK) return status;
        for (int i = 0; i < n; i++)
            memcpy(to + (done + i) * n_vocab, from + i * ld, (size_t)n_vocab * sizeof *to);
        done += n;
    }
    return PI_OK;
}

static pi_status finish(hybrid *h, engine_context *c, pi_error *err) {
    pi_status status = PI_OK;
    if (h->plan->head == SIDE_GPU) status = download_logits(h, c, err);
    h->b->download(h->stream, h->counts_host.host, h->count, hybrid_counts(h) * sizeof *h->count);
    if (status == PI_OK) status = h->b->stream_sync(h->stream, err);
    h->counted = status == PI_OK && c->pass.n_tokens <= GPU_MAX_COLS;
    return status;
}

pi_status hybrid_end(hybrid *h, engine_context *c, bool failed, pi_error *err) {
    pi_status status = failed ? h->b->status(h->d, err) : finish(h, c, err);
    if (!failed && status == PI_OK) return PI_OK;
    /* A kernel that polls for a flag, and whatever waits behind it, is let go. */
    h->b->release(h->d);
    h->b->stream_sync(h->stream, NULL);
    pi_status after = h->b->reset(h->d, status == PI_OK ? err : NULL);
    return status == PI_OK ? after : status;
}

bool hybrid_is_alive(const hybrid *h) {
    return h->b->status(h->d, NULL) == PI_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

static uint8_t *host_flag(const hybrid *h, plan_side sender, int exchange) {
    return (uint8_t *)h->flags[sender].host + (size_t)exchange * GPU_FLAG_BYTES;
}

bool hybrid_wait(hybrid *h, int exchange) {
    const uint8_t *flag = host_flag(h, SIDE_GPU, exchange);
    double start = 0;
    for (int i = 1; gpu_flag_get(flag) < h->epoch; i++) {
        if (i % POLLS_AT_ONCE) {
            pool_pause();
            continue;
        }
        double now = clock_seconds();
        if (start == 0) start = now;
        /* Asking for the event is what makes a device say that a kernel failed. */
        bool over = h->b->event_done(h->ended) || h->b->status(h->d, NULL) != PI_OK ||
                    now - start > WAIT_SECONDS;
        if (over) return gpu_flag_get(flag) >= h->epoch;
        pool_yield();
    }
    return true;
}

const float *hybrid_received(const hybrid *h) {
    return h->message_x[SIDE_GPU].host;
}

float *hybrid_outgoing(const hybrid *h) {
    return h->message_x[SIDE_CPU].host;
}

void hybrid_raise(hybrid *h, engine_context *c, int exchange) {
    gpu_flag_raise(host_flag(h, SIDE_CPU, exchange), h->epoch);
    if (h->next_step >= end_of_layers(h)) return;
    const hybrid_shape shape = shape_of(c);
    enqueue_segment(h, &shape);
}

/* Candidates of column `col` in a message of n neurons per token. */
static uint32_t *bits_of(const hybrid *h, plan_side sender, int64_t n, int64_t col) {
    return (uint32_t *)h->message_bits[sender].host + col * plan_bits_words(n);
}

const uint32_t *hybrid_candidates(const hybrid *h, int layer, int64_t col) {
    return bits_of(h, SIDE_GPU, h->model->layers[layer].hp.n_ff, col);
}

uint32_t *hybrid_chosen(const hybrid *h, int layer, int64_t col) {
    return bits_of(h, SIDE_CPU, h->plan->gpu_ffn[layer].n_ff, col);
}

int hybrid_bad_step(const hybrid *h) {
    const int32_t *count = h->counts_host.host;
    int32_t mark = count[hybrid_counts(h) - 1];
    return mark ? h->plan->n_gpu_steps - mark : -1;
}

/* ---- what was read --------------------------------------------------------------------------- */

/* 0 for steps that always read all of their weights. */
static uint64_t bytes_by_need(const hybrid *h, const plan_step *s) {
    if (s->op != OP_FFN_NEURONS && s->op != OP_FFN_DOWN) return 0;
    const plan_ffn *f = s->ffn;
    if (!hybrid_by_neuron(f->neurons, h->counted)) return s->weight_bytes;
    const int32_t *count = h->counts_host.host, *read = count + h->model->hp.n_layer;
    if (s->op == OP_FFN_DOWN) return (uint64_t)read[2 * s->layer + 1] * f->down.row_size;
    uint64_t rows = (uint64_t)(f->mode == FFN_PREDICT ? count[s->layer] : f->n_ff);
    uint64_t sum = rows * s->matrix[0].row_size;
    if (s->n_matrices > 1) sum += (uint64_t)read[2 * s->layer] * s->matrix[1].row_size;
    return sum;
}

uint64_t hybrid_step_bytes(const hybrid *h, int step) {
    const plan_step *s = &h->plan->gpu_steps[step];
    bool by_need = s->op == OP_FFN_NEURONS || s->op == OP_FFN_DOWN;
    return by_need ? bytes_by_need(h, s) : s->weight_bytes;
}

uint64_t hybrid_bytes_by_need(const hybrid *h) {
    uint64_t sum = 0;
    for (int i = 0; i < h->plan->n_steps && h->streaming; i++) {
        const plan_step *s = &h->plan->steps[i];
        if (s->cold && (s->op == OP_FFN_NEURONS || s->op == OP_FFN_DOWN)) sum += s->weight_bytes;
    }
    for (int i = 0; i < h->plan->n_gpu_steps; i++) sum += bytes_by_need(h, &h->plan->gpu_steps[i]);
    return sum;
}

bool hybrid_streams_cold(const hybrid *h) {
    return h->streaming;
}
