/* rope_angles.h: RoPE frequencies of a model, and the angles of a position. */
#ifndef SESSION_ROPE_ANGLES_H
#define SESSION_ROPE_ANGLES_H

#include "model.h"

typedef struct rope_frequencies {
    const model *model;
    /* [ROPE_SETS + 1][n_rot / 2] radians per position; the last set replaces the global set in
     * sessions longer than the model's original context (LongRoPE). With model_hparams.index_ratio
     * the local set is for index keys, whose fourth axis also has the position as its
     * coordinate. */
    float *inv_freq;
    float angle_scale; /* factor of the global set's cos and sin */
} rope_frequencies;

static inline size_t rope_n_frequencies(const model_hparams *hp) {
    return (ROPE_SETS + 1) * (size_t)hp->n_rot / 2;
}

/* inv_freq: [rope_n_frequencies]. */
void rope_init(rope_frequencies *f, const model *m, float *inv_freq);
/* [n_rot / 2] radians per position of a set, in a session of n_ctx positions. */
const float *rope_frequencies_of(const rope_frequencies *f, int64_t n_ctx, rope_set set);
/* cos and sin of all sets at a position: angles [ROPE_SETS][n_rot / 2][2]. */
void rope_fill(const rope_frequencies *f, int64_t n_ctx, int64_t pos, float *angles);

#endif
