/* activity.h: counts of active neurons and experts (powerinfer_activity.h). Threads add to the
 * counts while a ubatch runs; everything else happens between calls. */
#ifndef EXEC_ACTIVITY_H
#define EXEC_ACTIVITY_H

#include <stdatomic.h>

#include "adapt.h"
#include "model.h"
#include "plan.h"
#include "powerinfer.h"

typedef struct activity_counts {
    const model *model;
    int n_bins;
    uint64_t n_ubatches;
    uint64_t *hot;          /* [n_layer] active units in the hot prefix */
    _Atomic uint32_t *bins; /* [n_layer][n_bins] */
    uint32_t *shown;        /* [n_layer][n_bins], the copies that activity_read hands out */
} activity_counts;

pi_status activity_create(const model *m, int n_bins, activity_counts **out, pi_error *err);
void activity_free(activity_counts *a); /* NULL is fine */
void activity_reset(activity_counts *a);

/* Counts neurons rows[0 .. n) of a layer as active; they ascend and are numbered from `first`. */
void activity_add_neurons(activity_counts *a, int layer, int64_t first, const int32_t *rows,
                          int64_t n);
/* Counts experts chosen[0 .. n), which the tokens of a ubatch chose in the layer of `e`; experts
 * may repeat. adapter: has the slots of experts; NULL: slots are the experts' numbers. */
void activity_add_experts(activity_counts *a, int layer, const plan_experts *e,
                          const expert_adapter *adapter, const int32_t *chosen, int n);
/* The counts of a layer; out->bins stays valid until the next call for this layer. */
void activity_read(const activity_counts *a, int layer, pi_layer_activity *out);

#endif
