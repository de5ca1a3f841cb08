/* layer_embd_model.h: tiny models with per-layer embeddings whose last layers read the caches of
 * earlier layers. One is like Gemma 4 E2B: the last layers have wider FFNs, and heads have two
 * sizes. One is like Gemma 3n: several residual streams and neurons below a cutoff. Weights are
 * random, F32 unless stated otherwise. */
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
    PLE_WIDTH = 64,  /* elements of a per-layer embedding */
    PLE_VOCAB = 288, /* at least 260, to hold all bytes */
    PLE_STREAMS = 4,
    PLE_RANK = 12 /* rank of the branch parallel to attention */
};

extern const bool ple_windowed[PLE_LAYERS];
extern const double ple_softcap, ple_eps, ple_base_full, ple_base_window;

int ple_head_dim(int layer);
int ple_ff(int layer);
/* table: type of the table of per-layer embeddings. width: value of their key; -1: no key. */
void ple_write(const char *path, quant_type table, int width);
/* Another size of heads in layers without a window, until the next ple_write. */
void ple_write_heads(const char *path, int n);
/* ple_write_streams writes the model with several streams; all heads have PLE_DIM_FULL, all FFNs
 * PLE_FF. `active`: the stream that layers compute; only 0 is runnable. */
extern const double ple_cutoffs[PLE_LAYERS]; /* standard deviations; -INFINITY: none */
void ple_write_streams(const char *path, quant_type table, int active);
/* Writes the model with several streams with F32 per-layer embeddings; matrices have this type
 * where rows are whole blocks of it. */
void ple_write_streams_as(const char *path, quant_type weights);

#endif
