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

/* Values of pi_context_options.ram_budget. FREE: a model that is larger than what system and
 * control group leave free gets that, less a margin. MAPPED: weights stay in the mapped file. */
#define PI_RAM_FREE   UINT64_MAX
#define PI_RAM_MAPPED 0

typedef struct pi_memory {
    uint64_t budget; /* bytes; 0: there is none, all weights are mapped or in memory, and all that
                        follows is 0 */
    uint64_t needed; /* the least budget for this context */
    /* What the budget is used for, bytes: */
    uint64_t buffers;  /* working buffers, KV cache and the program itself */
    uint64_t always;   /* vectors, embeddings, output matrix, predictors */
    uint64_t pinned;   /* matrices of layers, and hot prefixes of neurons */
    uint64_t ring;     /* that other matrices pass through */
    uint64_t cache;    /* of experts and neurons */
    uint64_t streamed; /* bytes that pass through the ring in every ubatch */
    uint64_t cached;   /* all experts and neurons that the cache is for */
    /* Since the context was created: */
    uint64_t reads, read_bytes; /* of the drive */
    double read_seconds;        /* in which it was reading */
    uint64_t hits, misses;      /* experts' matrices and neurons that were wanted and in the cache,
                                   or not */
    uint64_t ahead, in_vain;    /* neurons and matrices that were read before their layer selected
                                   any; those of them that it did not select */
    const char *backend;        /* "io_uring", "threads"; a static string, NULL without a budget */
} pi_memory;

PI_API void pi_context_get_memory(const struct pi_context *context, pi_memory *out);
/* Bytes per second of the drive for reads of n_bytes each at random places of the model's file,
 * over about `seconds`. PI_ERR_ARG: there is no budget, or the file is smaller; PI_ERR_IO,
 * PI_ERR_NOMEM.
 */
PI_API pi_status pi_context_measure_drive(const struct pi_context *context, uint64_t n_bytes,
                                          double seconds, double *rate, pi_error *err);

#ifdef __cplusplus
}
#endif

#endif
