/* api_cluster.h: contexts on several machines. Private to src/api. */
#ifndef API_API_CLUSTER_H
#define API_API_CLUSTER_H

#include "api_types.h"

/* On rank 0, before api_place: compares the ranks and divides the layers; fills in c->options and
 * c->ranks. The other ranks then create their parts. */
pi_status api_cluster_begin(pi_context *c, pi_cluster *group, pi_error *err);
/* After api_place: whether all other ranks have their parts. */
pi_status api_cluster_end(pi_context *c, pi_error *err);

#endif
