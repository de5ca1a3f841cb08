/* bundle.h: bundles: the rows of a neuron side by side in the file, so that one direct read of the
 * drive brings them all (docs/sparse.md).
 *
 * A layer's bundles are one tensor, blk.N.ffn_bundle.weight, of bytes (I8) [stride, n_ff]. Row i
 * has neuron i's rows of gate (if there is one), up and ffn_down_t, each from a multiple of
 * BUNDLE_PART_ALIGN bytes on, then zeros up to stride. Keys name the parts' types. */
#ifndef MODEL_BUNDLE_H
#define MODEL_BUNDLE_H

#include "arch.h"
#include "quant.h"

enum {
    BUNDLE_BLOCK = 512,       /* stride is a multiple: the smallest unit of direct reads */
    BUNDLE_FILE_ALIGN = 4096, /* of the tensor in the file: a page, and the largest such unit */
    BUNDLE_PART_ALIGN = 32,   /* as GGUF aligns tensors */
    BUNDLE_PARTS = 3
};

typedef struct bundle_part {
    tensor_role role; /* FFN_GATE, FFN_UP, FFN_DOWN_T */
    quant_type type;
    size_t at, n_bytes; /* in the bundle; n_bytes 0: the layer has no such part */
} bundle_part;

typedef struct bundle_layout {
    bundle_part part[BUNDLE_PARTS];
    size_t stride; /* bytes from one neuron's bundle to the next one's */
} bundle_layout;

tensor_role bundle_part_role(int part);
/* The part's key (sparse_keys.h) with its type in every layer. */
const char *bundle_part_key(int part);
/* A layout of rows of n_embd elements; traits NULL: there is no such part. False when rows are not
 * whole blocks. */
bool bundle_lay_out(const quant_traits *const traits[BUNDLE_PARTS], int64_t n_embd,
                    bundle_layout *out);

#endif
