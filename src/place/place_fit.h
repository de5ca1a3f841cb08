/* place_fit.h: the splits that a context gets: as fast as predicted, and within a budget of device
 * memory to the byte. The solver's sums are close; what counts is what the engine would allocate
 * (engine_gpu_size), and the solver is asked again until that fits. */
#ifndef PLACE_PLACE_FIT_H
#define PLACE_PLACE_FIT_H

#include "engine.h"
#include "place.h"

enum {
    PLACE_DEFAULT_CONTEXT = 8192, /* positions by default, of models trained for more */
    PLACE_DEFAULT_DEPTH = 512     /* positions that the predicted token attends to */
};

typedef struct place_fit_options {
    const model *model;
    const engine_options *engine; /* its plan's splits and head are not looked at */
    const place_machine *machine; /* its runtime and margin are not counted */
    uint64_t budget;      /* bytes that the context, its programs and its sessions may take */
    size_t node_bytes;    /* of the device that is opened */
    int64_t n_ctx, depth; /* positions of all sessions; those that a token attends to */
    int32_t gpu_layers;   /* -1: the fastest placement; else the last N layers are offloaded whole,
                             and the output head when N > n_layer */
    int first, end;       /* layers that the device may have; with the last one, the head */
    int device;           /* that the plan's splits name; place_fit_create: 0 */
    double density;       /* as in place_use */
} place_fit_options;

typedef struct place_fit {
    place_plan plan;
    bool any;               /* something is on the GPU */
    gpu_exec_bytes bytes;   /* all zero without anything */
    uint64_t kv_bytes;      /* kv_per_position * n_ctx, and a session's state */
    uint64_t program_bytes; /* program_nodes * node_bytes */
    uint64_t least; /* when nothing is on the GPU: bytes of the least placement there; 0: unknown */
    int32_t gpu_layers; /* with gpu_layers: how many fit */
    place_workload work;
    const char *mode; /* of most layers */
} place_fit;

/* Nothing that fits is no error. PI_ERR_NOMEM, PI_ERR_ARG, PI_ERR_RANGE, and what
 * engine_gpu_size finds wrong with the options. */
pi_status place_fit_create(const place_fit_options *o, place_fit *out, pi_error *err);
void place_fit_free(place_fit *f); /* a zeroed one is fine */

/* Fills in what the engine would take for a plan. */
pi_status place_fit_measure(const place_fit_options *o, const place_plan *p, place_fit *f,
                            pi_error *err);
uint64_t place_fit_bytes(const place_fit *f); /* of device memory, all together */

/* A model in the modes that a context would take under these options, the mode of most layers in
 * *mode; `use` gives everything except its modes. As place_workload_create. */
pi_status place_make_workload(const model *m, const plan_options *asked, place_use use,
                              place_workload *out, const char **mode, pi_error *err);
/* Default number of positions of a context. */
int64_t place_default_context(const model *m);

#endif
