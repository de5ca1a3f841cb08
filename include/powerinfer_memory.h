/* powerinfer_memory.h: how a memory budget is divided, and reads of the drive. Included by
 * powerinfer.h; docs/memory.md. */
#ifndef POWERINFER_MEMORY_H
#define POWERINFER_MEMORY_H

#include <stdint.h>

#include "powerinfer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pi_context;

/* Values of pi_context_options.ram_budget. FREE: a model larger than the free memory of machine and
 * control group gets the free memory minus a margin as its budget; a smaller one has no budget.
 * MAPPED: weights stay in the mapped file. */
#define PI_RAM_FREE   UINT64_MAX
#define PI_RAM_MAPPED 0

typedef struct pi_memory {
    uint64_t budget; /* bytes; 0: no budget, all weights are mapped or in memory, and all other
                        fields are 0 */
    uint64_t needed; /* the least budget for this context */
    /* Use of the budget, bytes: */
    uint64_t buffers;  /* working buffers, KV cache and the program itself */
    uint64_t always;   /* vectors, embeddings, output matrix, predictors */
    uint64_t pinned;   /* matrices of layers, and hot prefixes of neurons */
    uint64_t ring;     /* buffer that streamed matrices pass through */
    uint64_t cache;    /* of experts and neurons */
    uint64_t streamed; /* bytes that pass through the ring in every ubatch */
    uint64_t cached;   /* size of all experts and neurons that the cache serves */
    /* Since the context was created: */
    uint64_t reads, read_bytes; /* of the drive */
    double read_seconds;        /* time in which the drive was reading */
    uint64_t hits, misses;   /* selected neurons and experts' matrices: found in the cache; read */
    uint64_t ahead, in_vain; /* neurons and matrices read before their layer selected any; those
                                that the layer then did not select */
    const char *backend; /* "io_uring", "overlapped", "threads"; static, NULL without a budget */
} pi_memory;

PI_API void pi_context_get_memory(const struct pi_context *context, pi_memory *out);
/* Bytes per second of the drive for reads of n_bytes each at random places of the model's file,
 * over about `seconds`. PI_ERR_ARG: no budget, or the file is smaller; PI_ERR_IO, PI_ERR_NOMEM. */
PI_API pi_status pi_context_measure_drive(const struct pi_context *context, uint64_t n_bytes,
                                          double seconds, double *rate, pi_error *err);

#ifdef __cplusplus
}
#endif

#endif
