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

bool vulkan_supports(gpu_op op, quant_type type, const gpu_shape *shape) {
    return has_op(op) && gpu_kernels_support(op, type, shape);
}
