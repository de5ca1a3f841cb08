/* place_cost.c: the predicted time of one token:
 *
 *   T = head + kv
 *       + sum over layers [always / BW(primary) + max(Tgpu(h), Tcpu(h)) + sync * exchanges]
 *   sync = latency + bytes / BW(bus)
 *
 * Helpers compute in parallel: Tgpu is the slowest GPU's time. A helper's time includes an exchange
 * if the input comes from another GPU through the CPU. Tgpu and Tcpu are the times of the two
 * sides' neurons: bytes read in order at the streaming rate, gathered bytes at the gather rate, and
 * kernels or barriers if the side has neurons. A layer has an exchange if neurons are on a device
 * other than its primary. A change of primary between layers (or to the head) is also an exchange;
 * the transfer from one GPU to the next costs a fraction of an exchange. */
#include <assert.h>
#include <math.h>

#include "place_cost.h"

static const double GIGA = 1e9;
/* Time of steps that the GPU cannot run: larger than any real time, but finite. */
static const double NEVER = 1e6;
/* A norm by the last block of another kernel, as a fraction of a step: a counter and its fences
 * take about 1 of 2.3 us. */
static const double MERGED_NORM = 0.43;

/* Sums over groups [from, to). */
static double side_time(const place_item *item, plan_side side, int64_t from, int64_t to) {
    if (from == to) return 0;
    const double *gather = item->layer->gather;
    return item->overhead[side] + (double)(to - from) * item->stream[side] +
           (gather[to] - gather[from]) * item->gather[side];
}

static double gpu_time(const place_item *item, int64_t k) {
    return side_time(item, SIDE_GPU, 0, k);
}

static double cpu_time(const place_item *item, int64_t k) {
    return side_time(item, SIDE_CPU, k, item->n_units);
}

static bool needs_exchange(const place_item *item, plan_side primary, int64_t k) {
    return primary == SIDE_GPU ? k < item->n_units : k > 0;
}

double place_ffn_time(const place_item *item, plan_side primary, int64_t k) {
    if (item->n_units == 0) return 0;
    double both = fmax(gpu_time(item, k), cpu_time(item, k));
    return fmax(both, item->floor) + (needs_exchange(item, primary, k) ? item->sync : 0);
}

/* Tgpu grows and Tcpu falls with k. */
static int64_t find_balance(const place_item *item) {
    int64_t low = 0, high = item->n_units;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        double gpu = fmax(gpu_time(item, middle), item->floor);
        if (gpu >= cpu_time(item, middle))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void fill_layer(const place_layer *l, const place_machine *m, place_item *item) {
    *item = (place_item){.layer = l, .sync = place_machine_sync(m, l->exchange_bytes)};
    item->unit_bytes = l->unit_bytes + l->unit_padding;
    item->bytes = l->always_bytes + l->predictor_bytes + l->always_padding + l->kv_bytes;
    item->n_units = l->n / l->unit;
    for (int d = 0; d < PLAN_SIDES; d++) {
        const place_device *device = &m->device[d];
        if (d == SIDE_GPU && !m->has_gpu) continue;
        double streamed = (double)(l->always_bytes + l->predictor_bytes);
        item->always[d] = streamed / (device->stream_gbps * GIGA) +
                          l->always_steps[d] * device->step;
        item->kv[d] = (double)l->kv_read / (device->stream_gbps * GIGA);
        item->stream[d] = l->unit_stream / (device->stream_gbps * GIGA);
        item->gather[d] = 1 / ((l->experts ? device->stream_gbps : device->gather_gbps) * GIGA);
        item->overhead[d] = l->neuron_steps[d] * device->step;
    }
    if (m->has_gpu) {
        const double step = m->device[SIDE_GPU].step;
        item->always[SIDE_GPU] += MERGED_NORM * l->merged_norms * step;
        /* An exchange includes the second norm, and costs a step less than its kernels. */
        if (l->merged_norms > 1) item->sync += (1 - MERGED_NORM) * step;
    }
    if (l->always_stays) item->always[SIDE_GPU] = NEVER;
    if (l->neurons_stay) item->overhead[SIDE_GPU] = NEVER;
    if (m->has_gpu && m->shared) {
        double rate = fmax(m->device[SIDE_CPU].stream_gbps, m->device[SIDE_GPU].stream_gbps);
        double all = (double)item->n_units * l->unit_stream + l->gather[item->n_units];
        item->floor = all / (rate * GIGA);
    }
    if (m->has_gpu) item->balance = find_balance(item);
}

void place_items_fill(const place_workload *w, const place_machine *m, place_item *items) {
    for (int i = 0; i < w->n_layers; i++) fill_layer(&w->layers[i], m, &items[i]);
    place_item *head = &items[w->n_layers];
    *head = (place_item){.bytes = w->head_bytes + w->head_padding};
    for (int d = 0; d < PLAN_SIDES; d++) {
        if (d == SIDE_GPU && !m->has_gpu) continue;
        head->always[d] = (double)w->head_bytes / (m->device[d].stream_gbps * GIGA) +
                          w->head_steps[d] * m->device[d].step;
    }
    if (w->head_stays) head->always[SIDE_GPU] = NEVER;
}

/* ---- prediction ------------------------------------------------------------------------------ */

static double helpers_time(const place_layer *l, const place_machine *m, const plan_split *split) {
    int64_t at = split->hot / l->unit;
    double slowest = 0;
    for (int d = 0; d < PLAN_MAX_DEVICES; d++) {
        if (split->helpers[d] == 0) continue;
        place_item item;
        int64_t end = at + split->helpers[d] / l->unit;
        fill_layer(l, &m[d], &item);
        double seconds = side_time(&item, SIDE_GPU, at, end);
        slowest = fmax(slowest, seconds + (split->primary == SIDE_GPU ? item.sync : 0));
        at = end;
    }
    return slowest;
}

static place_layer_time layer_time(const place_item *item, const place_machine *m,
                                   const plan_split *split) {
    const place_layer *l = item->layer;
    int64_t k = split->hot / l->unit, end = plan_split_end(split) / l->unit;
    bool exchanges = needs_exchange(item, split->primary, split->primary == SIDE_GPU ? k : end);
    place_layer_time t = {.always = item->always[split->primary],
                          .kv = item->kv[split->primary],
                          .gpu = fmax(gpu_time(item, k), helpers_time(l, m, split)),
                          .cpu = cpu_time(item, end),
                          .sync = exchanges ? item->sync : 0};
    t.total = t.always + t.kv + fmax(fmax(t.gpu, t.cpu), item->floor) + t.sync;
    return t;
}

place_layer_time place_time_layer(const place_layer *l, const place_machine *m,
                                  const plan_split *split) {
    place_item item;
    fill_layer(l, &m[split->device], &item);
    return layer_time(&item, m, split);
}

static void add_reads(const place_item *item, plan_side primary, int64_t k, place_prediction *out) {
    const place_layer *l = item->layer;
    out->read[primary] += (double)(l->always_bytes + l->predictor_bytes + l->kv_read);
    out->read[SIDE_GPU] += (double)k * l->unit_stream + l->gather[k];
    out->read[SIDE_CPU] += (double)(item->n_units - k) * l->unit_stream +
                           (l->gather[item->n_units] - l->gather[k]);
}

static void add_layer(const place_item *item, const plan_split *split, place_prediction *out) {
    int64_t unit = item->layer->unit, k = plan_split_end(split) / unit;
    assert(split->hot >= 0 && k <= item->n_units && split->hot % unit == 0);
    bool gpu = split->primary == SIDE_GPU;
    out->exchanges += needs_exchange(item, split->primary, gpu ? split->hot / unit : k);
    out->weights[split->primary] += item->layer->always_bytes + item->layer->predictor_bytes;
    if (split->primary == SIDE_GPU) out->weights[SIDE_GPU] += item->layer->always_padding;
    out->kv_cache[split->primary] += item->layer->kv_bytes;
    out->weights[SIDE_GPU] += (uint64_t)k * item->unit_bytes;
    if (split->primary == SIDE_GPU) out->on_device[split->device] += item->bytes;
    out->on_device[split->device] += (uint64_t)(split->hot / unit) * item->unit_bytes;
    for (int d = 0; d < PLAN_MAX_DEVICES; d++) {
        out->exchanges += split->helpers[d] > 0;
        out->on_device[d] += (uint64_t)(split->helpers[d] / unit) * item->unit_bytes;
    }
    out->weights[SIDE_CPU] += (uint64_t)(item->n_units - k) * item->layer->unit_bytes;
    add_reads(item, split->primary, k, out);
}

/* A head that is the embedding table is stored once, unless both memories need it. */
static void add_head(const place_workload *w, const place_machine *m, plan_side primary, int device,
                     place_prediction *out) {
    if (primary == SIDE_GPU) out->on_device[device] += w->head_bytes + w->head_padding;
    out->weights[SIDE_CPU] += w->table_bytes;
    out->weights[primary] += w->head_bytes;
    if (primary == SIDE_GPU) out->weights[SIDE_GPU] += w->head_padding;
    if (primary == SIDE_CPU || m->shared) out->weights[SIDE_CPU] -= w->tied_bytes;
    out->read[primary] += (double)w->head_bytes;
}

static void add_residence(const place_workload *w, const place_machine *m, place_prediction *out) {
    for (int d = 0; d < PLAN_SIDES; d++) out->resident[d] = out->weights[d] + out->kv_cache[d];
    for (int i = 0; i < PLAN_MAX_DEVICES; i++) {
        if (out->on_device[i] == 0) continue;
        out->scratch += w->scratch_bytes;
        out->runtime += m[i].runtime_bytes;
        out->margin += m[i].margin_bytes;
        out->on_device[i] += w->scratch_bytes + m[i].runtime_bytes;
    }
    out->resident[SIDE_GPU] += out->scratch + out->runtime;
}

static void predict_item(const place_item *item, const place_machine *m, const plan_split *split,
                         place_prediction *out, place_layer_time *kept) {
    place_layer_time t = layer_time(item, m, split);
    add_layer(item, split, out);
    out->always += t.always;
    out->kv += t.kv;
    out->gpu += t.gpu;
    out->cpu += t.cpu;
    out->sync += t.sync;
    out->seconds += t.total;
    if (kept) *kept = t;
}

void place_predict(const place_workload *w, const place_machine *m, const place_plan *p,
                   place_prediction *out, place_layer_time *layers) {
    assert(p->n_layers == w->n_layers);
    *out = (place_prediction){0};
    for (int i = 0; i < w->n_layers; i++) {
        place_item item;
        const plan_split *split = &p->splits[i], *next = i + 1 < w->n_layers ? split + 1 : NULL;
        const place_machine *here = &m[split->device], *there = next ? &m[next->device] : here;
        fill_layer(&w->layers[i], here, &item);
        predict_item(&item, m, split, out, layers ? &layers[i] : NULL);
        plan_side primary = next ? next->primary : p->head;
        bool passes = split->primary == SIDE_GPU && primary == SIDE_GPU && here != there;
        const double from = place_machine_sync(here, w->stream_bytes),
                     to = place_machine_sync(there, w->stream_bytes);
        double sync = 0;
        if (split->primary != primary) sync = primary == SIDE_GPU ? to : from;
        if (passes) sync = PLACE_HAND_OFF / 2 * (from + to);
        out->exchanges += split->primary != primary || passes;
        out->sync += sync;
        out->seconds += sync;
    }
    const int last = w->n_layers > 0 ? p->splits[w->n_layers - 1].device : 0;
    const place_device *primary = &m[last].device[p->head];
    out->head = (double)w->head_bytes / (primary->stream_gbps * GIGA) +
                w->head_steps[p->head] * primary->step;
    out->seconds += out->head;
    add_head(w, &m[last], p->head, last, out);
    add_residence(w, m, out);
}

static plan_side primary_of_most(const place_workload *w, const place_plan *p, bool kv) {
    uint64_t bytes[PLAN_SIDES] = {0};
    for (int i = 0; i < w->n_layers; i++)
        bytes[p->splits[i].primary] += kv ? w->layers[i].kv_bytes : w->layers[i].predictor_bytes;
    return bytes[SIDE_GPU] > bytes[SIDE_CPU] ? SIDE_GPU : SIDE_CPU;
}

plan_side place_kv_primary(const place_workload *w, const place_plan *p) {
    return primary_of_most(w, p, true);
}

plan_side place_predictor_primary(const place_workload *w, const place_plan *p) {
    return w->has_predictor ? primary_of_most(w, p, false) : place_kv_primary(w, p);
}
