/* gpu_exec.c: making the GPU's side of a context, and running its part of a ubatch. */
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

static pi_status alloc_floats(gpu_exec *g, int64_t n, const char *what, float **out,
                              pi_error *err) {
    void *p;
    pi_status status = gpu_exec_alloc(g, (size_t)n * sizeof **out, what, &p, err);
    *out = p;
    return status;
}

static pi_status alloc_vectors(gpu_exec *g, pi_error *err) {
    const plan *p = g->plan;
    pi_status status = PI_OK;
    for (int b = 0; b < BUF_COUNT && status == PI_OK; b++) {
        int64_t rows = b == BUF_LOGITS ? GPU_EXEC_LOGIT_ROWS : g->n_batch;
        status = alloc_floats(g, rows * p->gpu_width[b], "working buffers", &g->buf[b], err);
    }
    for (int i = 0; i < PLAN_SLOTS && status == PI_OK; i++) {
        const plan_slot *slot = &p->slots[SIDE_GPU][i];
        if (!(slot->kinds & (1u << CPU_ACT_Q8))) continue;
        int64_t n = (slot->width + CPU_ACT_GROUP - 1) / CPU_ACT_GROUP * CPU_ACT_GROUP;
        status = gpu_exec_alloc(g, (size_t)g->n_batch * gpu_q8_bytes(n), "quantized vectors",
                                &g->q8[i], err);
    }
    return status;
}

/* Inputs of products of many columns; a layer's scales make them of few ones too. */
static pi_status alloc_halves(gpu_exec *g, pi_error *err) {
    int64_t n_embd = g->model->hp.n_embd;
    int64_t longest = n_embd > GPU_EXEC_TILE_ROWS ? n_embd : GPU_EXEC_TILE_ROWS;
    for (int i = 0; i < g->plan->n_gpu_steps; i++) {
        const plan_step *s = &g->plan->gpu_steps[i];
        for (int k = 0; k < s->n_matrices; k++)
            if (s->matrix[k].w.n_in > longest) longest = s->matrix[k].w.n_in;
        if (s->op == OP_FFN_DOWN && s->ffn->n_ff > longest) longest = s->ffn->n_ff;
        if (s->op == OP_SELECT && s->ffn->fc2.w.n_in > longest) longest = s->ffn->fc2.w.n_in;
    }
    return gpu_exec_alloc(g, gpu_matmul_scratch(longest, g->n_batch), "prefill matmuls", &g->halves,
                          err);
}

static pi_status alloc_attention(gpu_exec *g, pi_error *err) {
    const model_hparams *hp = &g->model->hp;
    int64_t half = g->model->hp.rope == ROPE_NONE ? 0 : hp->n_rot / 2;
    const char *what = "attention buffers";
    size_t partial = gpu_attention_partial(GPU_MAX_COLS, hp->n_head, GPU_ATTN_SPLITS, hp->head_dim);
    pi_status status = alloc_floats(g, half, what, &g->inv_freq, err);
    if (status == PI_OK) status = alloc_floats(g, 2 * half * g->n_batch, what, &g->angles, err);
    if (status == PI_OK) status = alloc_floats(g, (int64_t)partial, what, &g->attn_partial, err);
    return status;
}

static pi_status alloc_neurons(gpu_exec *g, pi_error *err) {
    int64_t most = 0, n_layer = g->model->hp.n_layer;
    bool rows = false;
    void *p = NULL;
    for (int i = 0; i < g->model->hp.n_layer; i++) {
        const plan_ffn *f = &g->plan->gpu_ffn[i];
        if (f->n_ff > most) most = f->n_ff;
        rows = rows || f->down.w.data;
    }
    size_t partial = rows ? gpu_down_partial(g->model->hp.n_embd, GPU_MAX_COLS) : 0;
    const char *what = "neuron lists";
    pi_status status = alloc_floats(g, (int64_t)partial, what, &g->down_partial, err);
    if (status == PI_OK) status = gpu_exec_alloc(g, (size_t)most * sizeof *g->list, what, &p, err);
    g->list = p;
    if (status == PI_OK)
        status = gpu_exec_alloc(g, gpu_exec_counts(g) * sizeof *g->count, what, &p, err);
    g->count = p;
    if (p) g->read = g->count + n_layer;
    if (p) g->bad = g->read + 2 * n_layer;
    int64_t words = g->plan->bits_words * g->n_batch;
    if (status == PI_OK) status = gpu_exec_alloc(g, (size_t)words * sizeof *g->bits, what, &p, err);
    g->bits = p;
    return status;
}

static size_t header_bytes(const gpu_exec *g, int n_cols) {
    return sizeof *g->header + (size_t)n_cols * sizeof g->header->columns[0];
}

static pi_status alloc_scratch(gpu_exec *g, pi_error *err) {
    void *p = NULL;
    pi_status status = gpu_exec_alloc(g, header_bytes(g, g->n_batch), "columns", &p, err);
    g->header = p;
    if (status == PI_OK)
        status = gpu_exec_alloc(g, (size_t)GPU_EXEC_STAGES * GPU_EXEC_STAGE_BYTES, "copies", &p,
                                err);
    g->stage = p;
    if (status == PI_OK) status = alloc_vectors(g, err);
    if (status == PI_OK) status = alloc_halves(g, err);
    if (status == PI_OK) status = alloc_attention(g, err);
    if (status == PI_OK) status = alloc_neurons(g, err);
    return status;
}

/* ---- pinned memory --------------------------------------------------------------------------- */

static pi_status pin(gpu_exec *g, size_t n_bytes, gpu_pinned *out, pi_error *err) {
    return n_bytes ? g->b->host_alloc(g->d, n_bytes, out, err) : PI_OK;
}

static pi_status pin_all(gpu_exec *g, pi_error *err) {
    const model_hparams *hp = &g->model->hp;
    size_t n_batch = (size_t)g->n_batch;
    bool head = g->plan->head == SIDE_GPU;
    pi_status status = pin(g, header_bytes(g, g->n_batch), &g->header_host, err);
    if (status == PI_OK)
        status = pin(g, gpu_exec_counts(g) * sizeof *g->count, &g->counts_host, err);
    if (status == PI_OK)
        status = pin(g, (size_t)GPU_EXEC_STAGES * GPU_EXEC_STAGE_BYTES, &g->stage_host, err);
    if (status == PI_OK && head)
        status = pin(g,
                     GPU_EXEC_LOGIT_ROWS * (size_t)g->plan->gpu_width[BUF_LOGITS] * sizeof(float),
                     &g->logits_host, err);
    for (int side = 0; side < PLAN_SIDES && status == PI_OK; side++) {
        size_t n = (size_t)g->plan->n_exchanges[side];
        if (n == 0) continue;
        status = pin(g, n * GPU_FLAG_BYTES, &g->flags[side], err);
        if (status == PI_OK)
            status = pin(g, n_batch * (size_t)hp->n_embd * sizeof(float), &g->message_x[side], err);
        if (status == PI_OK)
            status = pin(g, n_batch * (size_t)g->plan->bits_words * sizeof(uint32_t),
                         &g->message_bits[side], err);
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

static void describe(gpu_exec *g, const engine_context *c) {
    *g = (gpu_exec){.plan = c->plan,
                    .model = c->model,
                    .type_k = c->type_k,
                    .type_v = c->type_v,
                    .n_batch = c->n_batch,
                    .precise = can_jump(c->plan),
                    .angle_scale = c->angle_scale};
}

/* Weights and the rest of device memory, in `out` what they take. */
static pi_status fill(gpu_exec *g, engine_prompts prompts, engine_gpu_bytes *out, pi_error *err) {
    size_t n_steps = (size_t)g->plan->n_gpu_steps;
    g->steps = mem_calloc(n_steps ? n_steps : 1, sizeof *g->steps);
    g->cold = mem_calloc((size_t)g->model->hp.n_layer, sizeof *g->cold);
    if (!g->steps || !g->cold) return error_nomem(err, n_steps * sizeof *g->steps, "GPU steps");
    pi_status status = alloc_scratch(g, err);
    if (status == PI_OK && prompts != ENGINE_PROMPTS_SPLIT)
        status = gpu_exec_prefill_create(g, err);
    out->scratch = g->n_bytes;
    g->n_bytes = 0;
    if (status == PI_OK) status = gpu_exec_upload(g, err);
    out->weights = g->n_bytes;
    out->kv_per_position = g->kv_per_position;
    return status;
}

pi_status gpu_exec_size(const engine_context *c, engine_gpu_bytes *out, pi_error *err) {
    gpu_exec g;
    describe(&g, c);
    pi_status status = fill(&g, c->options.prompts, out, err);
    mem_free(g.cold);
    mem_free(g.steps);
    return status;
}

static pi_status make_streams(gpu_exec *g, pi_error *err) {
    pi_status status = g->b->stream_create(g->d, &g->stream, err);
    for (int i = 0; i < GPU_EXEC_STAGES && status == PI_OK; i++) {
        status = g->b->event_create(g->d, &g->staged[i], err);
        if (status == PI_OK) g->b->event_record(g->stream, g->staged[i]);
    }
    if (status == PI_OK) status = g->b->event_create(g->d, &g->ended, err);
    return status;
}

/* What is counted is what is taken: where a device gives memory away in large pieces only, all of
 * it is one. */
static pi_status reserve(gpu_exec *g, const engine_context *c, pi_error *err) {
    engine_gpu_bytes bytes;
    pi_status status = gpu_exec_size(c, &bytes, err);
    return status == PI_OK ? gpu_exec_take_slab(g, bytes.scratch + bytes.weights, err) : status;
}

pi_status gpu_exec_create(engine_context *c, const engine_options *options, gpu_exec **out,
                          pi_error *err) {
    engine_gpu_bytes bytes;
    enum { BLOCKS_PER_STEP = 16, OTHER_BLOCKS = 32 }; /* more than any step has operands */
    gpu_exec *g = mem_calloc(1, sizeof *g);
    *out = g;
    if (!g) return error_nomem(err, sizeof *g, "GPU state");
    describe(g, c);
    g->b = options->gpu;
    g->d = options->device;
    g->max_blocks = c->plan->n_gpu_steps * BLOCKS_PER_STEP + OTHER_BLOCKS +
                    c->model->hp.n_layer * PLAN_MAX_GROUP; /* biases of cold neurons */
    g->blocks = mem_calloc((size_t)g->max_blocks, sizeof *g->blocks);
    if (!g->blocks) return error_nomem(err, (size_t)g->max_blocks * sizeof *g->blocks, "blocks");
    pi_status status = make_streams(g, err);
    if (status == PI_OK) status = pin_all(g, err);
    if (status == PI_OK) status = reserve(g, c, err);
    if (status == PI_OK) status = fill(g, options->prompts, &bytes, err);
    if (status == PI_OK && g->inv_freq) {
        g->b->upload(g->stream, g->inv_freq, c->inv_freq,
                     (size_t)(g->model->hp.n_rot / 2) * sizeof(float));
        status = g->b->stream_sync(g->stream, err);
    }
    if (status == PI_OK) gpu_exec_prefill_choose(g, c, options->prompts);
    return status;
}

void gpu_exec_programs_free(gpu_exec *g, gpu_exec_programs *p) {
    for (int i = 0; i < GPU_MAX_COLS; i++)
        for (int k = 0; k < GPU_EXEC_SPLIT_BUCKETS; k++) g->b->program_free(p->of[i][k]);
    *p = (gpu_exec_programs){0};
}

void gpu_exec_destroy(gpu_exec *g) {
    if (!g) return;
    if (g->stream) g->b->stream_destroy(g->stream); /* waits for what uses all the rest */
    gpu_exec_programs_free(g, &g->programs);
    for (int i = 0; i < GPU_EXEC_STAGES; i++)
        if (g->staged[i]) g->b->event_destroy(g->staged[i]);
    if (g->ended) g->b->event_destroy(g->ended);
    for (int i = 0; i < g->n_blocks; i++) g->b->free(g->d, g->blocks[i]);
    gpu_pinned *pinned[] = {&g->header_host,
                            &g->counts_host,
                            &g->logits_host,
                            &g->stage_host,
                            &g->message_x[SIDE_CPU],
                            &g->message_x[SIDE_GPU],
                            &g->message_bits[SIDE_CPU],
                            &g->message_bits[SIDE_GPU],
                            &g->flags[SIDE_CPU],
                            &g->flags[SIDE_GPU]};
    for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++)
        if (pinned[i]->host) g->b->host_free(g->d, pinned[i]);
    mem_free(g->blocks);
    mem_free(g->cold);
    mem_free(g->steps);
    mem_free(g);
}

/* ---- sessions -------------------------------------------------------------------------------- */

pi_status gpu_exec_kv_create(gpu_exec *g, int64_t n_ctx, void **out, pi_error *err) {
    size_t n_bytes;
    *out = NULL;
    if (g->kv_per_position == 0) return PI_OK;
    if (!size_mul(g->kv_per_position, (size_t)n_ctx, &n_bytes))
        return error_set(err, PI_ERR_NOMEM, "out of GPU memory: KV cache: use a smaller context");
    return g->b->alloc(g->d, n_bytes, "the KV cache", out, err);
}

void gpu_exec_kv_destroy(gpu_exec *g, void *kv) {
    if (kv) g->b->free(g->d, kv);
}

static uint8_t *kv_rows(const gpu_exec *g, const engine_session *s, int layer, bool values,
                        size_t *row) {
    for (int i = 0; i < g->plan->n_gpu_steps; i++) {
        if (g->plan->gpu_steps[i].op != OP_ROPE_STORE || g->plan->gpu_steps[i].layer != layer)
            continue;
        const gpu_kv_layout *kv = &g->steps[i].kv;
        *row = values ? kv->v_row : kv->k_row;
        return (uint8_t *)s->device_kv +
               (size_t)s->kv.n_ctx * (values ? kv->v_offset : kv->k_offset);
    }
    *row = 0;
    return NULL;
}

pi_status gpu_exec_kv_read(gpu_exec *g, const engine_session *s, int layer, bool values,
                           int64_t first, int64_t n, void *out, pi_error *err) {
    size_t row;
    const uint8_t *from = kv_rows(g, s, layer, values, &row);
    g->b->download(g->stream, out, from + (size_t)first * row, (size_t)n * row);
    return g->b->stream_sync(g->stream, err);
}

pi_status gpu_exec_kv_write(gpu_exec *g, engine_session *s, int layer, bool values, int64_t first,
                            int64_t n, const void *from, pi_error *err) {
    size_t row;
    uint8_t *to = kv_rows(g, s, layer, values, &row);
    g->b->upload(g->stream, to + (size_t)first * row, from, (size_t)n * row);
    return g->b->stream_sync(g->stream, err);
}

pi_status gpu_exec_kv_copy(gpu_exec *g, engine_session *to, const engine_session *from, int64_t n,
                           pi_error *err) {
    for (int layer = 0; layer < g->model->hp.n_layer; layer++) {
        for (int values = 0; values < 2; values++) {
            size_t row;
            uint8_t *there = kv_rows(g, to, layer, values, &row);
            const uint8_t *here = kv_rows(g, from, layer, values, &row);
            if (row) g->b->copy(g->stream, there, here, (size_t)n * row);
        }
    }
    return g->b->stream_sync(g->stream, err);
}

/* ---- a ubatch ----------------------------------------------------------------------------------
 */

static gpu_exec_shape shape_of(const engine_context *c) {
    int64_t longest = 0;
    for (int i = 0; i < c->ubatch.n_tokens; i++)
        if (c->positions[i] + 1 > longest) longest = c->positions[i] + 1;
    plan_form form = plan_form_of(c->plan, SIDE_GPU, c->ubatch.n_tokens);
    return (gpu_exec_shape){.n_cols = c->ubatch.n_tokens,
                            .n_splits = form != FORM_MANY ? gpu_attention_splits(longest) : 1,
                            .form = form};
}

static void write_header(gpu_exec *g, const engine_context *c) {
    gpu_exec_header *to = g->header_host.host;
    to->epoch = ++g->epoch;
    for (int i = 0; i < c->ubatch.n_tokens; i++) {
        const engine_session *s = c->item_of_row[i]->session;
        to->columns[i] = (gpu_column){.kv = s->device_kv,
                                      .n_ctx = s->kv.n_ctx,
                                      .token = c->tokens[i],
                                      .pos = (int32_t)c->positions[i]};
    }
    g->b->upload(g->stream, g->header, to, header_bytes(g, c->ubatch.n_tokens));
}

/* The head's two steps are enqueued when it is known whose logits are wanted. */
static int end_of_layers(const gpu_exec *g) {
    return g->plan->n_gpu_steps - (g->plan->head == SIDE_GPU ? 2 : 0);
}

static void enqueue_all(gpu_exec *g, const gpu_exec_shape *shape) {
    gpu_exec_enqueue_start(g, shape);
    gpu_exec_mark_start(g);
    for (int i = 0; i < end_of_layers(g); i++) {
        gpu_exec_enqueue_step(g, i, shape);
        gpu_exec_mark_step(g, i, false);
    }
}

/* Steps up to the next RECEIVE whose message is not there yet; it is the CPU's SEND that
 * comes here for it. */
static void enqueue_segment(gpu_exec *g, const gpu_exec_shape *shape) {
    bool first = true;
    gpu_exec_mark_start(g);
    for (; g->next_step < end_of_layers(g); g->next_step++) {
        const plan_step *s = &g->plan->gpu_steps[g->next_step];
        bool stream = s->cold && g->streaming;
        if (stream && s->op != OP_RECEIVE) continue;
        if (s->op == OP_RECEIVE && !stream && !first) break;
        if (stream)
            gpu_exec_stream_cold(g, s->layer, shape->n_cols);
        else
            gpu_exec_enqueue_step(g, g->next_step, shape);
        gpu_exec_mark_step(g, g->next_step, stream);
        first = first && stream;
    }
    g->b->event_record(g->stream, g->ended);
}

/* A ubatch of few tokens, recorded when it is not yet; NULL when it cannot be. */
static gpu_program *program_for(gpu_exec *g, const gpu_exec_shape *shape) {
    int bucket = 0;
    while (1 << bucket < shape->n_splits) bucket++;
    gpu_exec_programs *all = gpu_exec_is_marked(g) ? gpu_exec_marked_programs(g) : &g->programs;
    gpu_program **program = &all->of[shape->n_cols - 1][bucket];
    if (!*program && g->b->record_begin(g->stream, NULL) == PI_OK) {
        enqueue_all(g, shape);
        if (g->b->record_end(g->stream, program, NULL) != PI_OK) *program = NULL;
    }
    return *program;
}

void gpu_exec_record(gpu_exec *g, const engine_context *c) {
    const gpu_exec_shape shape = shape_of(c);
    if (shape.form != FORM_MANY) program_for(g, &shape);
}

static bool launch(gpu_exec *g, const gpu_exec_shape *shape) {
    gpu_program *program = program_for(g, shape);
    if (!program) return false;
    gpu_exec_mark_program(g, end_of_layers(g));
    g->b->program_launch(g->stream, program);
    g->b->event_record(g->stream, g->ended);
    return true;
}

void gpu_exec_begin(gpu_exec *g, engine_context *c) {
    const gpu_exec_shape shape = shape_of(c);
    c->ubatch.streaming = shape.form == FORM_MANY && shape.n_cols >= g->stream_from;
    g->streaming = c->ubatch.streaming;
    write_header(g, c);
    g->next_step = end_of_layers(g);
    if (shape.form != FORM_MANY && launch(g, &shape)) return;
    /* The first step is a RECEIVE: what the GPU begins with comes from the CPU. */
    g->next_step = 0;
    gpu_exec_enqueue_start(g, &shape);
}

static pi_status download_logits(gpu_exec *g, engine_context *c, pi_error *err) {
    int64_t n_vocab = g->model->hp.n_vocab, ld = g->plan->gpu_width[BUF_LOGITS];
    const float *from = g->logits_host.host;
    float *to = c->buf[BUF_LOGITS] + c->ubatch.first_logits_row * n_vocab;
    for (int done = 0; done < c->ubatch.n_out;) {
        /* rows that follow each other in X */
        int n = 1, row = c->out_rows[done];
        while (n < GPU_EXEC_LOGIT_ROWS && done + n < c->ubatch.n_out &&
               c->out_rows[done + n] == row + n)
            n++;
        gpu_exec_mark_start(g);
        gpu_exec_enqueue_head(g, row, n);
        gpu_exec_mark_step(g, g->plan->n_gpu_steps - 1, false);
        g->b->download(g->stream, g->logits_host.host, g->buf[BUF_LOGITS],
                       (size_t)(n * ld) * sizeof *to);
        pi_status status = g->b->stream_sync(g->stream, err);
        if (status != PI_OK) return status;
        for (int i = 0; i < n; i++)
            memcpy(to + (done + i) * n_vocab, from + i * ld, (size_t)n_vocab * sizeof *to);
        done += n;
    }
    return PI_OK;
}

static pi_status finish(gpu_exec *g, engine_context *c, pi_error *err) {
    pi_status status = PI_OK;
    if (g->plan->head == SIDE_GPU) status = download_logits(g, c, err);
    g->b->download(g->stream, g->counts_host.host, g->count, gpu_exec_counts(g) * sizeof *g->count);
    if (status == PI_OK) status = g->b->stream_sync(g->stream, err);
    g->counted = status == PI_OK &&
                 plan_form_of(c->plan, SIDE_GPU, c->ubatch.n_tokens) != FORM_MANY;
    return status;
}

pi_status gpu_exec_end(gpu_exec *g, engine_context *c, bool failed, pi_error *err) {
    pi_status status = failed ? g->b->status(g->d, err) : finish(g, c, err);
    if (!failed && status == PI_OK) return PI_OK;
    /* A kernel that polls for a flag, and whatever waits behind it, is let go. */
    g->b->release(g->d);
    g->b->stream_sync(g->stream, NULL);
    pi_status after = g->b->reset(g->d, status == PI_OK ? err : NULL);
    return status == PI_OK ? after : status;
}

bool gpu_exec_is_alive(const gpu_exec *g) {
    return g->b->status(g->d, NULL) == PI_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

static uint8_t *host_flag(const gpu_exec *g, plan_side sender, int exchange) {
    return (uint8_t *)g->flags[sender].host + (size_t)exchange * GPU_FLAG_BYTES;
}

bool gpu_exec_wait(gpu_exec *g, int exchange) {
    const uint8_t *flag = host_flag(g, SIDE_GPU, exchange);
    double start = 0;
    for (int i = 1; gpu_flag_get(flag) < g->epoch; i++) {
        if (i % POLLS_AT_ONCE) {
            pool_pause();
            continue;
        }
        double now = clock_seconds();
        if (start == 0) start = now;
        /* Asking for the event is what makes a device say that a kernel failed. */
        bool over = g->b->event_done(g->ended) || g->b->status(g->d, NULL) != PI_OK ||
                    now - start > WAIT_SECONDS;
        if (over) return gpu_flag_get(flag) >= g->epoch;
        pool_yield();
    }
    return true;
}

const float *gpu_exec_received(const gpu_exec *g) {
    return g->message_x[SIDE_GPU].host;
}

float *gpu_exec_outgoing(const gpu_exec *g) {
    return g->message_x[SIDE_CPU].host;
}

void gpu_exec_raise(gpu_exec *g, engine_context *c, int exchange) {
    gpu_flag_raise(host_flag(g, SIDE_CPU, exchange), g->epoch);
    if (g->next_step >= end_of_layers(g)) return;
    const gpu_exec_shape shape = shape_of(c);
    enqueue_segment(g, &shape);
}

/* Candidates of column `col` in a message of n neurons per token. */
static uint32_t *bits_of(const gpu_exec *g, plan_side sender, int64_t n, int64_t col) {
    return (uint32_t *)g->message_bits[sender].host + col * plan_bits_words(n);
}

const uint32_t *gpu_exec_received_bits(const gpu_exec *g, int layer, int64_t col) {
    return bits_of(g, SIDE_GPU, g->model->layers[layer].hp.n_ff, col);
}

uint32_t *gpu_exec_outgoing_bits(const gpu_exec *g, int layer, int64_t col) {
    return bits_of(g, SIDE_CPU, g->plan->gpu_ffn[layer].n_ff, col);
}

int gpu_exec_bad_step(const gpu_exec *g) {
    const int32_t *count = g->counts_host.host;
    int32_t mark = count[gpu_exec_counts(g) - 1];
    return mark ? g->plan->n_gpu_steps - mark : -1;
}

/* ---- what was read --------------------------------------------------------------------------- */

/* 0 for steps that always read all of their weights. */
static uint64_t sparse_bytes(const gpu_exec *g, const plan_step *s) {
    if (s->op != OP_FFN_SPARSE && s->op != OP_FFN_DOWN) return 0;
    const plan_ffn *f = s->ffn;
    if (!g->counted || f->sparse->kernel[FORM_FEW] == KERNEL_MASKED) return s->weight_bytes;
    const int32_t *count = g->counts_host.host, *read = count + g->model->hp.n_layer;
    if (s->op == OP_FFN_DOWN) return (uint64_t)read[2 * s->layer + 1] * f->down.row_size;
    uint64_t rows = (uint64_t)(f->selection != SELECT_ALL ? count[s->layer] : f->n_ff);
    uint64_t sum = rows * s->matrix[0].row_size;
    if (s->n_matrices > 1) sum += (uint64_t)read[2 * s->layer] * s->matrix[1].row_size;
    return sum;
}

uint64_t gpu_exec_step_bytes(const gpu_exec *g, int step) {
    const plan_step *s = &g->plan->gpu_steps[step];
    bool by_need = s->op == OP_FFN_SPARSE || s->op == OP_FFN_DOWN;
    return by_need ? sparse_bytes(g, s) : s->weight_bytes;
}

uint64_t gpu_exec_sparse_bytes(const gpu_exec *g) {
    uint64_t sum = 0;
    for (int i = 0; i < g->plan->n_steps && g->streaming; i++) {
        const plan_step *s = &g->plan->steps[i];
        if (s->cold && (s->op == OP_FFN_SPARSE || s->op == OP_FFN_DOWN)) sum += s->weight_bytes;
    }
    for (int i = 0; i < g->plan->n_gpu_steps; i++) sum += sparse_bytes(g, &g->plan->gpu_steps[i]);
    return sum;
}
