/* step_count.c: what a decoded token takes besides reading weights: kernels of the GPU and barriers
 * of the CPU's threads, layer by layer. Placement is made with these counts.
 *
 * Kernels are counted by the code that enqueues steps, given a table of operations that count what
 * they would launch; tests/engine/test_engine_device.c compares with what a device launched. */
#include "gpu_exec_impl.h"
#include "mem.h"

/* ---- operations that count ------------------------------------------------------------------- */

/* The stream stands for the number. */
static void launch(gpu_stream *s, int32_t n) {
    *(int32_t *)(void *)s += n;
}

#define COUNT_ONE(name)                                                                            \
    static void count_##name(gpu_stream *s, const gpu_##name *a) {                                 \
        (void)a;                                                                                   \
        launch(s, 1);                                                                              \
    }
COUNT_ONE(quantize)
COUNT_ONE(norm)
COUNT_ONE(rope_angles)
COUNT_ONE(rope_store)
COUNT_ONE(heads)
COUNT_ONE(latent_store)
COUNT_ONE(conv)
COUNT_ONE(recur)
COUNT_ONE(gate)
COUNT_ONE(activate)
COUNT_ONE(sign_dot)
COUNT_ONE(select)
COUNT_ONE(top_k)
COUNT_ONE(add)
COUNT_ONE(mix)
COUNT_ONE(merge)
COUNT_ONE(softcap)
COUNT_ONE(route)
COUNT_ONE(expert_matvec)
COUNT_ONE(expert_down)
COUNT_ONE(expert_sum)
COUNT_ONE(publish)
COUNT_ONE(receive)

/* Side by side where they have the same type. */
static void count_matvec(gpu_stream *s, const gpu_matmul *a, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (i == 0 || a[i].w.type != a[i - 1].w.type) launch(s, 1);
}

static void count_ffn_in(gpu_stream *s, const gpu_ffn_in *a) {
    launch(s, a->gate.data && a->up.data && a->gate.type != a->up.type ? 2 : 1);
}

static void count_expert_in(gpu_stream *s, const gpu_expert_in *a) {
    launch(s, a->gate.data && a->gate.type != a->up.type ? 2 : 1);
}

/* Inputs are rounded first, where they are not. */
static void count_matmul(gpu_stream *s, const gpu_matmul *a) {
    launch(s, a->rounded || gpu_matmul_rounding(a->w.type, a->precise) == GPU_ROUND_NOT ? 1 : 2);
}

/* Heads that share groups of int8 are quantized apart; MLA's parts of a long context are merged. */
static void count_attention(gpu_stream *s, const gpu_attention *a) {
    launch(s, 1);
    if (a->sparse.size > 0 && a->q8) launch(s, 1);
    if (a->sparse.size > 0) return;
    if (a->n_splits > 1 && a->kv.v_row == 0) launch(s, 1);
    if (a->q8 && a->kv.v_dim % CPU_ACT_GROUP) launch(s, 1);
}

/* Scores, then the best of them. */
static void count_find_blocks(gpu_stream *s, const gpu_find_blocks *a) {
    (void)a;
    launch(s, 2);
}

/* Parts of the sum are added up. */
static void count_down_rows(gpu_stream *s, const gpu_down_rows *a) {
    (void)a;
    launch(s, 2);
}

static void count_fill(gpu_stream *s, void *device, uint8_t value, size_t n_bytes) {
    (void)device;
    (void)value;
    (void)n_bytes;
    launch(s, 1);
}

static const gpu_backend counting = {.fill = count_fill,
                                     .ops = {.quantize = count_quantize,
                                             .norm = count_norm,
                                             .matvec = count_matvec,
                                             .matmul = count_matmul,
                                             .matmul_t = count_matmul,
                                             .rope_angles = count_rope_angles,
                                             .rope_store = count_rope_store,
                                             .heads = count_heads,
                                             .latent_store = count_latent_store,
                                             .find_blocks = count_find_blocks,
                                             .attention = count_attention,
                                             .ffn_in = count_ffn_in,
                                             .conv = count_conv,
                                             .recur = count_recur,
                                             .gate = count_gate,
                                             .activate = count_activate,
                                             .sign_dot = count_sign_dot,
                                             .select = count_select,
                                             .down_rows = count_down_rows,
                                             .top_k = count_top_k,
                                             .add = count_add,
                                             .mix = count_mix,
                                             .merge = count_merge,
                                             .softcap = count_softcap,
                                             .route = count_route,
                                             .expert_in = count_expert_in,
                                             .expert_matvec = count_expert_matvec,
                                             .expert_down = count_expert_down,
                                             .expert_sum = count_expert_sum,
                                             .publish = count_publish,
                                             .receive = count_receive}};

/* ---- steps ----------------------------------------------------------------------------------- */

/* A GPU's side that can do nothing but enqueue steps with `counting`. Addresses are those of what
 * nothing reads: some are compared with NULL, or added to. */
static pi_status make_counter(const plan *p, gpu_exec *g, pi_error *err) {
    size_t n = (size_t)p->n_gpu_steps + 1;
    *g = (gpu_exec){.b = &counting, .plan = p, .model = p->model};
    for (int i = 0; i < p->model->hp.n_layer; i++)
        if (p->splits[i].primary == SIDE_GPU && plan_has(p, i)) g->kv_per_position = 1;
    g->steps = mem_calloc(n, sizeof *g->steps);
    if (!g->steps) return error_nomem(err, n * sizeof *g->steps, "GPU steps");
    void *some = g->steps;
    for (int b = 0; b < BUF_COUNT; b++) g->buf[b] = some;
    for (int i = 0; i < p->n_gpu_steps; i++) {
        int layer = p->gpu_steps[i].layer;
        g->steps[i].kv.v_dim = layer < 0 ? 0 : p->model->layers[layer].hp.v_dim;
        g->steps[i].kv.v_row = p->model->hp.n_latent == 0;
        for (int k = 0; k < p->gpu_steps[i].n_matrices; k++)
            g->steps[i].w[k] = (gpu_mat){.data = some, .type = p->gpu_steps[i].matrix[k].w.type};
        const plan_experts *e = p->gpu_steps[i].op == OP_EXPERTS_IN ? p->gpu_steps[i].experts
                                                                    : NULL;
        if (!e) continue;
        g->steps[i].w[0] = (gpu_mat){.data = some, .type = e->gate.w.type};
        g->steps[i].w[1] = (gpu_mat){.data = some, .type = e->up.w.type};
    }
    for (int i = 0; i < PLAN_SLOTS; i++)
        if (p->slots[SIDE_GPU][i].kinds & (1u << CPU_ACT_Q8)) g->q8[i] = some;
    g->list = g->count = g->read = g->bad = g->uses = some;
    g->bits = some;
    g->header = some;
    for (int i = 0; i < gpu_exec_rope_sets(p->model); i++) g->angles[i] = some;
    g->inv_freq = g->attn_partial = g->down_partial = some;
    g->message_embd.device = some;
    for (int side = 0; side < PLAN_SIDES; side++)
        g->flags[side].device = g->message_x[side].device = g->message_bits[side].device = some;
    return PI_OK;
}

/* The head's norm stands for all of its steps. */
static int32_t count_kernels(gpu_exec *g, int step, int n_splits) {
    int32_t n = 0;
    const gpu_exec_shape shape = {.n_cols = 1, .n_splits = n_splits, .form = FORM_ONE};
    g->stream = (gpu_stream *)(void *)&n;
    const int head = g->plan->head == SIDE_GPU ? gpu_exec_head_at(g) : g->plan->n_gpu_steps;
    if (step < head)
        gpu_exec_enqueue_step(g, step, &shape);
    else if (step == head)
        gpu_exec_enqueue_head(g, 0, 1);
    return n;
}

pi_status gpu_exec_count_kernels(const plan *p, int64_t depth, int32_t *n, pi_error *err) {
    gpu_exec g;
    const int n_splits = gpu_attention_splits(depth);
    pi_status status = make_counter(p, &g, err);
    *n = 0;
    if (status != PI_OK) return status;
    const gpu_exec_shape shape = {.n_cols = 1, .n_splits = n_splits, .form = FORM_ONE};
    g.stream = (gpu_stream *)(void *)n;
    gpu_exec_enqueue_start(&g, &shape);
    for (int i = 0; i < p->n_gpu_steps; i++) *n += count_kernels(&g, i, n_splits);
    mem_free(g.steps);
    return PI_OK;
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Where a layer's neurons (experts) begin on the device that is its primary. */
static bool is_of_neurons(const plan_step *s) {
    return s->op == OP_FFN_IN || s->op == OP_FFN_SPARSE || s->op == OP_TOP_K || s->op == OP_GROUP ||
           s->op == OP_EXPERTS_GATHER || s->op == OP_EXPERTS_IN;
}

/* Adds up a device's steps of a plan whose layers all have the same primary. Messages are not
 * counted: an exchange has a price of its own. */
static void sum_side(const plan *p, plan_side side, plan_side primary, gpu_exec *g, int n_splits,
                     engine_steps *out) {
    int n_steps = side == SIDE_GPU ? p->n_gpu_steps : p->n_steps, layer = -2;
    const plan_step *steps = side == SIDE_GPU ? p->gpu_steps : p->steps;
    bool neurons = false;
    for (int i = 0; i < n_steps; i++) {
        const plan_step *s = &steps[i];
        bool head = side == SIDE_GPU ? p->head == side && i >= gpu_exec_head_at(g)
                                     : i >= p->n_layer_steps;
        if (s->op == OP_SEND || s->op == OP_RECEIVE || (s->layer < 0 && !head)) continue;
        if (s->layer != layer) neurons = side != primary;
        layer = s->layer;
        neurons = neurons || is_of_neurons(s);
        engine_steps *to = &out[head ? p->model->hp.n_layer : s->layer];
        int32_t n = side == SIDE_GPU ? count_kernels(g, i, n_splits)
                                     : s->kernel[FORM_ONE] != KERNEL_SKIP && !s->alone[FORM_ONE];
        *(neurons && !head ? &to->neurons[side] : &to->always[side]) += n;
    }
}

static void keep_largest(int n, const engine_steps *from, engine_steps *to) {
    for (int i = 0; i < n; i++) {
        for (int side = 0; side < PLAN_SIDES; side++) {
            if (from[i].always[side] > to[i].always[side])
                to[i].always[side] = from[i].always[side];
            if (from[i].neurons[side] > to[i].neurons[side])
                to[i].neurons[side] = from[i].neurons[side];
        }
    }
}

static bool stays(const uint8_t *all, int layer, int what) {
    return all && all[layer] & what;
}

/* All layers at one primary, half of their neurons on each device, as far as they need not stay on
 * the CPU; without a GPU all on the CPU. */
static pi_status count_at(const model *m, const plan_options *options, plan_side primary,
                          int64_t depth, plan_split *splits, engine_steps *out, pi_error *err) {
    plan_options o = *options;
    plan *p = NULL;
    gpu_exec g = {0};
    cpu_kernels kernels;
    size_t n = (size_t)m->hp.n_layer + 1;
    cpu_kernels_get(CPU_TIER_AUTO, &kernels);
    for (int i = 0; splits && i < m->hp.n_layer; i++) {
        int64_t unit = plan_split_unit(m, i), units = model_layer_units(m, i);
        int64_t half = units / 2 / unit * unit;
        splits[i] = (plan_split){.primary = stays(o.stays, i, PLAN_STAY_ALWAYS) ? SIDE_CPU
                                                                                : primary,
                                 .hot = half > 0 ? half : units};
        if (i > model_shared_from(m)) splits[i].primary = splits[i - 1].primary;
        if (stays(o.stays, i, PLAN_STAY_NEURONS)) splits[i].hot = 0;
    }
    o.splits = splits;
    o.head = stays(o.stays, m->hp.n_layer, PLAN_STAY_ALWAYS) ? SIDE_CPU : primary;
    engine_steps *found = mem_calloc(n, sizeof *found);
    if (!found) return error_nomem(err, n * sizeof *found, "layers");
    pi_status status = plan_create(m, &kernels, &o, &p, err);
    if (status == PI_OK && splits) status = make_counter(p, &g, err);
    if (status == PI_OK) {
        sum_side(p, SIDE_CPU, primary, NULL, 1, found);
        if (splits) sum_side(p, SIDE_GPU, primary, &g, gpu_attention_splits(depth), found);
        keep_largest((int)n, found, out);
    }
    mem_free(g.steps);
    mem_free(found);
    plan_free(p);
    return status;
}

pi_status engine_count_steps(const model *m, const plan_options *options, int64_t depth,
                             engine_steps *out, pi_error *err) {
    size_t n = (size_t)m->hp.n_layer + 1;
    pi_error why = {.status = PI_OK};
    for (size_t i = 0; i < n; i++) out[i] = (engine_steps){0};
    plan_split *splits = mem_calloc(n, sizeof *splits);
    if (!splits) return error_nomem(err, n * sizeof *splits, "splits");
    pi_status status = count_at(m, options, SIDE_CPU, depth, NULL, out, err);
    for (int primary = 0; primary < PLAN_SIDES && status == PI_OK; primary++) {
        status = count_at(m, options, (plan_side)primary, depth, splits, out, &why);
        /* What has no kernels on the GPU stays on the CPU. */
        if (status == PI_ERR_UNSUPPORTED) status = PI_OK;
    }
    if (status != PI_OK && why.status != PI_OK && err) *err = why;
    mem_free(splits);
    return status;
}
