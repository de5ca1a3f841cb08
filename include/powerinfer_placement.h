/* powerinfer_placement.h: which layers and neurons of a context are on GPUs. Included by
 * powerinfer.h. */
#ifndef POWERINFER_PLACEMENT_H
#define POWERINFER_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "powerinfer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pi_context;

/* The actual placement, and why a GPU is not used. */
typedef struct pi_placement {
    const char *device;      /* devices in use: "cpu", "cuda", "cpu+cuda", ...; a static string */
    const char *device_name; /* "NVIDIA GeForce RTX 4090", the first one; "" without a GPU */
    int32_t n_devices;       /* GPUs; the fields below are sums over all of them */
    const char *reason;      /* why no GPU is used; NULL: one is, or none was requested */
    pi_status status;        /* of `reason`: PI_ERR_NOT_FOUND when there is no GPU */
    int32_t n_layers, gpu_layers; /* all layers; those with attention and KV cache on the GPU */
    bool head_on_gpu;
    double neuron_share;               /* fraction of all FFN neurons that is on the GPU */
    uint64_t gpu_weights, gpu_scratch; /* GPU memory, bytes: weights; buffers */
    uint64_t gpu_kv;                   /* KV cache of n_ctx positions; sessions allocate it */
    uint64_t gpu_programs;             /* recorded programs; an estimate */
    uint64_t gpu_runtime;              /* driver and kernels; an estimate */
    uint64_t gpu_budget;               /* upper bound of the sum of the above */
} pi_placement;

/* One of the GPUs: layers [first_layer, end_layer) are shared between it and the CPU. */
typedef struct pi_device_placement {
    const char *name;
    int32_t index; /* as pi_devices lists them */
    int32_t first_layer, end_layer;
    uint64_t bytes;  /* upper bound of the GPU memory in use */
    uint64_t budget; /* upper bound of `bytes` */
} pi_device_placement;

typedef struct pi_layer_placement {
    bool attention_on_gpu;
    int32_t device;           /* index of the GPU, 0..n_devices - 1 (pi_context_get_device) */
    int64_t n_hot, n_neurons; /* [0, n_hot) are on GPUs (the hot prefix), the rest on the CPU */
    int64_t n_own;            /* [0, n_own) are on `device`, [n_own, n_hot) on other GPUs */
} pi_layer_placement;

/* Strings are valid until the context is destroyed. When the GPU is lost later, or has no memory
 * for a session, the context falls back to the CPU: sessions keep their tokens, results stay the
 * same. */
PI_API void pi_context_get_placement(const struct pi_context *context, pi_placement *out);
PI_API void pi_context_get_device(const struct pi_context *context, int32_t device,
                                  pi_device_placement *out);
PI_API void pi_context_get_layer(const struct pi_context *context, int32_t layer,
                                 pi_layer_placement *out);

#ifdef __cplusplus
}
#endif
#endif
