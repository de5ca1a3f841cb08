/* step_count.c: what a decoded token costs besides reading weights: kernels of the GPU and barriers
 * of the CPU's threads, layer by layer. Placement uses these counts.
 *
 * ops.def has the number of kernels that a step of each operation launches for a single token;
 * tests/engine/test_engine_device.c compares it with what a device launched. */
#include "step_count.h"

#include "gpu_exec_impl.h"
#include "mem.h"

/* ---- kernels of a step ----------------------------------------------------------------------- */

static bool writes_q8(const plan_step *s) {
    return s->act_kinds & (1u << CPU_ACT_Q8);
}

static int32_t launches_quantize(const plan_step *s, const args_quantize *a) {
    return a->gated + (a->layer_embd || writes_q8(s));
}

/* Adjacent matrices of one type are one launch. */
static int32_t launches_products(const plan_step *s) {
    int32_t n = 0;
    for (int k = 0; k < s->n_matrices; k++)
        n += k == 0 || s->matrix[k].w.type != s->matrix[k - 1].w.type;
    return n;
}

/* Gate and up of different types are two launches; KERNEL_MASKED has a separate activation. */
static int32_t launches_ffn_in(const plan_step *s) {
    int32_t n = launches_products(s);
    return s->kernel[FORM_ONE] == KERNEL_MASKED ? n + 1 : n;
}

/* Partial sums are added up; a plain product first rounds its inputs for types that want it. */
static int32_t launches_ffn_down(const plan_step *s, const plan_ffn *f) {
    bool whole = s->kernel[FORM_ONE] == KERNEL_TILED;
    return whole && gpu_matmul_rounding(f->down.w.type, false, true) == GPU_ROUND_NOT ? 1 : 2;
}

/* Long inputs are quantized by a separate kernel, and matvec computes a few heads per launch. */
static int32_t launches_heads(const plan_step *s, const args_heads *a) {
    const cpu_mat *w = &s->matrix[0].w;
    if (w->n_in <= GPU_MAX_LATENT) return 1;
    return gpu_type_wants_q8(w->type) + (a->n + GPU_MAX_PRODUCTS - 1) / GPU_MAX_PRODUCTS;
}

/* Heads that share groups of int8 are quantized separately; MLA's parts of a long context are
 * merged. */
static int32_t launches_attention(const plan *p, const plan_step *s, const args_attention *a,
                                  int n_splits) {
    bool shared = p->model->layers[s->layer].hp.v_dim % CPU_ACT_GROUP;
    if (a->blocks.size > 0 && !a->latent) return 1 + writes_q8(s);
    bool merged = a->latent && gpu_exec_attention_splits(a, n_splits) > 1;
    return 1 + merged + (writes_q8(s) && shared);
}

static int32_t launches_experts_in(const plan_experts *e) {
    return e->gate.w.data && e->gate.w.type != e->up.w.type ? 2 : 1;
}

/* n_splits: of attention over the whole context. */
static int32_t count_kernels(const plan *p, const plan_step *s, int n_splits) {
    if (s->kernel[FORM_ONE] == KERNEL_SKIP) return 0;
    switch (s->op) {
#define PLAN_OP(name, text, args, print, reads, alone, cpu, gpu) STEP_CASE(name, args, return gpu)
#define ON_GPU(one, few, many, ways, upload, launches)           launches
#define NOT_ON_GPU                                               0
#include "ops.def"
    case OP_COUNT:
        break;
    }
    return 0;
}

int32_t gpu_exec_count_kernels(const plan *p, int64_t depth) {
    const int n_splits = gpu_attention_splits(depth);
    bool attends = false;
    for (int i = 0; i < p->model->hp.n_layer; i++)
        attends = attends || (p->splits[i].primary == SIDE_GPU && plan_has(p, i));
    int32_t n = 1 + (attends ? gpu_exec_rope_sets(p->model) : 0); /* clears counts, makes angles */
    for (int i = 0; i < p->n_gpu_steps; i++) n += count_kernels(p, &p->gpu_steps[i], n_splits);
    return n;
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Whether the step is one of the first for a layer's neurons (experts) on its primary. */
static bool is_of_neurons(const plan_step *s) {
    return s->op == OP_FFN_IN || s->op == OP_FFN_SPARSE || s->op == OP_TOP_K || s->op == OP_GROUP ||
           s->op == OP_EXPERTS_GATHER || s->op == OP_EXPERTS_IN;
}

/* A norm counts also where the kernel of a message runs it: the price of an exchange is less by
 * that. merged: it is part of the kernel before. */
static int32_t count_apart(const plan *p, const plan_step *s, bool merged, int n_splits) {
    return s->op == OP_NORM && !merged ? 1 : count_kernels(p, s, n_splits);
}

/* Counts a device's steps of a plan whose layers all have the same primary. Messages do not count:
 * placement has a separate price for an exchange. */
static void sum_side(const plan *p, plan_side side, plan_side primary, int n_splits,
                     step_counts *out) {
    int n_steps = side == SIDE_GPU ? p->n_gpu_steps : p->n_steps, layer = -2;
    const plan_step *steps = side == SIDE_GPU ? p->gpu_steps : p->steps;
    bool neurons = false, head = false;
    for (int i = 0; i < n_steps; i++) {
        const plan_step *s = &steps[i];
        head = head || s->op == OP_HEAD_NORM;
        if (s->op == OP_SEND || s->op == OP_RECEIVE || (s->layer < 0 && !head)) continue;
        if (s->layer != layer) neurons = side != primary;
        layer = s->layer;
        neurons = neurons || is_of_neurons(s);
        step_counts *to = &out[head ? p->model->hp.n_layer : s->layer];
        int32_t n = side == SIDE_GPU ? count_apart(p, s, i > 0 && s[-1].norms, n_splits)
                                     : s->kernel[FORM_ONE] != KERNEL_SKIP && !s->alone[FORM_ONE];
        *(neurons && !head ? &to->neurons[side] : &to->always[side]) += n;
        to->norms += s->norms;
    }
}

static void keep_largest(int n, const step_counts *from, step_counts *to) {
    for (int i = 0; i < n; i++) {
        if (from[i].norms > to[i].norms) to[i].norms = from[i].norms;
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

/* Counts with all layers on one primary and half of their neurons on each device, or with `whole`
 * all of them on the GPU, except for what must stay on the CPU; without splits everything is on the
 * CPU. With a GPU as the primary only whole layers tell what it always launches: its last kernel
 * may include the next layer's norm. */
static pi_status count_at(const model *m, const plan_options *options, plan_side primary,
                          bool whole, int64_t depth, plan_split *splits, step_counts *out,
                          pi_error *err) {
    plan_options o = *options;
    plan *p = NULL;
    cpu_kernels kernels;
    size_t n = (size_t)m->hp.n_layer + 1;
    cpu_kernels_get(CPU_TIER_AUTO, &kernels);
    for (int i = 0; splits && i < m->hp.n_layer; i++) {
        int64_t unit = plan_split_unit(m, i), units = model_layer_units(m, i);
        int64_t half = whole ? units : units / 2 / unit * unit;
        splits[i] = (plan_split){.primary = stays(o.stays, i, PLAN_STAY_ALWAYS) ? SIDE_CPU
                                                                                : primary,
                                 .hot = half > 0 ? half : units};
        if (i > model_shared_from(m)) splits[i].primary = splits[i - 1].primary;
        if (stays(o.stays, i, PLAN_STAY_NEURONS)) splits[i].hot = 0;
    }
    o.splits = splits;
    o.head = stays(o.stays, m->hp.n_layer, PLAN_STAY_ALWAYS) ? SIDE_CPU : primary;
    step_counts *found = mem_calloc(n, sizeof *found);
    if (!found) return error_nomem(err, n * sizeof *found, "layers");
    pi_status status = plan_create(m, &kernels, &o, &p, err);
    if (status == PI_OK) {
        sum_side(p, SIDE_CPU, primary, 1, found);
        if (splits) sum_side(p, SIDE_GPU, primary, gpu_attention_splits(depth), found);
        for (size_t i = 0; i < n && primary == SIDE_GPU && !whole; i++)
            found[i].always[SIDE_GPU] = found[i].norms = 0;
        keep_largest((int)n, found, out);
    }
    mem_free(found);
    plan_free(p);
    return status;
}

pi_status step_count_layers(const model *m, const plan_options *options, int64_t depth,
                            step_counts *out, pi_error *err) {
    size_t n = (size_t)m->hp.n_layer + 1;
    pi_error why = {.status = PI_OK};
    for (size_t i = 0; i < n; i++) out[i] = (step_counts){0};
    plan_split *splits = mem_calloc(n, sizeof *splits);
    if (!splits) return error_nomem(err, n * sizeof *splits, "splits");
    pi_status status = count_at(m, options, SIDE_CPU, false, depth, NULL, out, err);
    for (int i = 0; i < PLAN_SIDES + 1 && status == PI_OK; i++) {
        const plan_side primary = i > 0 ? SIDE_GPU : SIDE_CPU;
        status = count_at(m, options, primary, i > 1, depth, splits, out, &why);
        /* A layer without kernels on the GPU stays on the CPU. */
        if (status == PI_ERR_UNSUPPORTED) status = PI_OK;
    }
    if (status != PI_OK && why.status != PI_OK && err) *err = why;
    mem_free(splits);
    return status;
}
