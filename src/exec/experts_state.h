/* experts_state.h: mixtures of experts: which experts the tokens of a ubatch use. */
#ifndef EXEC_EXPERTS_STATE_H
#define EXEC_EXPERTS_STATE_H

#include "cpu.h"

/* A pair is a token and one of its experts; pairs are numbered by expert, then by token. */
typedef struct ubatch_experts {
    int32_t *chosen; /* [n_batch][n_used] experts of a token */
    float *weight;   /* [n_batch][n_used] */
    float *shared;   /* [n_batch] weight of the shared expert */
    int32_t *pair;   /* [n_batch][n_used]; -1: the expert is on the GPU */
    int32_t *token;  /* [n_batch * n_used] of a pair */
    int32_t *first;  /* [n_expert + 1] first pair of an expert */
    int32_t *active; /* [n_expert] experts with pairs, ascending */
    uint64_t *uses;  /* [n_layer][n_expert] pairs of each expert since the context was created */
    int32_t *seen; /* [n_layer][n_expert] uses that the GPU had counted when they were last read */
    bool looked;   /* the uses were read after the last ubatch */
    int n_active;
    bool from_norm; /* experts of a single token read what the norm has quantized */
    /* Quantized inputs, hidden vectors, and hidden vectors of predictors: those of an expert start
     * at byte `at` of the kind's memory. */
    size_t *in_at[CPU_ACT_KIND_COUNT], *hidden_at[CPU_ACT_KIND_COUNT]; /* [n_expert] */
    size_t *pred_at[CPU_ACT_KIND_COUNT];
    uint8_t *in[CPU_ACT_KIND_COUNT], *hidden[CPU_ACT_KIND_COUNT], *pred[CPU_ACT_KIND_COUNT];
} ubatch_experts;

#endif
