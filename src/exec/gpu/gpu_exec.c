/* gpu_exec.c: creates the GPU's side of a context: its streams, device memory and pinned memory. */
#include "gpu_exec.h"

#include "adapt.h"
#include "gpu_exec_impl.h"
#include "mem.h"

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
        bool of_pairs = b == BUF_EXPERT_GATE || b == BUF_EXPERT_OUT;
        int64_t rows = of_pairs ? (int64_t)g->n_batch * p->n_expert_used : g->n_batch;
        if (b == BUF_LOGITS) continue; /* alloc_results */
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

/* Matrix-vector products need int8 forms of the few pairs for which there are no tiles; tiles need
 * all pairs rounded. */
static pi_status alloc_experts(gpu_exec *g, pi_error *err) {
    const int n_expert = g->plan->n_expert, n_used = g->plan->n_expert_used;
    const int64_t width = g->plan->gpu_width[BUF_EXPERT_GATE];
    if (width == 0) return PI_OK;
    const bool tiles = gpu_exec_tiles_experts(g->n_batch, n_used, n_expert);
    int few = g->n_batch; /* tokens of the largest ubatch without tiles */
    while (few > 1 && gpu_exec_tiles_experts(few, n_used, n_expert)) few--;
    int64_t n_hidden = (width + CPU_ACT_GROUP - 1) / CPU_ACT_GROUP * CPU_ACT_GROUP;
    /* one token more: adjugate experts of a token may be fewer than its experts */
    size_t n_bytes = (size_t)(few + 1) * (size_t)n_used * gpu_q8_bytes(n_hidden);
    size_t rounded = gpu_matmul_columns(width, g->n_batch * n_used);
    if (tiles && rounded > n_bytes) n_bytes = rounded;
    pi_status status = gpu_exec_alloc(g, n_bytes, "inputs of experts", &g->expert_scratch, err);
    if (status != PI_OK || !tiles) return status;
    return gpu_exec_alloc(g, gpu_expert_lists_bytes(g->n_batch * n_used, n_expert),
                          "lists of experts", &g->expert_lists, err);
}

/* Inputs of tiled products; layers with scales have tiled products also for few columns. */
static pi_status alloc_halves(gpu_exec *g, pi_error *err) {
    int64_t n_embd = g->model->hp.n_embd;
    int64_t longest = n_embd > GPU_EXEC_TILE_ROWS ? n_embd : GPU_EXEC_TILE_ROWS;
    size_t groups = 0; /* inputs of heads */
    if (g->model->hp.n_expert_embd > longest) longest = g->model->hp.n_expert_embd;
    for (int i = 0; i < g->plan->n_gpu_steps; i++) {
        const plan_step *s = &g->plan->gpu_steps[i];
        const plan_ffn *f = plan_ffn_of(s);
        for (int k = 0; k < s->n_matrices; k++)
            if (s->matrix[k].w.n_in > longest) longest = s->matrix[k].w.n_in;
        if (s->op == OP_HEADS) {
            const cpu_mat *w = &s->matrix[0].w;
            const size_t n = gpu_heads_scratch(w->type, w->n_in, STEP_ARGS(s, heads)->n,
                                               GPU_MAX_COLS);
            if (n > groups) groups = n;
        }
        if (s->op == OP_FFN_DOWN && f->n_ff > longest) longest = f->n_ff;
        if (s->op == OP_SELECT && f->fc2.w.n_in > longest) longest = f->fc2.w.n_in;
    }
    const size_t products = gpu_matmul_scratch(longest, g->n_batch);
    return gpu_exec_alloc(g, groups > products ? groups : products, "prefill matmuls", &g->halves,
                          err);
}

int gpu_exec_rope_sets(const model *m) {
    if (m->hp.rope == ROPE_NONE || m->hp.n_rot < 2) return 0;
    return model_has_local_rope(m) ? ROPE_SETS : 1;
}

static pi_status alloc_attention(gpu_exec *g, pi_error *err) {
    const model_hparams *hp = &g->model->hp;
    int64_t half = hp->rope == ROPE_NONE ? 0 : hp->n_rot / 2;
    const char *what = "attention buffers";
    size_t partial = gpu_attention_partial(GPU_MAX_COLS, hp->n_head, GPU_ATTN_SPLITS, hp->head_dim);
    /* more columns have fewer parts */
    pi_status status = alloc_floats(g, (ROPE_SETS + 1) * half, what, &g->inv_freq, err);
    for (int set = 0; set < gpu_exec_rope_sets(g->model) && status == PI_OK; set++)
        status = alloc_floats(g, (int64_t)hp->n_rots[set] * g->n_batch, what, &g->angles[set], err);
    if (status == PI_OK) status = alloc_floats(g, (int64_t)partial, what, &g->attn_partial, err);
    return status;
}

static pi_status alloc_neurons(gpu_exec *g, pi_error *err) {
    int64_t most = 0;
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
        status = gpu_exec_alloc(g, gpu_exec_uses_bytes(g), "counts of experts", &p, err);
    if (g->plan->n_expert > 0) g->uses = p;
    int64_t words = g->plan->bits_words[gpu_exec_device(g)] * g->n_batch;
    if (status == PI_OK) status = gpu_exec_alloc(g, (size_t)words * sizeof *g->bits, what, &p, err);
    g->bits = p;
    return status;
}

/* Counters of a ubatch; the logits follow, so that one copy downloads both. */
static pi_status alloc_results(gpu_exec *g, pi_error *err) {
    void *p = NULL;
    const size_t arrivals = gpu_exec_arrivals(g) * sizeof *g->count;
    pi_status status = gpu_exec_alloc(g, arrivals + gpu_exec_results_bytes(g), "results", &p, err);
    if (status != PI_OK || !p) return status;
    g->parts_in = p;
    g->count = g->parts_in + gpu_exec_arrivals(g);
    g->read = g->count + g->model->hp.n_layer;
    g->bad = g->read + 2 * (int64_t)g->model->hp.n_layer;
    g->buf[BUF_LOGITS] = (float *)((uint8_t *)g->count + gpu_exec_counts_bytes(g));
    return PI_OK;
}

static pi_status alloc_scratch(gpu_exec *g, pi_error *err) {
    void *p = NULL;
    pi_status status = gpu_exec_alloc(g, gpu_exec_header_bytes(g->n_batch), "columns", &p, err);
    g->header = p;
    if (status == PI_OK)
        status = gpu_exec_alloc(g, (size_t)GPU_EXEC_STAGES * GPU_EXEC_STAGE_BYTES, "copies", &p,
                                err);
    g->stage = p;
    if (status == PI_OK) status = alloc_vectors(g, err);
    if (status == PI_OK) status = alloc_experts(g, err);
    if (status == PI_OK) status = alloc_halves(g, err);
    if (status == PI_OK) status = alloc_attention(g, err);
    if (status == PI_OK) status = alloc_neurons(g, err);
    if (status == PI_OK) status = alloc_results(g, err);
    return status;
}

/* ---- the message from the stage before ------------------------------------------------------- */

uint64_t gpu_exec_inbox_bytes(const model *m, int n_batch) {
    enum { ALIGN = 256 };
    size_t n = GPU_FLAG_BYTES + (size_t)n_batch * (size_t)plan_residual_width(m) * sizeof(float);
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* Bytes of the inbox that are in the device's memory. */
static size_t peer_bytes(const gpu_exec *g) {
    int from = plan_peer_of(g->plan);
    bool reached = from >= 0 && g->sides->peers[from] >> gpu_exec_device(g) & 1;
    return reached ? gpu_exec_inbox_bytes(g->model, g->n_batch) : 0;
}

/* If the sender does not reach the device after all, the inbox is in host memory. */
static pi_status make_inbox(gpu_exec *g, pi_error *err) {
    int from = plan_peer_of(g->plan);
    size_t n_bytes = peer_bytes(g);
    pi_status status = PI_ERR_UNSUPPORTED;
    if (from < 0) return PI_OK;
    if (n_bytes > 0)
        status = g->b->peer_alloc(g->sides->devices[from], g->d, n_bytes, "a message",
                                  &g->inbox.device, NULL);
    if (status == PI_OK)
        g->blocks[g->n_blocks++] = g->inbox.device;
    else
        status = g->b->host_alloc(g->d, gpu_exec_inbox_bytes(g->model, g->n_batch), &g->inbox, err);
    g->sides->gpus[from]->outbox = g->inbox;
    return status;
}

/* ---- pinned memory --------------------------------------------------------------------------- */

static pi_status pin(gpu_exec *g, size_t n_bytes, gpu_pinned *out, pi_error *err) {
    return n_bytes ? g->b->host_alloc(g->d, n_bytes, out, err) : PI_OK;
}

static pi_status pin_all(gpu_exec *g, pi_error *err) {
    size_t n_batch = (size_t)g->n_batch, width = (size_t)plan_residual_width(g->model);
    pi_status status = pin(g, gpu_exec_header_bytes(g->n_batch), &g->header_host, err);
    if (status == PI_OK) status = pin(g, gpu_exec_results_bytes(g), &g->results_host, err);
    if (status == PI_OK) status = pin(g, gpu_exec_uses_bytes(g), &g->uses_host, err);
    if (status == PI_OK)
        status = pin(g, (size_t)GPU_EXEC_STAGES * GPU_EXEC_STAGE_BYTES, &g->stage_host, err);
    if (status == PI_OK && g->plan->gpu_width[BUF_LAYER_EMBD] > 0)
        status = pin(g, n_batch * (size_t)g->plan->width[BUF_LAYER_EMBD] * sizeof(float),
                     &g->message_embd, err);
    for (int side = 0; side < PLAN_SIDES && status == PI_OK; side++) {
        size_t n = (size_t)g->plan->n_exchanges[side];
        if (n == 0) continue;
        status = pin(g, n * GPU_FLAG_BYTES, &g->flags[side], err);
        if (status == PI_OK)
            status = pin(g, n_batch * width * sizeof(float), &g->message_x[side], err);
        if (status == PI_OK)
            status = pin(
                g, n_batch * (size_t)g->plan->bits_words[gpu_exec_device(g)] * sizeof(uint32_t),
                &g->message_bits[side], err);
    }
    return status;
}

/* ---- creation -------------------------------------------------------------------------------- */

static void describe(gpu_exec *g, const gpu_sides *sides, int device) {
    *g = (gpu_exec){.sides = sides,
                    .plan = &g->part,
                    .model = sides->model,
                    .type_k = sides->type_k,
                    .type_v = sides->type_v,
                    .n_batch = sides->n_batch,
                    .paging = sides->paging,
                    .precise = sides->model->hp.activation == ACTIVATION_FATRELU ||
                               sides->plan->n_expert > 0,
                    .angle_scale = sides->rope->angle_scale};
    plan_of_device(sides->plan, device, &g->part);
    g->adapts = sides->adapts && adapt_applies(g->plan);
    for (int i = 0; i < g->model->hp.n_layer; i++) {
        const pi_mode mode = sides->plan->ffn[i].mode;
        g->precise = g->precise || mode == PI_MODE_PREDICT || mode == PI_MODE_THRESHOLD;
        g->moves = g->moves || (sides->moves && neurons_move(g->plan, i));
    }
}

/* Fills the device with weights and the rest; `out` gets the sizes. */
static pi_status fill(gpu_exec *g, gpu_exec_bytes *out, pi_error *err) {
    size_t n_steps = (size_t)g->plan->n_gpu_steps;
    g->steps = mem_calloc(n_steps ? n_steps : 1, sizeof *g->steps);
    g->cold = mem_calloc((size_t)g->model->hp.n_layer, sizeof *g->cold);
    if (!g->steps || !g->cold) return error_nomem(err, n_steps * sizeof *g->steps, "GPU steps");
    pi_status status = alloc_scratch(g, err);
    if (status == PI_OK && g->sides->prompts != GPU_PROMPTS_SPLIT)
        status = gpu_exec_prefill_create(g, err);
    if (status == PI_OK && g->adapts) status = gpu_exec_swap_create(g, err);
    if (status == PI_OK && g->moves) status = gpu_exec_moves_create(g, err);
    out->scratch = g->n_bytes;
    g->n_bytes = 0;
    if (status == PI_OK) status = gpu_exec_upload(g, err);
    out->weights = g->n_bytes;
    out->kv_per_position = g->kv_per_position;
    out->state = gpu_exec_kv_bytes(g, 0);
    return status;
}

pi_status gpu_exec_size(const gpu_sides *sides, int device, gpu_exec_bytes *out, pi_error *err) {
    gpu_exec g;
    describe(&g, sides, device);
    pi_status status = fill(&g, out, err);
    out->scratch += peer_bytes(&g);
    out->program_nodes = (uint64_t)gpu_exec_count_kernels(g.plan, INT32_MAX) * GPU_EXEC_PROGRAMS;
    if (status == PI_OK) gpu_exec_prefill_expect(&g, &out->prompt);
    mem_free(g.cold);
    mem_free(g.steps);
    return status;
}

pi_status gpu_exec_create(const gpu_sides *sides, int device, gpu_exec **out, pi_error *err) {
    gpu_exec_bytes bytes;
    enum { BLOCKS_PER_STEP = 16, OTHER_BLOCKS = 37 }; /* more than any step has operands */
    gpu_exec *g = mem_calloc(1, sizeof *g);
    *out = g;
    if (!g) return error_nomem(err, sizeof *g, "GPU state");
    describe(g, sides, device);
    g->b = sides->backend;
    g->d = sides->devices[device];
    g->late = g->b->submits_late();
    g->max_blocks = g->plan->n_gpu_steps * BLOCKS_PER_STEP + OTHER_BLOCKS +
                    sides->model->hp.n_layer * PLAN_MAX_GROUP; /* biases of cold neurons */
    g->blocks = mem_calloc((size_t)g->max_blocks, sizeof *g->blocks);
    if (!g->blocks) return error_nomem(err, (size_t)g->max_blocks * sizeof *g->blocks, "blocks");
    pi_status status = g->b->stream_create(g->d, &g->stream, err);
    for (int i = 0; i < GPU_EXEC_STAGES && status == PI_OK; i++) {
        status = g->b->event_create(g->d, &g->staged[i], err);
        if (status == PI_OK) g->b->event_record(g->stream, g->staged[i]);
    }
    if (status == PI_OK) status = g->b->event_create(g->d, &g->ended, err);
    if (status == PI_OK) status = g->b->event_create(g->d, &g->sent, err);
    if (status == PI_OK) status = g->b->stream_create(g->d, &g->side, err);
    if (status == PI_OK) status = pin_all(g, err);
    if (status == PI_OK) status = make_inbox(g, err);
    /* The budget counts allocations, so everything is one allocation if the device allocates in
     * large pages only. */
    if (status == PI_OK) status = gpu_exec_size(sides, device, &bytes, err);
    if (status == PI_OK)
        status = gpu_exec_take_slab(g, bytes.scratch + bytes.weights - peer_bytes(g), err);
    if (status == PI_OK) status = fill(g, &bytes, err);
    if (status == PI_OK && g->inv_freq) {
        g->b->upload(g->stream, g->inv_freq, sides->rope->inv_freq,
                     (size_t)(g->model->hp.n_rot / 2) * (ROPE_SETS + 1) * sizeof(float));
        status = g->b->stream_sync(g->stream, err);
    }
    if (status == PI_OK && g->uses) g->b->fill(g->stream, g->uses, 0, gpu_exec_uses_bytes(g));
    if (status == PI_OK) status = gpu_exec_prefill_choose(g, err);
    if (status == PI_OK) status = gpu_exec_probe(g, err);
    return status;
}

void gpu_exec_programs_free(gpu_exec *g, gpu_exec_programs *p) {
    for (int i = 0; i < p->n; i++) g->b->program_free(p->of[i].program);
    *p = (gpu_exec_programs){0};
}

void gpu_exec_destroy(gpu_exec *g) {
    if (!g) return;
    if (g->stream) g->b->stream_destroy(g->stream); /* waits for the work that uses the rest */
    gpu_exec_swap_free(g);
    gpu_exec_moves_free(g);
    gpu_exec_programs_free(g, &g->programs);
    for (size_t i = 0; i < g->pieces.n; i++) g->b->program_free(g->pieces.of[i].program);
    mem_free(g->pieces.of);
    for (int i = 0; i < GPU_EXEC_STAGES; i++)
        if (g->staged[i]) g->b->event_destroy(g->staged[i]);
    if (g->side) g->b->stream_destroy(g->side);
    gpu_exec_prefill_free(g);
    if (g->ended) g->b->event_destroy(g->ended);
    if (g->sent) g->b->event_destroy(g->sent);
    for (int i = 0; i < g->n_blocks; i++) g->b->free(g->d, g->blocks[i]);
    gpu_pinned *pinned[] = {&g->header_host,
                            &g->uses_host,
                            &g->results_host,
                            &g->stage_host,
                            &g->inbox,
                            &g->message_embd,
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
