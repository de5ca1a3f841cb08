/* random_place.h: small random workloads and machines for the tests of placement. Times of their
 * parts are of the same order, so that every kind of decision is worth something. */
#ifndef TESTS_RANDOM_PLACE_H
#define TESTS_RANDOM_PLACE_H

#include "place.h"
#include "rng.h"

/* n_layers layers of at most max_units groups of neurons. */
void random_workload(rng *r, int n_layers, int max_units, place_workload *out);
place_machine random_machine(rng *r);
/* All weights and the whole KV cache. */
uint64_t workload_bytes(const place_workload *w);
/* Up to a little more than everything needs. */
uint64_t random_budget(rng *r, const place_workload *w, const place_machine *m);

/* Predicted seconds and bytes of GPU memory (margin included) of a plan, formulated anew: a loop
 * over neurons instead of prefix sums. */
double plain_seconds(const place_workload *w, const place_machine *m, const place_plan *p);
double plain_bytes(const place_workload *w, const place_machine *m, const place_plan *p);

#endif
