/* place_stages.c: assigns layers to several GPUs. Stages are ranges of whole layers; the solver
 * places each stage as if its device were the only GPU. Helpers use the remaining memory. */
#include <string.h>

#include "mem.h"
#include "place_cost.h"

static double layer_bytes(const place_layer *l) {
    return (double)(l->always_bytes + l->predictor_bytes + l->kv_bytes) +
           (double)(l->n / l->unit) * (double)l->unit_bytes;
}

/* The end of the run of layers from `layer` on that must share a device, and its bytes. */
static int together(const place_workload *w, int layer, double *bytes) {
    *bytes = layer_bytes(&w->layers[layer]);
    while (++layer < w->n_layers && w->layers[layer].with_previous)
        *bytes += layer_bytes(&w->layers[layer]);
    return layer;
}

/* The middle of a layer determines its stage; the last layer is in the head's stage. */
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
    if (end < w->n_layers) w->head_stays = w->layers[end].begins_stage = true;
    if (first > 0 && first < w->n_layers) w->layers[first].begins_stage = true;
}

/* Seconds with everything on the CPU, as the splits of `like` have it. */
static double alone(const place_workload *w, const place_machine *m, const place_plan *like) {
    place_prediction p;
    const place_plan cpu = {.n_layers = w->n_layers, .splits = like->splits};
    place_predict(w, m, &cpu, &p, NULL);
    return p.seconds;
}

/* Unused bytes of the budgets; 0 for a GPU without layers, which would need buffers and the runtime
 * first. */
static void find_room(const place_workload *w, const place_machine *m, const uint64_t *budgets,
                      int n, const place_prediction *p, uint64_t *room) {
    for (int d = 0; d < n; d++) {
        uint64_t used = p->on_device[d] > 0 ? p->on_device[d]
                                            : w->scratch_bytes + m[d].runtime_bytes;
        used += m[d].margin_bytes;
        room[d] = budgets[d] > used ? budgets[d] - used : 0;
    }
}

static pi_status add_helpers(const place_workload *w, const place_machine *m,
                             const uint64_t *budgets, int n, place_plan *p, pi_error *err) {
    uint64_t room[PLAN_MAX_DEVICES];
    place_prediction now;
    place_predict(w, m, p, &now, NULL);
    find_room(w, m, budgets, n, &now, room);
    return place_add_helpers(w, m, room, n, p, err);
}

/* Solves every stage with the others on the CPU. A prediction is a sum over layers: the prediction
 * of the whole plan is the sum of the stages' predictions, less the CPU-only time of the layers
 * that are counted twice. Bounds are summed likewise. */
pi_status place_solve_stages(const place_workload *w, const place_machine *m,
                             const uint64_t *budgets, const int *end, int n, place_plan *out,
                             pi_error *err) {
    if (n == 1) return place_solve(w, m, budgets[0], out, err);
    size_t n_layers = (size_t)w->n_layers;
    place_workload stage = *w;
    *out = (place_plan){.n_layers = w->n_layers,
                        .splits = mem_calloc(n_layers, sizeof *out->splits)};
    stage.layers = mem_calloc(n_layers, sizeof *stage.layers);
    pi_status status = PI_OK;
    if (!out->splits || !stage.layers)
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
            out->splits[i] = found.splits[i];
            out->splits[i].device = d;
        }
        if (found.head == SIDE_GPU) out->head = SIDE_GPU;
        bound += found.bound - cpu;
        place_plan_free(&found);
    }
    out->bound = bound;
    if (status == PI_OK) status = add_helpers(w, m, budgets, n, out, err);
    mem_free(stage.layers);
    if (status != PI_OK) place_plan_free(out);
    return status;
}

/* ---- helpers --------------------------------------------------------------------------------- */

enum { STEPS = 32 }; /* pieces of a layer's neurons for helpers */

/* Fraction of a layer's time; a smaller saving does not justify another exchange. */
static const double LEAST_GAIN = 1e-3;

/* Additional groups of a layer for a helper, and the seconds saved per token. */
typedef struct extension {
    int64_t groups;
    double gain;
} extension;

static double bytes_of(const place_layer *l, int64_t groups) {
    return (double)groups * (double)(l->unit_bytes + l->unit_padding);
}

/* Tries one more step, or all remaining groups: without neurons on the CPU there are no
 * barriers. */
static extension find_extension(const place_layer *l, const place_machine *m,
                                const plan_split *split, int d, double room) {
    extension best = {0, 0};
    if (l->neurons_stay || l->experts || split->device == d || l->n == 0 || m[d].shared ||
        !m[d].has_gpu)
        return best;
    double now = place_time_layer(l, m, split).total;
    int64_t left = (l->n - plan_split_end(split)) / l->unit, step = l->n / l->unit / STEPS + 1;
    if (bytes_of(l, left) > room) left = (int64_t)(room / bytes_of(l, 1));
    for (int all = 0; all < 2; all++) {
        plan_split next = *split;
        int64_t n = all || step > left ? left : step;
        next.helpers[d] += n * l->unit;
        double gain = now - place_time_layer(l, m, &next).total;
        bool better = best.groups == 0 || gain * (double)best.groups > best.gain * (double)n;
        if (gain >= LEAST_GAIN * now && better) best = (extension){n, gain};
    }
    return best;
}

/* Each step takes the groups that save most per byte. */
static void add_helper(const place_workload *w, const place_machine *m, int d, double room,
                       place_plan *p, extension *found) {
    for (int i = 0; i < w->n_layers; i++)
        found[i] = find_extension(&w->layers[i], m, &p->splits[i], d, room);
    for (;;) {
        int best = -1;
        double most = 0;
        for (int i = 0; i < w->n_layers; i++) {
            const place_layer *l = &w->layers[i];
            if (bytes_of(l, found[i].groups) > room)
                found[i] = find_extension(l, m, &p->splits[i], d, room);
            if (found[i].groups == 0) continue;
            double rate = found[i].gain / bytes_of(l, found[i].groups);
            if (rate <= most) continue;
            most = rate;
            best = i;
        }
        if (best < 0) return;
        const place_layer *l = &w->layers[best];
        p->splits[best].helpers[d] += found[best].groups * l->unit;
        room -= bytes_of(l, found[best].groups);
        found[best] = find_extension(l, m, &p->splits[best], d, room);
    }
}

pi_status place_add_helpers(const place_workload *w, const place_machine *m, const uint64_t *room,
                            int n, place_plan *p, pi_error *err) {
    size_t n_layers = (size_t)w->n_layers;
    extension *found = mem_calloc(n_layers, sizeof *found);
    if (!found) return error_nomem(err, n_layers * sizeof *found, "layers");
    for (int d = 0; d < n; d++) add_helper(w, m, d, (double)room[d], p, found);
    mem_free(found);
    return PI_OK;
}
