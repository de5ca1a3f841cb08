/* adapt.h: which experts are on the GPU, where that changes while the model runs. Private to
 * src/engine.
 *
 * Routers that are flat over a corpus are skewed within a conversation. Every use of an expert
 * adds to its usage, which halves every so many tokens; an expert of the CPU that has become hotter
 * than one of the GPU, by a ratio and a margin, takes its place. The experts of a split layer have
 * slots: [0, hot) are those of the GPU, one of which, the spare one, holds no expert: between
 * ubatches a slice of the next expert's weights is sent there by a stream of its own, and when all
 * has arrived, the expert moves in, and the slot of the one that it drives out becomes the spare
 * one. So nothing ever waits for a copy, and nothing that a ubatch reads is written. Choices of
 * experts (gpu_ops.h) name slots; without an adapter slots are the experts' numbers.
 *
 * Used by the thread that calls engine_forward. Which swaps are made depends on tokens and sizes
 * only, but for the time that a copy takes. */
#ifndef ENGINE_ADAPT_H
#define ENGINE_ADAPT_H

#include "engine.h"

typedef struct engine_adapter engine_adapter;

/* Whether a layer has at least two experts on the GPU and one on the CPU. */
bool adapt_applies(const plan *p);
/* NULL in *out when nothing is to be adapted. */
pi_status adapt_create(const plan *p, const engine_adapt *policy, engine_adapter **out,
                       pi_error *err);
void adapt_free(engine_adapter *a); /* NULL is fine */

/* [n_expert] the slot of each expert of a layer, of those of the CPU any that is not of the GPU;
 * NULL without an adapter. */
const int32_t *adapt_slots(const engine_adapter *a, int layer);
static inline int32_t adapt_slot(const engine_adapter *a, int layer, int32_t expert) {
    return a ? adapt_slots(a, layer)[expert] : expert;
}
/* The expert in a slot. */
int32_t adapt_expert(const engine_adapter *a, int layer, int32_t slot);

/* Tokens of a ubatch have chosen an expert n times. */
void adapt_count(engine_adapter *a, int layer, int32_t expert, int n);

/* A swap: `in` moves from the CPU into the spare slot of a layer, `out` to the CPU. */
typedef struct adapt_swap {
    int layer;
    int32_t in, out, slot;
} adapt_swap;
/* The swap that is worth most; false when none is worth it. n_tokens have passed since the last
 * call, by which usage ages. */
bool adapt_pick(engine_adapter *a, int n_tokens, adapt_swap *out);
/* The swap's weights are in place. */
void adapt_finish(engine_adapter *a, const adapt_swap *s);

/* Between two ubatches: goes on with the swap under way, or picks the next. */
void adapt_step(engine_context *c);
/* After work on the device was dropped, and at first: the swap under way begins again some time,
 * and the device is told where experts are. */
void adapt_restart(engine_context *c);

#endif
