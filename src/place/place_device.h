/* place_device.h: the GPUs of a context: opens the devices, describes their machines, and places a
 * model on them. After a failure the caller may use the CPU alone: every function returns the
 * reason and leaves nothing open. place_fit_all needs no open device: contexts and `place` both
 * call it, so they agree on every byte. */
#ifndef PLACE_PLACE_DEVICE_H
#define PLACE_PLACE_DEVICE_H

#include "gpu.h"
#include "place_fit.h"
#include "plan_support.h"
#include "powerinfer.h"

typedef struct place_gpu {
    gpu_library library;
    gpu_device *device;
    int index; /* index within the backend */
    gpu_info info;
    place_machine machine;
    uint64_t budget;  /* budget from the user, or free memory minus a margin; includes `runtime` */
    uint64_t runtime; /* bytes of the budget that driver and kernels take */
} place_gpu;

typedef struct place_gpus {
    int n;                          /* 0: none is open */
    place_gpu gpu[PI_MAX_DEVICES];  /* in the order of the stages, all of one backend */
    double share[PI_MAX_DEVICES];   /* shares of the model */
    uint32_t peers[PI_MAX_DEVICES]; /* engine_options.peers */
} place_gpus;

/* What a model is placed on: GPUs that are open or only described, in the order of the stages. */
typedef struct place_request {
    int n;
    struct {
        const char *name; /* for messages */
        place_machine machine;
        uint64_t budget, runtime; /* bytes: all, and those of them for driver and kernels */
    } gpu[PI_MAX_DEVICES];
    double share[PI_MAX_DEVICES];   /* of the model, with n > 1 */
    uint32_t peers[PI_MAX_DEVICES]; /* engine_options.peers */
    gpu_supports *supports;         /* NULL: gpu_kernels_support */
    int64_t n_ctx, depth;           /* as in place_fit_options */
    int32_t gpu_layers;
    int max_batch; /* as in pi_context_options */
    double density;
    bool named; /* the GPUs were: a placement that is predicted to be slower is better than none */
} place_request;

/* Placement on the GPUs: splits for all GPUs, and the bytes of each. */
typedef struct place_gpus_fit {
    place_plan plan;
    int end[PI_MAX_DEVICES];         /* stage d ends before this layer */
    place_fit stage[PI_MAX_DEVICES]; /* each plan places the other stages on the CPU */
    uint32_t merge_norms;            /* plan_options.merge_norms */
    plan_support support;            /* why parts stay on the CPU */
    int n_batch;                     /* tokens per ubatch */
    double prompt_seconds;           /* predicted for PLACE_PROMPT_TOKENS; 0: nothing is on a GPU */
    uint64_t prompt_copies;          /* bytes that a ubatch of n_batch tokens copies to the GPUs */
} place_gpus_fit;

/* Whether these options use a GPU; whether they name one explicitly. */
bool place_wants_gpu(const pi_context_options *o);
bool place_expects_gpu(const pi_context_options *o);

/* The device (of n) with the least predicted time to read `need` bytes of weights, if the CPU reads
 * the weights that do not fit into `budget` bytes of the device's free memory. need 0: unknown. */
int place_choose_device(const gpu_info *infos, int n, uint64_t need, uint64_t budget);

/* Opens the devices that the options ask for (they must ask for one), with their budget as the
 * limit of each device. `need`: bytes of the model's weights; 0: unknown. PI_ERR_NOT_FOUND: no such
 * backend or device, and no GPU that needs it (gpu_presence.h); PI_ERR_LIMIT: the budget is too
 * small to open a device; also the errors of opening it. */
pi_status place_gpus_open(const pi_context_options *o, uint64_t need, place_gpus *out,
                          pi_error *err);
/* Opens one more device of the same backend; *at: its place among the GPUs, which are in the order
 * of their indices from then on. An error leaves `g` as it is. */
pi_status place_gpus_add(const pi_context_options *o, int index, place_gpus *g, int *at,
                         pi_error *err);
void place_gpus_close(place_gpus *g); /* accepts a zeroed one */

/* place_stays_create for a context's options. */
pi_status place_option_stays(const model *m, const pi_context_options *o, uint8_t **out,
                             pi_error *err);

/* Splits for a model, and the tokens per ubatch: those of `engine`, or up to r->max_batch if a turn
 * (place_prompt.h) is predicted to take less time. `engine` has the options for creating the
 * context. Parts that the GPUs do not support stay on the CPU. Stages may have nothing
 * (place_fit.any). PI_ERR_UNSUPPORTED: the GPUs support no part; the errors of place_fit_create. */
pi_status place_fit_all(const place_request *r, const model *m, const engine_options *engine,
                        place_gpus_fit *out, pi_error *err);
/* Whether the GPUs hold all of r->gpu_layers >= 0 layers, with all their neurons, in the stages of
 * place_fit_all. `engine` says what stays on the CPU. The errors of place_fit_create. */
pi_status place_holds_all(const place_request *r, const model *m, const engine_options *engine,
                          bool *holds, pi_error *err);
/* Whether the budget of GPU d is too small for anything of its stage; then the error says what
 * would help. */
bool place_is_too_small(const place_request *r, const place_gpus_fit *f, int d, pi_error *err);

/* The request for opened devices. Its names live as long as `g`. */
place_request place_gpus_request(const place_gpus *g, const model *m, const pi_context_options *o);
/* place_fit_all on opened devices. PI_ERR_UNSUPPORTED: the devices support no part; PI_ERR_LIMIT:
 * all of a stage would be on the CPU, because nothing fits or, if no device was named, because the
 * CPU is faster. A named device gets as many layers as fit. */
pi_status place_gpus_fit_create(const place_gpus *g, const model *m, const engine_options *engine,
                                const pi_context_options *o, place_gpus_fit *out, pi_error *err);
void place_gpus_fit_free(place_gpus_fit *f); /* accepts a zeroed one */

#endif
