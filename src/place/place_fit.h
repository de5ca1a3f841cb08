/* place_fit.h: the splits of a context: the fastest placement whose exact allocations fit a budget
 * of device memory. The solver's sums are approximate, so it runs again until the engine's
 * allocations (engine_gpu_size) fit. */
#ifndef PLACE_PLACE_FIT_H
#define PLACE_PLACE_FIT_H

#include "engine.h"
#include "place.h"

enum {
    PLACE_DEFAULT_CONTEXT = 8192, /* default positions of models trained for more */
    PLACE_DEFAULT_DEPTH = 512     /* positions that the predicted token attends to */
};

typedef struct place_fit_options {
    const model *model;
    const engine_options *engine; /* the splits and head of its plan are ignored */
    const place_machine *machine; /* its runtime and margin are ignored */
    uint64_t budget;              /* maximum bytes of the context, its programs and its sessions */
    size_t node_bytes;            /* device bytes per node of a program */
    int64_t n_ctx, depth;         /* positions of all sessions; positions that a token attends to */
    int32_t gpu_layers; /* -1: the fastest placement; else the last N layers are offloaded whole,
                           and the output head when N > n_layer */
    int first, end;     /* layers that may be on the device; the last layer includes the head */
    int device;         /* device number in the plan's splits; place_fit_create: 0 */
    double density;     /* as in place_use */
    bool always;        /* take the smallest placement even if it is slower than none */
} place_fit_options;

typedef struct place_fit {
    place_plan plan;
    bool any;               /* something is on the GPU */
    gpu_exec_bytes bytes;   /* all zero when nothing is on the GPU */
    uint64_t kv_bytes;      /* kv_per_position * n_ctx, and a session's state */
    uint64_t program_bytes; /* program_nodes * node_bytes */
    /* If nothing is on the GPU: the budget, and the bytes of the smallest placement, 0: unknown. If
     * that exceeds the budget: the largest power of two of tokens per ubatch with which it would
     * fit, 0: none; whether it would fit without the KV cache. */
    uint64_t budget, least;
    int32_t least_batch;
    bool least_without_kv;
    int32_t gpu_layers; /* with gpu_layers: the number that fits */
    place_workload work;
    const char *mode; /* mode of most layers */
} place_fit;

/* A plan may have nothing on the GPU. PI_ERR_NOMEM, PI_ERR_ARG, PI_ERR_RANGE, and the errors of
 * engine_gpu_size for the options. */
pi_status place_fit_create(const place_fit_options *o, place_fit *out, pi_error *err);
void place_fit_free(place_fit *f); /* accepts a zeroed one */

/* Fills in the bytes that the engine would allocate for a plan. */
pi_status place_fit_measure(const place_fit_options *o, const place_plan *p, place_fit *f,
                            pi_error *err);
uint64_t place_fit_bytes(const place_fit *f); /* total device memory */

/* The workload of the model in the modes that a context with these options would use; *mode: the
 * mode of most layers. All other values come from `use`. Errors as place_workload_create. */
pi_status place_make_workload(const model *m, const plan_options *asked, place_use use,
                              place_workload *out, const char **mode, pi_error *err);
/* Default number of positions of a context. */
int64_t place_default_context(const model *m);

#endif
