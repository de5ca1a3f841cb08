/* args.h: arguments of the shaders, included by C and by GLSL. Members of 8 bytes come first, so that
 * both lay them out alike (std430); an address is a uint64_t, 0 where gpu_ops.h has NULL. A struct of
 * more than 128 bytes does not fit push constants: the shader says STORED instead of PUSHED. */
#ifndef GPU_VULKAN_ARGS_H
#define GPU_VULKAN_ARGS_H

#ifdef VULKAN /* glslc */
#define ARGS_BEGIN(name) struct name {
#define ARGS_END(name)   };
#define u64              uint64_t
#define u32              uint
#define i32              int
#else
#include <stdint.h>
#define ARGS_BEGIN(name) typedef struct name {
#define ARGS_END(name)   } name;
#define u64              uint64_t
#define u32              uint32_t
#define i32              int32_t
#endif

/* Bits of `flags`. */
#define PRODUCT_ADD        1
#define PRODUCT_RELU       2
#define PRODUCT_SCALE_LAST 4

ARGS_BEGIN(vulkan_product_args) /* of gpu_matmul */
u64 w, x, q8, bias, y;
u64 row_bytes;
i32 n_in, n_out, n_cols, ldx, ldy;
float scale;
u32 flags;
ARGS_END(vulkan_product_args)

#ifndef VULKAN
#undef u64
#undef u32
#undef i32
#endif
#endif
