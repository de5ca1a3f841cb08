/* gpu_size.h: the GPU memory that a context takes, and the way of prefill, which adds to it. */
#ifndef EXEC_GPU_SIZE_H
#define EXEC_GPU_SIZE_H

#include "model.h"

/* How prefill treats the cold neurons of layers whose primary is the GPU. */
typedef enum gpu_prompts {
    GPU_PROMPTS_AUTO,    /* whichever is expected to be faster for the size of the ubatch */
    GPU_PROMPTS_SPLIT,   /* the CPU computes them while the GPU computes the hot neurons */
    GPU_PROMPTS_STREAMED /* their rows are copied to the GPU, which computes all neurons */
} gpu_prompts;

/* Prefill, as gpu_prefill.c expects it from constant rates of the CPU. */
typedef struct gpu_exec_prompt {
    uint64_t cold_bytes; /* of cold rows, which a ubatch of `streams_from` tokens or more copies */
    int streams_from;    /* INT_MAX: none does */
    double copy_seconds; /* of the copies of a ubatch */
    double cold_seconds; /* per token: the CPU computes the cold rows with all threads */
    double cpu_seconds;  /* per token: the other products on the CPU */
    double products;     /* per token: multiplications on the GPU, without those of cold rows */
    double cold_products;
} gpu_exec_prompt;

/* Bytes of a device's memory that a context and its sessions take. */
typedef struct gpu_exec_bytes {
    uint64_t weights, scratch; /* of the context */
    uint64_t kv_per_position;  /* of a session, times its n_ctx */
    uint64_t state;            /* of a session: recurrent layers, with snapshots */
    /* Kernels in the recorded programs that are kept; the device knows their bytes
     * (gpu_backend.node_bytes). */
    uint64_t program_nodes;
    gpu_exec_prompt prompt;
} gpu_exec_bytes;
enum { GPU_EXEC_PROGRAMS = 12 }; /* recorded programs that are kept, one per shape of a ubatch */

/* The part of a context's scratch memory, with ubatches of n_batch tokens, for messages of another
 * GPU that reaches this one. */
uint64_t gpu_exec_inbox_bytes(const model *m, int n_batch);

#endif
