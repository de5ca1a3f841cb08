/* plan_form.c: what every step runs as in ubatches of one token, of few and of many.
 *
 * Few tokens take kernels that read each row of weights once, and compute selected neurons only.
 * Many take tiled products of all neurons, after which what a token did not select is set to zero:
 * nearly every neuron is selected by one of them, and both ways give the same answer. Builders
 * overrule the defaults of their steps where a layer needs it. */
#include <string.h>

#include "gpu_ops.h"
#include "plan_build.h"

#define ONE_WAY                                                                                    \
    { KERNEL_PLAIN, KERNEL_PLAIN, KERNEL_PLAIN }
#define BY_SIZE                                                                                    \
    { KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_TILED }

static const plan_kernel defaults[PLAN_SIDES][OP_COUNT][PLAN_FORMS] = {
    [SIDE_CPU] = {[OP_EMBED] = ONE_WAY,
                  [OP_EMBED_LAYERS] = ONE_WAY,
                  [OP_SPREAD] = ONE_WAY,
                  [OP_PREDICT] = ONE_WAY,
                  [OP_CORRECT] = ONE_WAY,
                  [OP_MERGE] = ONE_WAY,
                  [OP_TOP_K] = ONE_WAY,
                  [OP_NORM] = BY_SIZE,
                  [OP_QUANTIZE] = BY_SIZE,
                  [OP_MATMUL] = BY_SIZE,
                  [OP_FFN_IN] = BY_SIZE,
                  [OP_INDEX_STORE] = ONE_WAY,
                  [OP_FIND_BLOCKS] = ONE_WAY,
                  [OP_ROPE_STORE] = ONE_WAY,
                  [OP_HEADS] = BY_SIZE,
                  [OP_LATENT_STORE] = ONE_WAY,
                  [OP_ATTENTION] = BY_SIZE,
                  [OP_GATE_HEADS] = BY_SIZE,
                  [OP_CONV] = ONE_WAY,
                  [OP_RECUR] = ONE_WAY,
                  [OP_GATE_SSM] = BY_SIZE,
                  [OP_ADD] = BY_SIZE,
                  [OP_PREFETCH] = ONE_WAY,
                  [OP_FFN_SPARSE] = {KERNEL_VECTOR, KERNEL_UNION, KERNEL_TILED},
                  [OP_FFN_DOWN] = BY_SIZE,
                  [OP_PREFETCH_EXPERTS] = ONE_WAY,
                  [OP_ROUTE] = BY_SIZE,
                  [OP_GROUP] = BY_SIZE,
                  [OP_EXPERTS_GATHER] = BY_SIZE,
                  [OP_EXPERTS_IN] = ONE_WAY, /* by the number of tokens of each expert */
                  [OP_EXPERTS_QUANTIZE] = BY_SIZE,
                  [OP_EXPERTS_DOWN] = ONE_WAY,
                  [OP_EXPERTS_SUM] = BY_SIZE,
                  [OP_SELECT] = BY_SIZE,
                  [OP_SEND] = ONE_WAY,
                  [OP_RECEIVE] = ONE_WAY,
                  [OP_SOFTCAP] = ONE_WAY,
                  [OP_HEAD_NORM] = BY_SIZE},
    [SIDE_GPU] = {
        [OP_NORM] = BY_SIZE,
        [OP_QUANTIZE] = {KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_SKIP}, /* tiles read floats */
        [OP_MATMUL] = BY_SIZE,
        [OP_FFN_IN] = BY_SIZE,
        [OP_PREDICT] = ONE_WAY,
        [OP_CORRECT] = ONE_WAY,
        [OP_MERGE] = ONE_WAY,
        [OP_TOP_K] = ONE_WAY,
        [OP_INDEX_STORE] = ONE_WAY,
        [OP_FIND_BLOCKS] = ONE_WAY,
        [OP_ROPE_STORE] = {KERNEL_SKIP, KERNEL_PLAIN, KERNEL_PLAIN}, /* of one token attention's */
        [OP_HEADS] = BY_SIZE,
        [OP_LATENT_STORE] = ONE_WAY,
        [OP_ATTENTION] = BY_SIZE,
        [OP_CONV] = ONE_WAY,
        [OP_RECUR] = ONE_WAY,
        [OP_GATE_SSM] = ONE_WAY,
        [OP_ADD] = ONE_WAY,
        [OP_FFN_SPARSE] = BY_SIZE,
        [OP_FFN_DOWN] = BY_SIZE,
        [OP_ROUTE] = ONE_WAY,
        [OP_EXPERTS_IN] = ONE_WAY,
        [OP_EXPERTS_DOWN] = ONE_WAY,
        [OP_EXPERTS_SUM] = ONE_WAY,
        [OP_SELECT] = BY_SIZE,
        [OP_SEND] = ONE_WAY,
        [OP_RECEIVE] = BY_SIZE,
        [OP_SOFTCAP] = ONE_WAY,
        [OP_HEAD_NORM] = BY_SIZE}};

void plan_set_kernel(plan_step *s, plan_kernel one, plan_kernel few, plan_kernel many) {
    s->kernel[FORM_ONE] = one;
    s->kernel[FORM_FEW] = few;
    s->kernel[FORM_MANY] = many;
}

void plan_set_default_kernel(plan_step *s, plan_side side) {
    memcpy(s->kernel, defaults[side][s->op], sizeof s->kernel);
}

/* Messages and sorting are one piece of work; so are vectors of few tokens. */
static bool runs_alone(const plan_step *s, plan_form form) {
    switch (s->op) {
    case OP_SEND:
    case OP_RECEIVE:
    case OP_GROUP:
    case OP_PREFETCH_EXPERTS:
        return true;
    case OP_EMBED_LAYERS:
    case OP_SPREAD:
    case OP_PREDICT:
    case OP_CORRECT:
    case OP_MERGE:
    case OP_TOP_K:
    case OP_NORM:
    case OP_QUANTIZE:
    case OP_GATE_HEADS:
    case OP_GATE_SSM:
    case OP_ADD:
    case OP_HEAD_NORM:
    case OP_ROUTE:
    case OP_EXPERTS_GATHER:
    case OP_EXPERTS_QUANTIZE:
    case OP_EXPERTS_SUM:
        return form != FORM_MANY;
    default:
        return false;
    }
}

/* The kind of activations that most weights are multiplied with decides for all. */
static int tiles_from(const plan *p, const cpu_kernels *kernels, bool few_only) {
    uint64_t bytes[CPU_ACT_KIND_COUNT] = {0};
    cpu_act_kind most = CPU_ACT_F32;
    for (int i = 0; i < p->n_steps; i++) {
        const plan_step *s = &p->steps[i];
        for (int k = 0; k < s->n_matrices; k++)
            bytes[kernels->mat[s->matrix[k].w.type].act] += s->matrix[k].row_size *
                                                            (uint64_t)s->matrix[k].w.n_out;
    }
    for (int kind = 0; kind < CPU_ACT_KIND_COUNT; kind++)
        if (bytes[kind] > bytes[most]) most = (cpu_act_kind)kind;
    int from = kernels->tiled[most].from;
    /* As long as tokens have few neurons in common, those of all of them are fewer than all. */
    return p->is_sparse || few_only ? PLAN_FFN_MAX_COLS + 1 : from;
}

void plan_set_forms(plan *p, const cpu_kernels *kernels, bool few_only) {
    for (int i = 0; i < p->n_steps; i++)
        p->is_sparse = p->is_sparse || p->steps[i].op == OP_FFN_SPARSE;
    p->many_from[SIDE_CPU] = tiles_from(p, kernels, few_only);
    p->many_from[SIDE_GPU] = GPU_MAX_COLS + 1;
    for (int i = 0; i < p->n_steps; i++)
        for (int form = 0; form < PLAN_FORMS; form++)
            p->steps[i].alone[form] = runs_alone(&p->steps[i], (plan_form)form);
}
