/* measure_machine.h: the machine that a placement is for. */
#ifndef MEASURE_MEASURE_MACHINE_H
#define MEASURE_MEASURE_MACHINE_H

#include "place.h"
#include "powerinfer_tools.h"

/* One machine per GPU, with one CPU, in the order of stages; n is 1 without a GPU. */
typedef struct measured_machines {
    int n;
    place_machine machine[PI_MAX_DEVICES];
    double share[PI_MAX_DEVICES];   /* of the model, with n > 1 */
    bool here;                      /* the GPUs are of this machine, so that `peers` is known */
    uint32_t peers[PI_MAX_DEVICES]; /* bit j of peers[i]: GPU i reaches GPU j */
} measured_machines;

/* The machine of the options: described, measured now, or measured before. `path`: a file on the
 * drive to measure; NULL: no drive is measured. A described machine has a GPU for each share.
 * PI_ERR_NOT_FOUND, and errors of reading, measuring and saving. */
pi_status measure_machine(const pi_place_options *o, const char *path, measured_machines *out,
                          pi_error *err);

#endif
