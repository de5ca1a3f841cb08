/* place_memory.h: the cost of a token if the CPU's weights do not fit into memory: the drive with
 * the model is a third tier, with a rate for long reads and a cost per read. The engine divides the
 * budget (paging.h) as for a context, but reads nothing. */
#ifndef PLACE_PLACE_MEMORY_H
#define PLACE_PLACE_MEMORY_H

#include "engine.h"
#include "place.h"

typedef struct place_memory {
    uint64_t budget, needed; /* bytes; the least budget */
    uint64_t beside;         /* bytes for buffers, KV cache and the program */
    uint64_t weights;        /* bytes of weights in memory at any time */
    double reads, bytes;     /* expected reads and bytes of the drive per token */
    double drive; /* seconds of the drive per token; 0 with bytes > 0: the drive was not measured */
    double seconds; /* per token: with all weights in memory, plus the drive's */
} place_memory;

typedef struct place_memory_case {
    const model *model;
    const place_workload *work;
    const place_machine *machine;
    const place_plan *plan;
} place_memory_case;

/* `prediction` is the plan's prediction. Uses the options' memory budget and positions, ignores
 * their splits. PI_ERR_ARG: the model is not in a file; PI_ERR_LIMIT: the budget is too small;
 * PI_ERR_IO, PI_ERR_NOMEM. */
pi_status place_memory_predict(const place_memory_case *c, const engine_options *options,
                               const place_prediction *prediction, place_memory *out,
                               pi_error *err);

#endif
