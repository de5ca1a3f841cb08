/* measure_machine.h: the machine that a placement is for. */
#ifndef MEASURE_MEASURE_MACHINE_H
#define MEASURE_MEASURE_MACHINE_H

#include "place.h"
#include "powerinfer_tools.h"

/* A machine as the options ask for it: described, measured now, or measured before. `path`: a file
 * on the drive that is measured; NULL: none is.
 * PI_ERR_NOT_FOUND, and what reading, measuring and keeping it ran into. */
pi_status measure_machine(const pi_place_options *o, const char *path, place_machine *out,
                          pi_error *err);

#endif
