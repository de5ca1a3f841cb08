/* vulkan_kernels.h: the list of shaders. K(name, NAME, threads): shaders/NAME.comp, its number, and
 * the threads of its workgroups. */
#ifndef GPU_VULKAN_VULKAN_KERNELS_H
#define GPU_VULKAN_VULKAN_KERNELS_H

#define VULKAN_KERNELS(K)                                                                          \
    K(fill, FILL, 32)                                                                              \
    K(pack, PACK, 128)                                                                             \
    K(quantize, QUANTIZE, 128)                                                                     \
    K(norm, NORM, 256)                                                                             \
    K(matvec, MATVEC, 128)                                                                         \
    K(matmul, MATMUL, 256)                                                                         \
    K(matmul_t, MATMUL_T, 256)                                                                     \
    K(rope_angles, ROPE_ANGLES, 64)                                                                \
    K(rope_store, ROPE_STORE, 128)                                                                 \
    K(heads, HEADS, 128)                                                                           \
    K(latent_store, LATENT_STORE, 128)                                                             \
    K(compress_sum, COMPRESS_SUM, 64)                                                              \
    K(compress, COMPRESS, 128)                                                                     \
    K(blocks_score, BLOCKS_SCORE, 128)                                                             \
    K(blocks_choose, BLOCKS_CHOOSE, 256)                                                           \
    K(attention, ATTENTION, 128)                                                                   \
    K(attention_end, ATTENTION_END, 128)                                                           \
    K(conv, CONV, 128)                                                                             \
    K(recur, RECUR, 128)                                                                           \
    K(gate, GATE, 128)                                                                             \
    K(ffn_in, FFN_IN, 128)                                                                         \
    K(activate, ACTIVATE, 128)                                                                     \
    K(predict, PREDICT, 256)                                                                       \
    K(select, SELECT, 256)                                                                         \
    K(list, LIST, 256)                                                                             \
    K(down, DOWN, 128)                                                                             \
    K(down_add, DOWN_ADD, 256)                                                                     \
    K(top_k, TOP_K, 256)                                                                           \
    K(mix, MIX, 128)                                                                               \
    K(merge, MERGE, 256)                                                                           \
    K(hyper, HYPER, 128)                                                                           \
    K(hyper_mean, HYPER_MEAN, 128)                                                                 \
    K(past, PAST, 256)                                                                             \
    K(past_add, PAST_ADD, 128)                                                                     \
    K(add, ADD, 256)                                                                               \
    K(softcap, SOFTCAP, 256)                                                                       \
    K(route, ROUTE, 64)                                                                            \
    K(expert_in, EXPERT_IN, 128)                                                                   \
    K(expert_matvec, EXPERT_MATVEC, 128)                                                           \
    K(expert_down, EXPERT_DOWN, 128)                                                               \
    K(expert_sum, EXPERT_SUM, 256)                                                                 \
    K(expert_group, EXPERT_GROUP, 256)                                                             \
    K(expert_matmul, EXPERT_MATMUL, 256)                                                           \
    K(expert_matmul_t, EXPERT_MATMUL_T, 256)                                                       \
    K(publish, PUBLISH, 256)                                                                       \
    K(receive, RECEIVE, 256)                                                                       \
    K(stamp, STAMP, 32)

typedef enum vulkan_kernel {
#define VULKAN_KERNEL_ENUM(name, NAME, threads) VULKAN_##NAME,
    VULKAN_KERNELS(VULKAN_KERNEL_ENUM)
#undef VULKAN_KERNEL_ENUM
        VULKAN_KERNEL_COUNT
} vulkan_kernel;

/* Specialization constants of a pipeline. */
typedef struct vulkan_variant {
    uint32_t weights; /* vulkan_weights */
    uint32_t cols;    /* columns at a time: 1, 2 or 4 */
    uint32_t way;     /* see the shader */
} vulkan_variant;

#endif
