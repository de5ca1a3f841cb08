/* place_stages.c: which layers belong to which of several GPUs. Stages are ranges of whole layers;
 * within its stage every device is placed on as if it were the only one. */
#include "place.h"

static double layer_bytes(const place_layer *l) {
    return (double)(l->always_bytes + l->predictor_bytes + l->kv_bytes) +
           (double)(l->n / l->unit) * (double)l->unit_bytes;
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
            double bytes = layer_bytes(&w->layers[layer]);
            bool full = before + bytes / 2 >= all * (share / sum) || layer == w->n_layers - 1;
            if (d < n - 1 && full) break;
            before += bytes;
            layer++;
        }
        end[d] = layer;
    }
}

void place_workload_keep(place_workload *w, int first, int end) {
    for (int i = 0; i < w->n_layers; i++)
        if (i < first || i >= end) w->layers[i].always_stays = w->layers[i].neurons_stay = true;
    if (end < w->n_layers) w->head_stays = true;
}
