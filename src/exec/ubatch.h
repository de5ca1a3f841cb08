/* ubatch.h: a ubatch: up to n_batch tokens of one or several sessions that go through all steps of
 * the plan together. The calling thread writes these structs before the workers start; they are
 * constant while the workers run, except for the results. */
#ifndef EXEC_UBATCH_H
#define EXEC_UBATCH_H

#include "cpu.h"
#include "form_pace.h"
#include "session.h"

/* Consecutive rows of the ubatch that belong to one session. */
typedef struct ubatch_item {
    pi_session *session;
    int row, n_tokens;
    int64_t pos;           /* of the first token */
    const float *features; /* heads that draft: [n_tokens][n_stream * n_embd]; others: NULL */
    /* Recurrent layers: the state before the first token (NULL: zeros), after the last one, and
     * after n_before of them (NULL: not wanted). The first two may be the same. */
    const float *state_from;
    float *state_to, *state_before;
    int n_before; /* < n_tokens */
} ubatch_item;

/* Whether all tokens of an item attend to all positions before them. */
static inline bool ubatch_reads_all(const ubatch_item *item, const plan_blocks *b) {
    return plan_blocks_all(b, item->n_tokens, item->pos + item->n_tokens - 1);
}

typedef struct engine_ubatch {
    int n_tokens, n_items, n_out, n_hidden;
    plan_form form, head_form; /* of the layers by n_tokens, of the head by n_out */
    /* By GPU: the GPU computes all neurons of its layers; the CPU leaves out its share. */
    bool streaming[PLAN_MAX_DEVICES];
    int first_step, end_step; /* of the plan */
    int first_logits_row;     /* where the logits of this ubatch go */
    int first_hidden_row;     /* and its hidden states */
    int nth;                  /* threads */
    form_pace *pace;          /* learns how long the ubatch took; NULL: none */

    int32_t *tokens, *out_rows; /* [n_batch]; out_rows: rows of X whose logits are wanted */
    int32_t *hidden_rows;       /* [n_batch] rows of X whose hidden states are wanted */
    int32_t *ngrams;            /* [n_batch][n_rows] rows of the tokens' n-grams (model_ngrams) */
    int64_t *positions;         /* [n_batch] */
    ubatch_item *items, **item_of_row; /* [n_batch] */
    /* Results, in the order of the wanted rows of a call. */
    float *logits; /* [n_logits][n_vocab]: BUF_LOGITS */
    float *hidden; /* [n_batch][n_embd] */
} engine_ubatch;

/* Mixtures of experts: which experts the tokens of the ubatch use in the present layer. A pair is a
 * token and one of its experts; pairs are numbered by expert, then by token. */
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
