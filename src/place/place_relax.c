/* place_relax.c: the relaxed problem: GPU memory has a price instead of a budget. For one price the
 * best placement is found exactly: per item and primary, the best split point by binary search;
 * then primary devices by dynamic programming along the layers, because a change of primary costs
 * time only between neighbours. The best price is found with the line through the two placements
 * that enclose the budget, in finitely many steps (the dual is the upper hull of lines time + price
 * * bytes). */
#include <math.h>
#include <string.h>

#include "place_search.h"

/* The least k in low..high where moving one more group to the GPU saves at most `least` seconds of
 * CPU time. Savings fall with k: the hottest groups come first. */
static int64_t find_saving(const place_item *item, int64_t low, int64_t high, double least) {
    const double *gather = item->layer->gather;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        double saving = item->stream[SIDE_CPU] +
                        (gather[middle + 1] - gather[middle]) * item->gather[SIDE_CPU];
        if (saving <= least)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void try_split(const place_item *item, plan_side primary, double price, int64_t k,
                      int64_t *best, double *least) {
    double bytes = (double)k * (double)item->unit_bytes;
    double value = place_ffn_time(item, primary, k) + price * bytes;
    if (*best >= 0 && (value > *least || (value == *least && k >= *best))) return;
    *best = k;
    *least = value;
}

/* Up to the balance point, the CPU's time decreases, by less and less per group; beyond it, time
 * increases. Both ends are tried separately, because they save an exchange or a device's fixed
 * cost. */
int64_t place_best_split(const place_item *item, plan_side primary, place_range range,
                         double price) {
    int64_t best = -1;
    double least = 0;
    try_split(item, primary, price, range.low, &best, &least);
    try_split(item, primary, price, range.high, &best, &least);
    int64_t low = range.low > 1 ? range.low : 1;
    int64_t high = range.high < item->n_units - 1 ? range.high : item->n_units - 1;
    if (low > high) return best;
    int64_t turns[] = {find_saving(item, low, high, price * (double)item->unit_bytes),
                       item->balance - 1, item->balance};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        int64_t k = turns[i] < low ? low : turns[i] > high ? high : turns[i];
        try_split(item, primary, price, k, &best, &least);
    }
    return best;
}

static double bytes_of(const place_item *item, plan_side primary, int64_t k) {
    double bytes = (double)k * (double)item->unit_bytes;
    return primary == SIDE_GPU ? bytes + (double)item->bytes : bytes;
}

static double time_of(const place_item *item, plan_side primary, int64_t k) {
    return item->always[primary] + item->kv[primary] + place_ffn_time(item, primary, k);
}

/* Seconds for a change of primary after the previous item. */
static double change_time(const place_problem *p, int i) {
    const place_layer *layer = p->items[i].layer;
    if (layer && layer->with_previous) return INFINITY;
    return layer && layer->begins_stage ? PLACE_HAND_OFF / 2 * p->sync : p->sync;
}

void place_choice_sum(const place_problem *p, place_choice *c) {
    c->time = c->bytes = 0;
    for (int i = 0; i < p->n; i++) {
        c->time += time_of(&p->items[i], c->primary[i], c->k[i]);
        c->bytes += bytes_of(&p->items[i], c->primary[i], c->k[i]);
        if (i > 0 && c->primary[i] != c->primary[i - 1]) c->time += change_time(p, i);
    }
}

void place_choice_copy(const place_problem *p, place_choice *to, const place_choice *from) {
    to->time = from->time;
    to->bytes = from->bytes;
    memcpy(to->primary, from->primary, (size_t)p->n * sizeof *to->primary);
    memcpy(to->k, from->k, (size_t)p->n * sizeof *to->k);
}

/* ---- one price ------------------------------------------------------------------------------- */

static void step_item(place_problem *p, int i, plan_side primary, place_range range, double price) {
    struct place_step *s = &p->steps[i][primary];
    *s = (struct place_step){.value = INFINITY};
    if (range.low > range.high) return;
    int64_t k = place_best_split(&p->items[i], primary, range, price);
    s->k = k;
    s->bytes = bytes_of(&p->items[i], primary, k);
    s->value = time_of(&p->items[i], primary, k) + price * s->bytes;
    if (i == 0) return;
    const struct place_step *before = p->steps[i - 1];
    double stay = before[primary].value, change = before[!primary].value + change_time(p, i);
    s->from = change < stay ? (plan_side)!primary : primary;
    s->value += fmin(stay, change);
}

static void minimise(place_problem *p, place_range (*ranges)[PLAN_SIDES], double price,
                     place_choice *out) {
    for (int i = 0; i < p->n; i++)
        for (int primary = 0; primary < PLAN_SIDES; primary++)
            step_item(p, i, (plan_side)primary, ranges[i][primary], price);
    const struct place_step *last = p->steps[p->n - 1];
    plan_side primary = last[SIDE_GPU].value < last[SIDE_CPU].value ? SIDE_GPU : SIDE_CPU;
    for (int i = p->n - 1; i >= 0; i--) {
        out->primary[i] = primary;
        out->k[i] = p->steps[i][primary].k;
        primary = p->steps[i][primary].from;
    }
    place_choice_sum(p, out);
}

/* ---- the best price -------------------------------------------------------------------------- */

static bool fits_at_all(const place_problem *p, place_range (*ranges)[PLAN_SIDES]) {
    double least = 0;
    for (int i = 0; i < p->n; i++) {
        double item = INFINITY;
        for (int primary = 0; primary < PLAN_SIDES; primary++) {
            place_range r = ranges[i][primary];
            if (r.low > r.high) continue;
            item = fmin(item, bytes_of(&p->items[i], (plan_side)primary, r.low));
        }
        least += item;
    }
    return least <= p->budget;
}

place_relaxed place_relax(place_problem *p, place_range (*ranges)[PLAN_SIDES], place_choice *below,
                          place_choice *above, double *bound) {
    /* Seconds per byte: the first price is below that of any memory; the last exceeds the savings
     * of any byte (an exchange of ten seconds for 1/100 of a byte). */
    const double price_min = 1e-14, price_max = 1e3, same = 1e-12;
    enum { MAX_STEPS = 100 }; /* about twenty are usual */
    if (!fits_at_all(p, ranges)) return PLACE_EMPTY;
    minimise(p, ranges, 0, above);
    *bound = above->time;
    if (above->bytes <= p->budget) {
        place_choice_copy(p, below, above);
        return PLACE_SOLVED;
    }
    for (double price = price_min;; price *= 4) {
        if (price > price_max) return PLACE_EMPTY;
        minimise(p, ranges, price, below);
        *bound = fmax(*bound, below->time + price * (below->bytes - p->budget));
        if (below->bytes <= p->budget) break;
        place_choice_copy(p, above, below);
    }
    for (int step = 0; step < MAX_STEPS; step++) {
        double price = (below->time - above->time) / (above->bytes - below->bytes);
        double line = below->time + price * (below->bytes - p->budget);
        if (!(price >= 0)) break;
        minimise(p, ranges, price, &p->spare);
        double value = p->spare.time + price * (p->spare.bytes - p->budget);
        *bound = fmax(*bound, value);
        if (value >= line - same * fabs(line)) break;
        place_choice_copy(p, p->spare.bytes <= p->budget ? below : above, &p->spare);
    }
    return PLACE_OPEN;
}
