/* plan_ops.c: what ops.def says about an operation, and the kernel of each step in ubatches of one
 * token, of few and of many.
 *
 * Few tokens: kernels read each row of weights once and compute selected neurons only. Many tokens:
 * tiled products of all neurons; then neurons that a token did not select are set to zero, because
 * nearly every neuron is selected by some token. Both ways give the same result. Builders override
 * the default kernels of their steps where a layer needs it. */
#include <string.h>

#include "gpu_ops.h"
#include "plan_impl.h"

/* ---- columns of ops.def ---------------------------------------------------------------------- */

const char *plan_op_name(plan_op op) {
    static const char *const names[OP_COUNT] = {
#define PLAN_OP(name, text, ...) [OP_##name] = (text),
#include "ops.def"
    };
    return (unsigned)op < OP_COUNT ? names[op] : "unknown";
}

plan_args plan_args_of(plan_op op) {
    static const plan_args args[OP_COUNT] = {
#define PLAN_OP(name, text, its_args, ...) [OP_##name] = ARGS_##its_args,
#include "ops.def"
    };
    return args[op];
}

plan_reads plan_op_reads(plan_op op) {
    static const plan_reads reads[OP_COUNT] = {
#define PLAN_OP(name, text, args, print, its_reads, ...) [OP_##name] = (its_reads),
#include "ops.def"
    };
    return reads[op];
}

/* ---- kernels --------------------------------------------------------------------------------- */

#define PLAN_OP(name, text, args, print, reads, alone, cpu, gpu) [OP_##name] = cpu,
#define ON_CPU(one, few, many, ways)                                                               \
    { KERNEL_##one, KERNEL_##few, KERNEL_##many }
static const plan_kernel cpu_defaults[OP_COUNT][PLAN_FORMS] = {
#include "ops.def"
};

#define PLAN_OP(name, text, args, print, reads, alone, cpu, gpu) [OP_##name] = gpu,
#define ON_GPU(one, few, many, ways, upload, launches)                                             \
    { KERNEL_##one, KERNEL_##few, KERNEL_##many }
#define NOT_ON_GPU                                                                                 \
    { KERNEL_SKIP }
static const plan_kernel gpu_defaults[OP_COUNT][PLAN_FORMS] = {
#include "ops.def"
};

/* One thread runs messages and sorting in all forms, and vector operations in ubatches of few
 * tokens. */
typedef enum plan_alone { ALONE_NEVER, ALONE_FEW, ALONE_ALWAYS } plan_alone;

static const plan_alone alone_of[OP_COUNT] = {
#define PLAN_OP(name, text, args, print, reads, alone, ...) [OP_##name] = ALONE_##alone,
#include "ops.def"
};

void plan_set_kernel(plan_step *s, plan_kernel one, plan_kernel few, plan_kernel many) {
    s->kernel[FORM_ONE] = one;
    s->kernel[FORM_FEW] = few;
    s->kernel[FORM_MANY] = many;
}

void plan_set_default_kernel(plan_step *s, plan_side side) {
    memcpy(s->kernel, side == SIDE_CPU ? cpu_defaults[s->op] : gpu_defaults[s->op],
           sizeof s->kernel);
}

/* The activation type of most weight bytes decides for all. */
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
    /* While tokens have few neurons in common, the union of their neurons is smaller than the
     * layer. */
    return p->is_sparse || few_only ? PLAN_FFN_MAX_COLS + 1 : from;
}

void plan_set_forms(plan *p, const cpu_kernels *kernels, bool few_only) {
    for (int i = 0; i < p->n_steps; i++)
        p->is_sparse = p->is_sparse || p->steps[i].op == OP_FFN_SPARSE;
    p->many_from[SIDE_CPU] = tiles_from(p, kernels, few_only);
    p->many_from[SIDE_GPU] = GPU_MAX_COLS + 1;
    for (int i = 0; i < p->n_steps; i++) {
        const plan_alone alone = alone_of[p->steps[i].op];
        for (int form = 0; form < PLAN_FORMS; form++)
            p->steps[i].alone[form] = alone == ALONE_ALWAYS ||
                                      (alone == ALONE_FEW && form != FORM_MANY);
    }
}
