/* vulkan_support.c: the operations and shapes that the shaders support, with all types. */
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

/* Attention to selected blocks or positions, and to compressed keys, is missing. */
bool vulkan_supports(gpu_op op, quant_type type, const gpu_shape *shape) {
    const bool selects = shape && shape->index_dim > 0 &&
                         (op == GPU_OP_ATTENTION || op == GPU_OP_ROPE_STORE);
    const bool joint = shape && shape->joint && op == GPU_OP_ATTENTION;
    return has_op(op) && !selects && !joint && gpu_kernels_support(op, type, shape);
}
