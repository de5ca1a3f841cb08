/* place_tool.h: what the sources of pi_place share. The placement itself is src/place; here are its
 * inputs (a machine's description, a shape that stands in for a model) and its output. */
#ifndef TOOLS_PLACE_TOOL_H
#define TOOLS_PLACE_TOOL_H

#include "gpu.h"
#include "place.h"
#include "powerinfer_tools.h"

/* A machine as the options ask for it (place_profile.c). */
pi_status place_profile_load(const pi_place_options *o, place_machine *out, pi_error *err);

/* This machine with a GPU: as measured and kept in the file `cache` (NULL: none), or as published.
 */
void place_profile_of_gpu(const gpu_info *info, const char *cache, place_machine *out);

/* A model without weights: sizes, types and statistics of what pi_synth would write. Its tensors
 * point nowhere; only their presence and sizes may be looked at. */
typedef struct place_shape {
    model model;
} place_shape;
pi_status place_shape_create(const pi_synth_options *options, place_shape *out, pi_error *err);
void place_shape_free(place_shape *s); /* a zeroed one is fine */

typedef struct place_report {
    const char *model_name;
    const place_machine *machine;
    const place_workload *work;
    const place_plan *plan;
    const place_prediction *prediction;
    const place_layer_time *layers; /* [n_layers] */
    const char *mode;               /* of most layers */
    uint64_t budget;
    int32_t n_ctx, depth;
} place_report;

void place_write_json(const place_report *r, FILE *out);
void place_write_text(const place_report *r, FILE *out);
/* The file appears complete or not at all. */
pi_status place_write_svg(const place_report *r, const char *path, pi_error *err);
/* "GPU memory bandwidth", "exchanges", ...: the largest term that is not hidden behind another. */
const char *place_bound_name(const place_prediction *p);

#endif
