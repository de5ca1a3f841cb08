/* bundle.h: bundles: the rows of a neuron, or the matrices of an expert, side by side in the file,
 * so that one direct read of the drive brings them all (docs/sparse.md).
 *
 * A layer's bundles are one tensor of bytes (I8), a row per neuron (expert):
 *   blk.N.ffn_bundle.weight [stride, n_ff]: row i has neuron i's rows of gate (if there is one), up
 *     and ffn_down_t, each from a multiple of BUNDLE_PART_ALIGN bytes on, then zeros up to stride;
 *   blk.N.ffn_bundle_exps.weight [stride, n_expert]: expert i's gate and up, or what has both, and
 *     from a multiple of BUNDLE_FILE_ALIGN on down, in either form.
 * Keys name the parts' types. */
#ifndef MODEL_BUNDLE_H
#define MODEL_BUNDLE_H

#include "arch.h"
#include "model.h"
#include "quant.h"

enum {
    BUNDLE_BLOCK = 512, /* a neuron's stride is a multiple: the smallest unit of direct reads */
    BUNDLE_FILE_ALIGN = 4096, /* of the tensor in the file, and of an expert's stride: a page, and
                                 the largest such unit */
    BUNDLE_PART_ALIGN = 32,   /* as GGUF aligns tensors */
    BUNDLE_PARTS = 5          /* at most */
};

typedef enum bundle_kind { BUNDLE_NEURONS, BUNDLE_EXPERTS, BUNDLE_KINDS } bundle_kind;

typedef struct bundle_part {
    tensor_role role; /* bundle_part_role */
    quant_type type;
    size_t at, n_bytes;   /* in the bundle; n_bytes 0: the layer has no such part */
    int64_t n_in, n_rows; /* of one neuron (expert) */
} bundle_part;

typedef struct bundle_layout {
    bundle_part part[BUNDLE_PARTS];
    size_t stride; /* bytes from one bundle to the next one */
} bundle_layout;

/* The tensor that has them all. */
static inline tensor_role bundle_role(bundle_kind kind) {
    return kind == BUNDLE_NEURONS ? ROLE_FFN_BUNDLE : ROLE_EXPERT_BUNDLE;
}
/* What a layer has; NULL: none. */
static inline const gguf_tensor *model_bundle(const model_layer *l, bundle_kind kind) {
    return kind == BUNDLE_NEURONS ? l->bundle : l->expert_bundle;
}
/* ROLE_COUNT: this kind has fewer parts. */
tensor_role bundle_part_role(bundle_kind kind, int part);
/* The part's key (sparse_keys.h) with its type in every layer. */
const char *bundle_part_key(bundle_kind kind, int part);
/* The least stride that a layout has is out->stride. n_ff: neurons of an expert; traits NULL: there
 * is no such part. False when rows are not whole blocks. */
bool bundle_lay_out(bundle_kind kind, const quant_traits *const traits[BUNDLE_PARTS],
                    int64_t n_embd, int64_t n_ff, bundle_layout *out);

#endif
