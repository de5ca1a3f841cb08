/* convert_tensors.h: which tensors of a Hugging Face folder become which tensors of a GGUF file,
 * and the streaming of their rows. */
#ifndef TOOLS_CONVERT_TENSORS_H
#define TOOLS_CONVERT_TENSORS_H

#include "gguf_writer.h"
#include "hf_config.h"
#include "pool.h"
#include "progress.h"
#include "safetensors.h"

typedef struct convert_tensor {
    char name[GGUF_MAX_NAME];
    const safetensor *source; /* NULL: computed, see hf_config_rope_factors */
    quant_type type;
    int n_dims;       /* 1 or 2 */
    uint64_t dims[2]; /* dims[0] is contiguous; dims[1] is 1 for vectors */
    uint64_t permute; /* rows of a head whose order changes; 0: none, see permuted_row */
} convert_tensor;

typedef struct convert_plan {
    const safetensors *weights; /* must outlive the plan */
    convert_tensor *tensors;    /* [n_tensors], in the order of the file */
    size_t n_tensors, capacity;
    uint64_t n_bytes; /* of all tensors, as written */
} convert_plan;

/* Matches the architecture's table with the weights. PI_ERR_FORMAT: a tensor is missing or has an
 * unexpected shape; PI_ERR_UNSUPPORTED: a data type, or a tensor that the architecture has no place
 * for. `type` is of the matrices. */
pi_status convert_plan_make(const hf_config *c, const safetensors *weights, quant_type type,
                            const talk *t, convert_plan *out, pi_error *err);
void convert_plan_free(convert_plan *p); /* a zeroed plan is fine */

pi_status convert_plan_declare(const convert_plan *p, gguf_writer *w, pi_error *err);
/* Converts row by row on the pool, a few megabytes at a time. PI_ERR_RANGE: a value that is not
 * finite, in the source or in the type; PI_ERR_CANCELLED. */
pi_status convert_plan_write(const convert_plan *p, const hf_config *c, pool *workers,
                             progress *report, gguf_writer *w, pi_error *err);

#endif
