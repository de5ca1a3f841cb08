/* affinity.h: CPU affinity, priority and NUMA policy of the program: --cpu-mask, --cpu-range,
 * --numa, --prio. */
#ifndef CLI_AFFINITY_H
#define CLI_AFFINITY_H

#include "options.h"

/* Applies to the calling thread and to threads that it creates afterwards. PI_ERR_ARG: malformed;
 * PI_ERR_UNSUPPORTED: the system refuses, or has no such CPUs. */
pi_status affinity_apply(const cli_options *o, pi_error *err);

#endif
