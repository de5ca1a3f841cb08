/* place_cost.h: the cost of an item of a placement: a layer, or the head as a last layer without
 * neurons. Private to src/place. Solver and prediction use the same items, so the solver minimises
 * the reported time. */
#ifndef PLACE_PLACE_COST_H
#define PLACE_PLACE_COST_H

#include "place.h"

/* Transfer of the residual stream from one GPU to the next, in exchanges: one way only, without CPU
 * barriers. Each of the two stages counts half of it. */
#define PLACE_HAND_OFF 0.5

typedef struct place_item {
    const place_layer *layer;  /* NULL: the head */
    double always[PLAN_SIDES]; /* seconds for always-read data, by primary */
    double kv[PLAN_SIDES];
    uint64_t bytes;      /* GPU memory if the GPU is the primary */
    int64_t n_units;     /* groups of neurons */
    uint64_t unit_bytes; /* GPU memory of a group */
    /* Seconds: per group, per gathered byte, and fixed if the device has any neurons (kernels,
     * barriers). */
    double stream[PLAN_SIDES], gather[PLAN_SIDES], overhead[PLAN_SIDES];
    double floor; /* seconds, with one memory for both: a lower limit for the neurons */
    double sync;
    int64_t balance; /* the least k for which the GPU takes as long as the CPU */
} place_item;

/* [w->n_layers + 1]; the last one is the head. */
void place_items_fill(const place_workload *w, const place_machine *m, place_item *items);

/* Time of a layer with a split; m: the machine of every GPU in the split. */
place_layer_time place_time_layer(const place_layer *l, const place_machine *m,
                                  const plan_split *split);

/* Time of the neurons and their exchange, without helpers. */
double place_ffn_time(const place_item *item, plan_side primary, int64_t k);

#endif
