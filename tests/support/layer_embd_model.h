/* layer_embd_model.h: a tiny model as Gemma 4 E2B: an embedding per layer, last layers that read
 * the caches of earlier ones and have wider FFNs, heads of two sizes. Random weights in F32. */
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
    PLE_VOCAB = 260, /* the least that has all bytes */
};

extern const bool ple_windowed[PLE_LAYERS];
extern const double ple_softcap, ple_eps, ple_base_full, ple_base_window;

int ple_head_dim(int layer);
int ple_ff(int layer);
/* table: type of the table of embeddings per layer. width: what the key says of them; -1: there is
 * no key. */
void ple_write(const char *path, quant_type table, int width);

#endif
