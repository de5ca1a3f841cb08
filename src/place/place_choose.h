/* place_choose.h: opens the GPUs of a context and places a model on them. With
 * PI_DEVICE_AUTO or PI_DEVICES_AS_NEEDED, it uses one GPU if the model fits into it, else the
 * fewest of this kind that hold the model together, else all of them. */
#ifndef PLACE_PLACE_CHOOSE_H
#define PLACE_PLACE_CHOOSE_H

#include "place_device.h"

/* place_gpus_open and place_gpus_fit_create, with their errors. `engine` has the options for
 * creating the context. When it fails, nothing stays open. */
pi_status place_gpus_choose(const pi_context_options *o, const model *m,
                            const engine_options *engine, place_gpus *gpus, place_gpus_fit *fit,
                            pi_error *err);

#endif
