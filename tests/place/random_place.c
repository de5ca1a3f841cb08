/* random_place.c: see random_place.h. */
#include "random_place.h"

#include <math.h>
#include <stdlib.h>

static double between(rng *r, double low, double high) {
    return low + (high - low) * (double)rng_uniform(r);
}

static int descending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

static void random_layer(rng *r, int max_units, place_workload *w, place_layer *l) {
    int64_t units = 1 + (int64_t)(rng_u64(r) % (uint64_t)max_units);
    l->unit = 1 + (int64_t)(rng_u64(r) % 4);
    l->n = units * l->unit;
    l->unit_bytes = 1000 + rng_u64(r) % 4000;
    l->unit_stream = between(r, 0, 0.5) * (double)l->unit_bytes;
    if (rng_u64(r) % 4 == 0) l->unit_stream = (double)l->unit_bytes;
    l->always_bytes = 500 + rng_u64(r) % 8000;
    if (w->has_predictor) l->predictor_bytes = rng_u64(r) % 2000;
    l->kv_bytes = rng_u64(r) % 4000;
    l->kv_read = l->kv_bytes / 2;
    l->exchange_bytes = rng_u64(r) % 2000;
    for (int side = 0; side < PLAN_SIDES; side++) {
        l->always_steps[side] = (int32_t)(rng_u64(r) % 8);
        l->neuron_steps[side] = (int32_t)(rng_u64(r) % 8);
    }
    l->gather = arena_calloc(&w->arena, (size_t)units + 1, sizeof *l->gather);
    if (!l->gather) abort();
    for (int64_t i = 1; i <= units; i++)
        l->gather[i] = between(r, 0, 1) * ((double)l->unit_bytes - l->unit_stream);
    qsort(l->gather + 1, (size_t)units, sizeof *l->gather, descending);
    for (int64_t i = 1; i <= units; i++) l->gather[i] += l->gather[i - 1];
}

void random_workload(rng *r, int n_layers, int max_units, place_workload *out) {
    *out = (place_workload){.n_layers = n_layers, .has_predictor = rng_u64(r) % 2};
    arena_init(&out->arena);
    out->layers = arena_calloc(&out->arena, (size_t)n_layers, sizeof *out->layers);
    if (!out->layers) abort();
    for (int i = 0; i < n_layers; i++) {
        random_layer(r, max_units, out, &out->layers[i]);
        out->layers[i].with_previous = i > 0 && rng_u64(r) % 8 == 0;
    }
    for (int side = 0; side < PLAN_SIDES; side++) out->head_steps[side] = 1 + 2 * side;
    out->stream_bytes = rng_u64(r) % 1000;
    out->head_bytes = 1000 + rng_u64(r) % 20000;
    out->table_bytes = out->head_bytes;
    if (rng_u64(r) % 2) out->tied_bytes = out->head_bytes;
    out->scratch_bytes = rng_u64(r) % 2000;
}

place_machine random_machine(rng *r) {
    place_machine m = {.name = "random", .has_gpu = true, .shared = rng_u64(r) % 4 == 0};
    double cpu = between(r, 5, 50), gpu = cpu * between(r, 0.7, 20);
    /* Bytes of layers take about a microsecond at these rates. */
    m.device[SIDE_CPU] = (place_device){
        .stream_gbps = cpu, .gather_gbps = cpu * between(r, 0.3, 1), .step = between(r, 0, 5e-8)};
    m.device[SIDE_GPU] = (place_device){
        .stream_gbps = gpu, .gather_gbps = gpu * between(r, 0.3, 1), .step = between(r, 0, 5e-8)};
    m.sync = between(r, 0, 2e-7);
    m.bus_gbps = rng_u64(r) % 4 ? between(r, 1, 20) : 0; /* 0: independent of bytes */
    m.runtime_bytes = rng_u64(r) % 2000;
    m.margin_bytes = rng_u64(r) % 500;
    return m;
}

uint64_t workload_bytes(const place_workload *w) {
    uint64_t sum = w->table_bytes + w->head_bytes - w->tied_bytes;
    for (int i = 0; i < w->n_layers; i++) {
        const place_layer *l = &w->layers[i];
        sum += l->always_bytes + l->predictor_bytes + l->kv_bytes;
        sum += (uint64_t)(l->n / l->unit) * l->unit_bytes;
    }
    return sum;
}

uint64_t random_budget(rng *r, const place_workload *w, const place_machine *m) {
    uint64_t all = workload_bytes(w) + w->scratch_bytes + m->runtime_bytes + m->margin_bytes;
    return rng_u64(r) % (all + all / 10);
}

/* ---- second formulation of the cost model ---------------------------------------------------- */

static double side_seconds(const place_layer *l, const place_machine *m, plan_side side,
                           int64_t from, int64_t to) {
    const place_device *d = &m->device[side];
    if (from == to) return 0;
    double seconds = l->neuron_steps[side] * d->step;
    for (int64_t u = from; u < to; u++) {
        seconds += l->unit_stream / (d->stream_gbps * 1e9);
        seconds += (l->gather[u + 1] - l->gather[u]) / (d->gather_gbps * 1e9);
    }
    return seconds;
}

static double bus_seconds(const place_layer *l, const place_machine *m) {
    double rate = fmax(m->device[SIDE_CPU].stream_gbps, m->device[SIDE_GPU].stream_gbps) * 1e9;
    double bytes = 0;
    for (int64_t u = 0; u < l->n / l->unit; u++)
        bytes += l->unit_stream + l->gather[u + 1] - l->gather[u];
    return m->shared ? bytes / rate : 0;
}

double plain_exchange(const place_machine *m, uint64_t bytes) {
    return m->bus_gbps > 0 ? m->sync + 1e-9 * (double)bytes / m->bus_gbps : m->sync;
}

double plain_seconds(const place_workload *w, const place_machine *m, const place_plan *p) {
    double seconds = 0;
    for (int i = 0; i < w->n_layers; i++) {
        const place_layer *l = &w->layers[i];
        plan_side primary = p->splits[i].primary, next = p->head;
        if (i + 1 < w->n_layers) next = p->splits[i + 1].primary;
        const place_device *d = &m->device[primary];
        int64_t units = l->n / l->unit, hot = p->splits[i].hot / l->unit, end = hot;
        seconds += (double)(l->always_bytes + l->predictor_bytes + l->kv_read) /
                   (d->stream_gbps * 1e9);
        seconds += l->always_steps[primary] * d->step;
        double gpu = side_seconds(l, m, SIDE_GPU, 0, hot);
        for (int g = 0; g < PLAN_MAX_DEVICES; g++) {
            int64_t first = end;
            if (p->splits[i].helpers[g] == 0) continue;
            end += p->splits[i].helpers[g] / l->unit;
            double helper = side_seconds(l, m, SIDE_GPU, first, end);
            gpu = fmax(gpu,
                       helper + (primary == SIDE_GPU ? plain_exchange(m, l->exchange_bytes) : 0));
        }
        double cpu = side_seconds(l, m, SIDE_CPU, end, units);
        seconds += fmax(fmax(gpu, cpu), bus_seconds(l, m));
        bool away = primary == SIDE_GPU ? hot < units : end > 0;
        if (away) seconds += plain_exchange(m, l->exchange_bytes);
        if (next != primary) seconds += plain_exchange(m, w->stream_bytes);
    }
    const place_device *d = &m->device[p->head];
    return seconds + (double)w->head_bytes / (d->stream_gbps * 1e9) +
           w->head_steps[p->head] * d->step;
}

double plain_bytes(const place_workload *w, const place_machine *m, const place_plan *p) {
    double bytes = 0;
    for (int i = 0; i < w->n_layers; i++) {
        const place_layer *l = &w->layers[i];
        bytes += (double)(p->splits[i].hot / l->unit) * (double)l->unit_bytes;
        if (p->splits[i].primary == SIDE_GPU)
            bytes += (double)(l->always_bytes + l->predictor_bytes + l->kv_bytes);
    }
    if (p->head == SIDE_GPU) bytes += (double)w->head_bytes;
    if (bytes > 0) bytes += (double)(w->scratch_bytes + m->runtime_bytes + m->margin_bytes);
    return bytes;
}
