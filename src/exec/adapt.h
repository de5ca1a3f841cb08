/* adapt.h: which experts are on the GPU, where that changes while the model runs.
 *
 * Routers that are flat over a corpus are skewed within a conversation. Every use of an expert adds
 * to its usage, which halves every so many tokens. An expert on the CPU whose usage exceeds that of
 * an expert on the GPU by a ratio and a margin takes its place. The experts of a split layer have
 * slots: [0, hot) are those of the GPU. One of them, the spare slot, holds no expert: between
 * ubatches a separate stream sends a slice of the next expert's weights there. When all slices have
 * arrived, the expert moves in, and the slot of the expert that it replaces becomes the spare slot.
 * So nothing ever waits for a copy, and nothing that a ubatch reads is written. Choices of experts
 * (gpu_ops.h) name slots; without an adapter slots are the experts' numbers.
 *
 * The thread that calls engine_forward uses all of this. Which swaps are made depends on tokens and
 * sizes only, except for the time that a copy takes. */
#ifndef EXEC_ADAPT_H
#define EXEC_ADAPT_H

#include "error.h"
#include "plan.h"

/* 0 selects the default of a field. */
typedef struct adapt_policy {
    bool on;
    float ratio, margin; /* of uses within the half-life, by which an expert on the CPU must exceed
                            one on the GPU to take its place */
    int32_t half_life;   /* tokens */
    int32_t slice_bytes; /* of weights sent to the GPU after each ubatch, at most */
} adapt_policy;

typedef struct expert_adapter expert_adapter;

/* Whether a layer has at least two experts on the GPU and one on the CPU. */
bool adapt_applies(const plan *p);
/* NULL in *out when no layer is adapted (adapt_applies). */
pi_status adapt_create(const plan *p, const adapt_policy *policy, expert_adapter **out,
                       pi_error *err);
void adapt_free(expert_adapter *a); /* NULL is fine */

/* [n_expert] the slot of each expert of a layer; an expert on the CPU has any slot that is not the
 * GPU's. NULL without an adapter. */
const int32_t *adapt_slots(const expert_adapter *a, int layer);
static inline int32_t adapt_slot(const expert_adapter *a, int layer, int32_t expert) {
    return a ? adapt_slots(a, layer)[expert] : expert;
}
/* The expert in a slot. */
int32_t adapt_expert(const expert_adapter *a, int layer, int32_t slot);

/* Counts n choices of an expert by tokens of a ubatch. */
void adapt_count(expert_adapter *a, int layer, int32_t expert, int n);

/* A swap: `in` moves from the CPU into the spare slot of a layer, `out` to the CPU. */
typedef struct adapt_swap {
    int layer;
    int32_t in, out, slot;
} adapt_swap;
/* Finds the swap that gains most; false if none gains enough. Usage ages by n_tokens, the tokens
 * since the last call. */
bool adapt_pick(expert_adapter *a, int n_tokens, adapt_swap *out);
/* The swap under way after a ubatch of n_tokens; NULL: none. *begins: no swap was under way, so
 * adapt_pick has chosen this one. */
const adapt_swap *adapt_next(expert_adapter *a, int n_tokens, bool *begins);
/* The field, or its default. */
size_t adapt_slice_bytes(const adapt_policy *policy);
/* Ends a swap: its weights are in place. */
void adapt_finish(expert_adapter *a, const adapt_swap *s);
/* Drops the swap under way, whose copy was lost; it may begin again later. */
void adapt_drop(expert_adapter *a);

#endif
