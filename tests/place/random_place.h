/* random_place.h: small random workloads and machines for the tests of placement. The times of
 * their parts have the same order of magnitude, so that every kind of decision matters. */
#ifndef TESTS_RANDOM_PLACE_H
#define TESTS_RANDOM_PLACE_H

#include "place.h"
#include "rng.h"

/* Makes n_layers layers of at most max_units groups of neurons. */
void random_workload(rng *r, int n_layers, int max_units, place_workload *out);
place_machine random_machine(rng *r);
/* Bytes of all weights and the whole KV cache. */
uint64_t workload_bytes(const place_workload *w);
/* A random budget, up to slightly more than all bytes. */
uint64_t random_budget(rng *r, const place_workload *w, const place_machine *m);

/* Seconds of an exchange with so many bytes. */
double plain_exchange(const place_machine *m, uint64_t bytes);

/* Second formulation of the predicted seconds and bytes of GPU memory (margin included) of a plan:
 * a loop over neurons instead of prefix sums. */
double plain_seconds(const place_workload *w, const place_machine *m, const place_plan *p);
double plain_bytes(const place_workload *w, const place_machine *m, const place_plan *p);

#endif
