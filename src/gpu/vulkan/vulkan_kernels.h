/* vulkan_kernels.h: the list of shaders. K(name, NAME, threads): shaders/NAME.comp, its number, and the
 * threads of its workgroups. */
#ifndef GPU_VULKAN_VULKAN_KERNELS_H
#define GPU_VULKAN_VULKAN_KERNELS_H

#define VULKAN_KERNELS(K) K(matvec, MATVEC, 128)

typedef enum vulkan_kernel {
#define VULKAN_KERNEL_ENUM(name, NAME, threads) VULKAN_##NAME,
    VULKAN_KERNELS(VULKAN_KERNEL_ENUM)
#undef VULKAN_KERNEL_ENUM
        VULKAN_KERNEL_COUNT
} vulkan_kernel;

/* Specialization constants of a pipeline. */
typedef struct vulkan_variant {
    uint32_t type; /* quant_type of the weights */
    uint32_t cols; /* columns at a time: 1, 2 or 4 */
    uint32_t way;  /* see the shader */
} vulkan_variant;

#endif
