/* gpu_support.h: which operations of gpu_ops.h a backend has. */
#ifndef GPU_GPU_SUPPORT_H
#define GPU_GPU_SUPPORT_H

#include "gpu_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes of a layer that kernels limit. 0: the layer has no such part. */
typedef struct gpu_shape {
    int32_t head_dim, v_dim; /* of a cached key and value; MLA: of the cache row */
    bool latent;             /* MLA */
    bool joint;              /* compressed keys; the keys are also the values */
    bool alibi;              /* attention with slopes */
    int32_t index_dim;       /* sparse attention: elements of an index query */
    int32_t n_taps, n_state; /* recurrent layers */
    int32_t n_embd, n_stream;
    int32_t n_expert, n_ff_expert;
    int32_t n_rank; /* of a predictor */
} gpu_shape;

/* For operations without weights. */
#define GPU_NO_TYPE QUANT_TYPE_COUNT

/* Whether a backend has the operation for weights of this type in layers of this shape. shape NULL:
 * for some shape. */
typedef bool gpu_supports(gpu_op op, quant_type type, const gpu_shape *shape);

/* What the kernels in src/gpu/cuda support: gpu_supports of cuda, hip and sim. */
bool gpu_kernels_support(gpu_op op, quant_type type, const gpu_shape *shape);
/* "rope_store" */
const char *gpu_op_name(gpu_op op);

#ifdef __cplusplus
}
#endif
#endif
