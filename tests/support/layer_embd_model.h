/* layer_embd_model.h: tiny models with an embedding per layer, whose last layers read the caches of
 * earlier ones: one as Gemma 4 E2B, with wider FFNs there and heads of two sizes, one as Gemma 3n,
 * with several residual streams and neurons below a cutoff. Random weights, in F32 where nothing
 * else is said. */
#ifndef TEST_LAYER_EMBD_MODEL_H
#define TEST_LAYER_EMBD_MODEL_H

#include <stdbool.h>

#include "quant.h"

enum {
    PLE_LAYERS = 5,
    PLE_OWN = 3, /* layers with a cache */
    PLE_EMBD = 32,
    PLE_FF = 48, /* twice that in layers without a cache */
    PLE_HEADS = 4,
    PLE_KV_HEADS = 2,
    PLE_DIM_FULL = 16,
    PLE_DIM_WINDOW = 8,
    PLE_WINDOW = 6,
    PLE_WIDTH = 64,  /* of an embedding per layer */
    PLE_VOCAB = 288, /* 260 at least: all bytes */
    PLE_STREAMS = 4,
    PLE_RANK = 12 /* of the branch beside attention */
};

extern const bool ple_windowed[PLE_LAYERS];
extern const double ple_softcap, ple_eps, ple_base_full, ple_base_window;

int ple_head_dim(int layer);
int ple_ff(int layer);
/* table: type of the table of embeddings per layer. width: what the key says of them; -1: there is
 * no key. */
void ple_write(const char *path, quant_type table, int width);
/* The model with several streams, whose heads are all of PLE_DIM_FULL and FFNs of PLE_FF. `active`:
 * which stream layers compute; only 0 can be run. */
extern const double ple_cutoffs[PLE_LAYERS]; /* standard deviations; -INFINITY: none */
void ple_write_streams(const char *path, quant_type table, int active);
/* The same with the embeddings per layer in F32, and matrices of this type where rows are whole
 * blocks of it. */
void ple_write_streams_as(const char *path, quant_type weights);

#endif
