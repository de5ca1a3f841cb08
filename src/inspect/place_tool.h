/* place_tool.h: shared by the sources of pi_place: the report of a placement and its forms.
 * src/place computes the placement. */
#ifndef INSPECT_PLACE_TOOL_H
#define INSPECT_PLACE_TOOL_H

#include "place_memory.h"
#include "place_prompt.h"
#include "powerinfer_tools.h"

typedef struct place_report {
    const char *model_name;
    const place_machine *machine; /* [n_devices] */
    int n_devices;
    int end[PI_MAX_DEVICES]; /* end layer of each GPU's stage */
    const uint32_t *peers;   /* bit j of peers[i]: GPU i reaches GPU j; NULL: not known */
    const place_workload *work;
    const place_plan *plan;
    const place_prediction *prediction;
    const place_layer_time *layers;   /* [n_layers] */
    const place_memory *memory;       /* NULL: all weights are in memory */
    const char *mode;                 /* of most layers */
    uint64_t budget;                  /* of the first GPU */
    uint64_t budgets[PI_MAX_DEVICES]; /* [n_devices] */
    int32_t n_ctx, depth;
    /* With something on a GPU: tokens per ubatch, seconds of a prompt of PLACE_PROMPT_TOKENS, bytes
     * that a ubatch copies to the GPUs. */
    int32_t n_batch;
    double prompt_seconds;
    uint64_t prompt_copies;
} place_report;

void place_write_json(const place_report *r, FILE *out);
void place_write_text(const place_report *r, FILE *out);
/* The file appears complete or not at all. */
pi_status place_write_svg(const place_report *r, const char *path, pi_error *err);
/* "neurons on the GPU", "the head", ...: the largest term that is not hidden behind another. */
const char *place_bound_name(const place_workload *work, const place_prediction *p);

#endif
