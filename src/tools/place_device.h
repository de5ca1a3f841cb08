/* place_device.h: the GPU that a context uses, from a user's wish to an opened device, a machine's
 * description and cuts. What goes wrong on the way is a reason to compute on the processor alone,
 * not an error: every function here says why and leaves nothing open. */
#ifndef TOOLS_PLACE_DEVICE_H
#define TOOLS_PLACE_DEVICE_H

#include "gpu.h"
#include "place_fit.h"
#include "powerinfer.h"

typedef struct place_device_options {
    const char *name;     /* "cuda", "hip", "sim"; NULL: the best there is but sim */
    const char *folder;   /* of the backends; NULL: the usual ones */
    const char *machine;  /* file with what place --measure found; NULL: none */
    uint64_t vram_budget; /* bytes, what runtime and driver take included; PI_VRAM_FREE */
} place_device_options;

typedef struct place_gpu {
    gpu_library library;
    gpu_device *device;
    gpu_info info;
    place_machine machine;
    uint64_t budget;  /* of the user, or what is free now less a margin, with `runtime` */
    uint64_t runtime; /* of this, what driver and kernels take */
} place_gpu;

/* PI_ERR_NOT_FOUND: no such backend or device; PI_ERR_LIMIT: the budget is too small for it to be
 * opened; and what opening it ran into. */
pi_status place_gpu_open(const place_device_options *o, place_gpu *out, pi_error *err);
void place_gpu_close(place_gpu *g); /* a zeroed one is fine */

/* This machine, with this GPU: as measured (`cache`, NULL: none), or else from data sheets. */
void place_gpu_machine(const gpu_backend *b, const gpu_info *info, const char *cache,
                       place_machine *out);

#endif
