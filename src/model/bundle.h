/* bundle.h: bundles store the rows of a neuron, or the matrices of an expert, next to each other in
 * the file, so that one direct read of the drive loads all of them (docs/prepared-files.md).
 *
 * The bundles of a layer are one tensor of bytes (I8), one row per neuron (expert):
 *   blk.N.ffn_bundle.weight [stride, n_ff]: row i has neuron i's rows of gate (if there is one), up
 *     and ffn_down_t, each at a multiple of BUNDLE_PART_ALIGN bytes, then zeros up to stride;
 *   blk.N.ffn_bundle_exps.weight [stride, n_expert]: row i has expert i's gate and up, or both
 *     fused, and, at a multiple of BUNDLE_FILE_ALIGN, down in either form.
 * Keys of the file name the types of the parts. */
#ifndef MODEL_BUNDLE_H
#define MODEL_BUNDLE_H

#include "arch.h"
#include "model.h"
#include "quant.h"

enum {
    BUNDLE_BLOCK = 512,       /* divides strides of neurons: the smallest unit of direct reads */
    BUNDLE_FILE_ALIGN = 4096, /* alignment of the tensor in the file and of an expert's stride: a
                                 page, the largest unit of direct reads */
    BUNDLE_PART_ALIGN = 32,   /* same as GGUF's tensor alignment */
    BUNDLE_PARTS = 5          /* maximum parts of a bundle */
};

typedef enum bundle_kind { BUNDLE_NEURONS, BUNDLE_EXPERTS, BUNDLE_KINDS } bundle_kind;

typedef struct bundle_part {
    tensor_role role; /* bundle_part_role */
    quant_type type;
    size_t at, n_bytes;   /* within the bundle; n_bytes 0: the layer has no such part */
    int64_t n_in, n_rows; /* per neuron (expert) */
} bundle_part;

typedef struct bundle_layout {
    bundle_part part[BUNDLE_PARTS];
    size_t stride; /* bytes between the starts of two bundles */
} bundle_layout;

/* The tensor that contains the bundles. */
static inline tensor_role bundle_role(bundle_kind kind) {
    return kind == BUNDLE_NEURONS ? ROLE_FFN_BUNDLE : ROLE_EXPERT_BUNDLE;
}
/* The bundles of a layer; NULL: none. */
static inline const gguf_tensor *model_bundle(const model_layer *l, bundle_kind kind) {
    return kind == BUNDLE_NEURONS ? l->bundle : l->expert_bundle;
}
/* ROLE_COUNT: this kind has fewer parts. */
tensor_role bundle_part_role(bundle_kind kind, int part);
/* The key (sparse_keys.h) with the part's type in every layer. */
const char *bundle_part_key(bundle_kind kind, int part);
/* Computes a layout with the smallest stride, in out->stride. n_ff: neurons of an expert; traits
 * NULL: no such part. False when rows are not whole blocks. */
bool bundle_lay_out(bundle_kind kind, const quant_traits *const traits[BUNDLE_PARTS],
                    int64_t n_embd, int64_t n_ff, bundle_layout *out);

#endif
