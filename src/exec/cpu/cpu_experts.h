/* cpu_experts.h: what the files that compute experts on the CPU share: cpu_expert_rows.c. Private
 * to src/exec/cpu. */
#ifndef EXEC_CPU_EXPERTS_H
#define EXEC_CPU_EXPERTS_H

#include "cpu_exec.h"

static inline int expert_pairs(const ubatch_experts *x, int expert) {
    return x->first[expert + 1] - x->first[expert];
}

/* A pair's row of a buffer. */
static inline float *expert_pair_row(const cpu_exec *c, plan_buffer b, int pair) {
    return c->buf[b] + (int64_t)pair * c->plan->width[b];
}

/* Quantized vectors of an expert's pairs: the input, the hidden vector, and that of its
 * predictor. */
cpu_act expert_input(const cpu_exec *c, const plan_experts *e, cpu_act_kind kind, int expert);
cpu_act expert_hidden(const cpu_exec *c, const plan_experts *e, cpu_act_kind kind, int expert);
cpu_act expert_pred(const cpu_exec *c, const plan_experts *e, cpu_act_kind kind, int expert);

/* The rows of the active experts form one range; threads take chunks of it. expert_rows_take finds
 * rows [r0, r1) of the next expert in the chunk. */
typedef struct expert_rows {
    row_chunks chunks;
    int64_t n;          /* rows of an expert; each expert begins at a whole tile of the range */
    int64_t begin, end; /* the chunk */
    int i;              /* the next expert in it */
    int expert;
    int64_t r0, r1;
} expert_rows;

expert_rows expert_rows_make(const cpu_exec *c, int64_t n, size_t row_bytes, cpu_act_kind kind);
bool expert_rows_take(cpu_exec *c, expert_rows *w);

/* Applies scale and bias to elements [r0, r1) of an expert's result of n elements, for all its
 * pairs. */
void expert_finish(cpu_exec *c, const plan_matrix *m, int64_t n, const float *scales, int expert,
                   int64_t r0, int64_t r1);
/* The expert's rows of a matrix; waits until they are in memory. */
cpu_mat expert_matrix(cpu_exec *c, const plan_step *s, const plan_matrix *m, int expert);
/* Tells the pager that n of these rows (columns, if down has a row per neuron) are not needed any
 * more. */
void expert_used_rows(cpu_exec *c, const plan_step *s, const plan_matrix *m, int expert, int64_t n);
/* Computes rows [r0, r1) of an expert's product for all its pairs, with scale and bias. */
void expert_product(cpu_exec *c, const plan_step *s, const plan_matrix *m, const float *scales,
                    int expert, const cpu_act *x, int64_t r0, int64_t r1, int ith);

#endif
