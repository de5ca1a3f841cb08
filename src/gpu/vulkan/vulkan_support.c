/* vulkan_support.c: the operations, types and shapes that the shaders support. */
#include "vulkan.h"
#include "vulkan_ops.h"

static bool has_op(gpu_op op) {
    switch (op) {
#define CASE(name, NAME) case GPU_OP_##NAME:
        VULKAN_OPS(CASE)
#undef CASE
        return true;
    default:
        return false;
    }
}

/* The types of formats.glsl. */
static bool has_type(quant_type type) {
    switch (type) {
    case QUANT_F32:
    case QUANT_F16:
    case QUANT_BF16:
    case QUANT_Q4_0:
    case QUANT_Q4_1:
    case QUANT_Q5_0:
    case QUANT_Q5_1:
    case QUANT_Q8_0:
    case QUANT_Q2_K:
    case QUANT_Q3_K:
    case QUANT_Q4_K:
    case QUANT_Q5_K:
    case QUANT_Q6_K:
    case QUANT_IQ4_NL:
    case QUANT_IQ4_XS:
    case QUANT_MXFP4:
    case QUANT_NVFP4:
        return true;
    default:
        return type == GPU_NO_TYPE;
    }
}

/* Less than the CUDA kernels: no compressed attention, no selected blocks. */
static bool fits(gpu_op op, const gpu_shape *s) {
    if (op == GPU_OP_ATTENTION || op == GPU_OP_ROPE_STORE)
        return !s->latent && s->index_dim == 0 && gpu_kernels_support(op, GPU_NO_TYPE, s);
    return gpu_kernels_support(op, GPU_NO_TYPE, s);
}

bool vulkan_supports(gpu_op op, quant_type type, const gpu_shape *shape) {
    return has_op(op) && has_type(type) && (!shape || fits(op, shape));
}
