/* adapt.h: adaptive placement of experts (--adapt): experts that are used often move to the GPU
 * while the model runs (neurons: adapt_neurons.h).
 *
 * A router uses all experts about equally often over many texts, but prefers some of them within a
 * conversation. Every use of an expert adds to its usage, which decays with a half-life in tokens.
 * An expert on the CPU replaces the least used expert on the GPU if its usage is higher by a ratio
 * and a margin.
 *
 * The experts of a split layer have slots; slots [0, hot) are memory of the GPU. One of these, the
 * spare slot, holds no expert: between ubatches a slice of the next expert's weights is copied into
 * it on a separate stream. When all slices have arrived, the expert is in use, and the slot of the
 * expert that it replaces becomes the spare slot. So no ubatch waits for a copy, and no copy writes
 * what a ubatch reads. Choices of experts in messages (gpu_ops.h) name slots; without an adapter
 * expert i is in slot i.
 *
 * Only the thread that calls engine_forward uses an adapter. Which experts are swapped depends on
 * tokens and sizes only, except for the time that a copy takes. */
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
