/* place_device.h: the GPUs of a context: opens the devices and describes their machines. After a
 * failure the caller may use the CPU alone: every function returns the reason and leaves nothing
 * open. */
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

/* Placement on the GPUs: splits for all GPUs, and the bytes of each. */
typedef struct place_gpus_fit {
    place_plan plan;
    int end[PI_MAX_DEVICES];         /* stage d ends before this layer */
    place_fit stage[PI_MAX_DEVICES]; /* each plan places the other stages on the CPU */
    plan_support support;            /* why parts stay on the CPU */
} place_gpus_fit;

/* Whether these options use a GPU; whether they name one explicitly. */
bool place_wants_gpu(const pi_context_options *o);
bool place_expects_gpu(const pi_context_options *o);

/* The device (of n) with the least predicted time to read `need` bytes of weights, if the CPU reads
 * the weights that do not fit into `budget` bytes of the device's free memory. need 0: unknown. */
int place_choose_device(const gpu_info *infos, int n, uint64_t need, uint64_t budget);

/* Opens the devices that the options ask for (they must ask for one), with their budget as the
 * limit of each device. `need`: bytes of the model's weights; 0: unknown. PI_ERR_NOT_FOUND: no such
 * backend or device; PI_ERR_LIMIT: the budget is too small to open a device; also the errors of
 * opening it. */
pi_status place_gpus_open(const pi_context_options *o, uint64_t need, place_gpus *out,
                          pi_error *err);
void place_gpus_close(place_gpus *g); /* accepts a zeroed one */

/* place_stays_create for a context's options. */
pi_status place_option_stays(const model *m, const pi_context_options *o, uint8_t **out,
                             pi_error *err);

/* Splits for a model on opened devices; `engine` has the options for creating the context. Parts
 * that the devices do not support stay on the CPU. PI_ERR_UNSUPPORTED: the devices support no part;
 * PI_ERR_LIMIT: all of a stage would be on the CPU, because nothing fits or, if no device was
 * named, because the CPU is faster. A named device gets as many layers as fit. */
pi_status place_gpus_fit_create(const place_gpus *g, const model *m, const engine_options *engine,
                                const pi_context_options *o, place_gpus_fit *out, pi_error *err);
void place_gpus_fit_free(place_gpus_fit *f); /* accepts a zeroed one */

#endif
