/* place_stages.c: which layers belong to which of several GPUs. Stages are ranges of whole layers;
 * within its stage every device is placed on as if it were the only one. */
#include <string.h>

#include "mem.h"
#include "place.h"

static double layer_bytes(const place_layer *l) {
    return (double)(l->always_bytes + l->predictor_bytes + l->kv_bytes) +
           (double)(l->n / l->unit) * (double)l->unit_bytes;
}

/* The layers from `layer` on that one device must have: where they end, and their bytes. */
static int together(const place_workload *w, int layer, double *bytes) {
    *bytes = layer_bytes(&w->layers[layer]);
    while (++layer < w->n_layers && w->layers[layer].with_previous)
        *bytes += layer_bytes(&w->layers[layer]);
    return layer;
}

/* A layer goes where its middle falls, the last one with the head. */
void place_choose_stages(const place_workload *w, const double *shares, int n, int first,
                         int *end) {
    double all = (double)w->head_bytes, sum = 0, share = 0, before = 0;
    for (int i = first; i < w->n_layers; i++) all += layer_bytes(&w->layers[i]);
    for (int d = 0; d < n; d++) sum += shares[d];
    int layer = first < w->n_layers ? first : w->n_layers;
    for (int d = 0; d < n; d++) {
        share += shares[d];
        while (layer < w->n_layers) {
            double bytes;
            int next = together(w, layer, &bytes);
            bool full = before + bytes / 2 >= all * (share / sum) || next == w->n_layers;
            if (d < n - 1 && full) break;
            before += bytes;
            layer = next;
        }
        end[d] = layer;
    }
}

void place_workload_keep(place_workload *w, int first, int end) {
    for (int i = 0; i < w->n_layers; i++)
        if (i < first || i >= end) w->layers[i].always_stays = w->layers[i].neurons_stay = true;
    if (end < w->n_layers) w->head_stays = true;
}

/* Seconds with everything on the CPU; `like` has such cuts. */
static double alone(const place_workload *w, const place_machine *m, const place_plan *like) {
    place_prediction p;
    const place_plan cpu = {.n_layers = w->n_layers, .cuts = like->cuts};
    place_predict(w, m, &cpu, &p, NULL);
    return p.seconds;
}

/* Every stage is solved with the others on the CPU. A prediction is a sum over layers, so that the
 * whole one is the sum of these, less what the CPU alone takes for the layers counted twice; and so
 * are their bounds. */
pi_status place_solve_stages(const place_workload *w, const place_machine *m,
                             const uint64_t *budgets, const int *end, int n, place_plan *out,
                             pi_error *err) {
    if (n == 1) return place_solve(w, m, budgets[0], out, err);
    size_t n_layers = (size_t)w->n_layers;
    place_workload stage = *w;
    *out = (place_plan){.n_layers = w->n_layers, .cuts = mem_calloc(n_layers, sizeof *out->cuts)};
    stage.layers = mem_calloc(n_layers, sizeof *stage.layers);
    pi_status status = PI_OK;
    if (!out->cuts || !stage.layers)
        status = error_nomem(err, n_layers * sizeof *stage.layers, "layers");
    double cpu = status == PI_OK ? alone(w, m, out) : 0, bound = cpu;
    for (int d = 0, first = 0; d < n && status == PI_OK; first = end[d++]) {
        place_plan found = {0};
        if (first == end[d]) continue;
        memcpy(stage.layers, w->layers, n_layers * sizeof *stage.layers);
        stage.head_stays = w->head_stays;
        place_workload_keep(&stage, first, end[d]);
        status = place_solve(&stage, &m[d], budgets[d], &found, err);
        for (int i = first; i < end[d] && status == PI_OK; i++) {
            out->cuts[i] = found.cuts[i];
            out->cuts[i].device = d;
        }
        if (found.head == SIDE_GPU) out->head = SIDE_GPU;
        bound += found.bound - cpu;
        place_plan_free(&found);
    }
    out->bound = bound;
    mem_free(stage.layers);
    if (status != PI_OK) place_plan_free(out);
    return status;
}
