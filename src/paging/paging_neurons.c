/* paging_neurons.c: layers whose neurons are bundles.
 *
 * Layers with bundles of equal size (a class) share an address range, a matrix with a bundle per
 * row. So a list of selected rows may name neurons and slots of the cache alike:
 *
 *   layer 0: hot prefix | others    layer 1: hot prefix | others    ... slots
 *
 * Hot prefixes have separate memory. The others are mapped alternately to two areas, the stages:
 * steps that need all neurons (prefill, modes without a predictor) stream them there while the
 * previous layer is computed. The first slots are in the memory of the stages, the next ones in
 * that of prefill's working buffers; prefill empties both.
 *
 * Eviction: a clock (Corbato 1968). Every neuron has a usage, its uses halved every HALF_LIFE
 * ubatches, which starts with its calibration frequency. The hand evicts the next neuron whose
 * usage is below a floor. The floor adapts so that the hand passes about PASSED slots per eviction;
 * these keep neurons that are selected again, the others those that were selected once.
 *
 * Prefetching: neurons that a layer will probably select are requested right after the layer before
 * it has requested those that it selected, so that the drive reads while both are computed. */
#include <math.h>
#include <string.h>

#include "mem.h"
#include "paging_neurons.h"
#include "pool.h"

enum { HALF_LIFE = 256, PASSED = 31, SIZE_PLACE_BITS = 44 };
enum { LEAST_AHEAD = 32, FIRST_AHEAD = 256 }; /* reads */
static const double sure_useful = 0.8;
static const float least_floor = 1e-3f, most_gain = 1e15f;

static int64_t whole_rows(const neuron_class *s, int64_t n) {
    return (n + s->whole_rows - 1) / s->whole_rows * s->whole_rows;
}

bool paging_is_bundled(const paging *g, const plan_step *s) {
    return s->layer >= 0 && (s->op == OP_FFN_SPARSE || s->op == OP_FFN_DOWN) &&
           g->source->layers[s->layer].bundle;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static int class_for(paging_neurons *x, size_t stride) {
    for (int i = 0; i < x->n_classes; i++)
        if (x->classes[i].stride == stride) return i;
    size_t common = mapping_unit(), rest = stride; /* greatest common divisor */
    while (rest) {
        size_t next = common % rest;
        common = rest;
        rest = next;
    }
    x->classes[x->n_classes] = (neuron_class){.stride = stride,
                                              .whole_rows = (int64_t)(mapping_unit() / common),
                                              .memory = OS_SHARED_NONE,
                                              .gap = -1,
                                              .floor = least_floor};
    return x->n_classes++;
}

static bool has_neurons(const paging *g, const plan *p, int layer) {
    return g->source->layers[layer].bundle && p->ffn[layer].n_ff > 0;
}

bool paging_neurons_picks(const paging *g, const plan *p, int layer) {
    return has_neurons(g, p, layer) && p->ffn[layer].selection != SELECT_ALL;
}

static void add_layer(paging *g, const plan *p, int layer) {
    paging_neurons *x = g->neurons;
    const gguf_tensor *bundle = g->source->layers[layer].bundle;
    const plan_ffn *f = &p->ffn[layer];
    neuron_layer *l = &x->layers[layer];
    if (!has_neurons(g, p, layer)) return;
    size_t stride = f->down.w.row_bytes;
    size_t first = (size_t)f->first * stride;
    *l = (neuron_layer){.from = bundle->data + first,
                        .offset = bundle->file_offset + first,
                        .part = bundle->part,
                        .size = class_for(x, stride),
                        .n = f->n_ff,
                        .part_rows = f->part_rows,
                        .room = FIRST_AHEAD,
                        .useful = 1,
                        .missing = 1,
                        .picks = paging_neurons_picks(g, p, layer)};
    neuron_class *s = &x->classes[l->size];
    l->row = s->n_rows;
    s->n_rows += whole_rows(s, l->n);
    if (l->n > s->most_rows) s->most_rows = l->n;
    if (l->picks && g->lent > 0 && x->lender < 0) x->lender = l->size;
    s->picks = s->picks || l->picks;
    s->needs_all = s->needs_all || !l->picks;
}

/* The usage of a neuron of frequency f converges to f * HALF_LIFE / ln 2. */
static void warm(const paging *g, int layer, neuron_layer *l) {
    const float *freq = g->source->layers[layer].sparse.freq;
    int64_t first = g->source->layers[layer].hp.n_ff - l->n;
    for (int64_t k = 0; k < l->n; k++) {
        l->slot[k] = -1;
        if (freq) l->usage[k] = freq[first + k] * (float)(HALF_LIFE / 0.6931);
    }
}

pi_status paging_neurons_create(paging *g, const plan *p, pi_error *err) {
    size_t n_layer = (size_t)g->source->hp.n_layer, most = 0, n = 0;
    for (size_t i = 0; i < n_layer; i++) n += has_neurons(g, p, (int)i);
    if (n == 0) return PI_OK;
    paging_neurons *x = g->neurons = mem_calloc(1, sizeof *x);
    if (!x) return error_nomem(err, sizeof *x, "neurons");
    os_mutex_init(&x->lock);
    x->n_layer = (int)n_layer;
    x->gain = 1;
    x->lender = -1;
    x->lent = to_units((size_t)g->lent);
    for (int i = 0; i < 2; i++) {
        atomic_init(&x->ahead[i].layer, -1);
        x->ahead[i].waiting = -1;
    }
    x->layers = mem_calloc(n_layer, sizeof *x->layers);
    x->classes = mem_calloc(n_layer, sizeof *x->classes);
    x->units = mem_calloc(n_layer, sizeof *x->units);
    if (!x->layers || !x->classes || !x->units)
        return error_nomem(err, n_layer * sizeof *x->layers, "neurons");
    for (int i = 0; i < x->n_layer; i++) {
        neuron_layer *l = &x->layers[i];
        add_layer(g, p, i);
        if (!l->from) continue;
        if ((size_t)l->n > most) most = (size_t)l->n;
        l->slot = mem_alloc((size_t)l->n * sizeof *l->slot);
        l->usage = mem_calloc((size_t)l->n, sizeof *l->usage);
        if (!l->slot || !l->usage)
            return error_nomem(err, (size_t)l->n * sizeof *l->slot, "neurons");
        warm(g, i, l);
    }
    x->requests = mem_calloc(most, sizeof *x->requests);
    x->rows = mem_calloc(most, sizeof *x->rows);
    x->mark = mem_calloc(most, sizeof *x->mark);
    bool ok = x->requests && x->rows && x->mark;
    for (int i = 0; i < 2; i++) {
        neuron_ahead *a = &x->ahead[i];
        a->rows = mem_calloc(most, sizeof *a->rows);
        a->requests = mem_calloc(most, sizeof *a->requests);
        ok = ok && a->rows && a->requests;
    }
    if (ok) return PI_OK;
    return error_nomem(err, most * sizeof *x->requests, "neurons");
}

void paging_neurons_destroy(paging_neurons *x) {
    if (!x) return;
    for (int i = 0; i < x->n_classes; i++) {
        neuron_class *s = &x->classes[i];
        if (s->base) os_memory_unmap(s->base, s->reserved);
        if (s->memory != OS_SHARED_NONE) os_shared_close(s->memory);
        mem_free(s->slots);
    }
    for (int i = 0; i < x->n_layer && x->layers; i++) {
        mem_free(x->layers[i].slot);
        mem_free(x->layers[i].usage);
    }
    if (x->lent_at && x->classes[x->lender].stage == 0) mem_unmap(x->lent_at, x->lent);
    os_mutex_destroy(&x->lock);
    paging_stream_free(&x->tails);
    mem_free(x->layers);
    mem_free(x->classes);
    mem_free(x->units);
    for (int i = 0; i < 2; i++) {
        mem_free(x->ahead[i].rows);
        mem_free(x->ahead[i].requests);
    }
    mem_free(x->requests);
    mem_free(x->rows);
    mem_free(x->mark);
    mem_free(x);
}

paging_stream *paging_neurons_stream(paging_neurons *x) {
    return &x->tails;
}

void paging_neurons_count(const paging_neurons *x, paging_counts *out) {
    out->hits += x->hits;
    out->misses += x->misses;
    out->ahead += x->n_ahead;
    out->in_vain += x->in_vain;
}

/* ---- dividing memory ------------------------------------------------------------------------- */

static uint64_t least_of(const paging_neurons *x, const neuron_class *s) {
    return (uint64_t)stages_of(s) * to_units((size_t)s->most_rows * s->stride) + lent_of(x, s);
}

static uint64_t all_of(const paging_neurons *x, const neuron_class *s) {
    return (uint64_t)s->n_rows * s->stride + lent_of(x, s);
}

/* If all neurons stay in memory, no stages are needed. */
uint64_t paging_neurons_least(const paging_neurons *x) {
    uint64_t n = 0;
    for (int i = 0; i < x->n_classes; i++) {
        uint64_t least = least_of(x, &x->classes[i]), all = all_of(x, &x->classes[i]);
        n += least < all ? least : all;
    }
    return n;
}

uint64_t paging_neurons_all(const paging_neurons *x) {
    uint64_t n = 0;
    for (int i = 0; i < x->n_classes; i++) n += all_of(x, &x->classes[i]);
    return n;
}

/* Number of neurons of a layer with at least this frequency, in whole units; without frequencies,
 * an equal fraction of every layer. */
static int64_t hot_rows(const paging *g, int layer, const neuron_class *s, double cold) {
    const neuron_layer *l = &g->neurons->layers[layer];
    const float *freq = g->view.layers[layer].sparse.freq;
    int64_t first = g->view.layers[layer].hp.n_ff - l->n, low = 0, high = l->n;
    if (!freq && cold < 1) low = cold > 0 ? (int64_t)((double)l->n * (1 - cold)) : l->n;
    while (freq && low < high) { /* frequencies do not increase */
        int64_t mid = (low + high) / 2;
        if ((double)freq[first + mid] >= cold)
            low = mid + 1;
        else
            high = mid;
    }
    return low == l->n ? low : low / s->whole_rows * s->whole_rows;
}

/* Sets the prefixes of a class for a frequency; returns the bytes of the prefixes and of the
 * largest remainder. */
static uint64_t try_prefixes(paging *g, int size, double cold, size_t *stage) {
    paging_neurons *x = g->neurons;
    const neuron_class *s = &x->classes[size];
    uint64_t hot = 0;
    *stage = 0;
    for (int i = 0; i < x->n_layer; i++) {
        neuron_layer *l = &x->layers[i];
        if (!l->from || l->size != size) continue;
        l->n_hot = hot_rows(g, i, s, cold);
        size_t rest = to_units((size_t)(l->n - l->n_hot) * s->stride);
        hot += paging_to_pages((size_t)l->n_hot * s->stride);
        if (rest > *stage) *stage = rest;
    }
    return hot;
}

/* Finds the longest prefixes that leave memory for the stages, and a quarter of the memory for the
 * cache if selected neurons are read. */
static void choose_prefixes(paging *g, int size, uint64_t room) {
    enum { STEPS = 40, CACHE_SHARE = 4 };
    const paging_neurons *x = g->neurons;
    neuron_class *s = &g->neurons->classes[size];
    double low = 0, high = 1.001; /* nothing is hot at the upper end */
    size_t stage;
    if (room >= all_of(x, s)) {
        (void)try_prefixes(g, size, -1, &stage);
        s->stage = 0;
        return;
    }
    for (int i = 0; i < STEPS; i++) {
        double mid = (low + high) / 2;
        uint64_t hot = try_prefixes(g, size, mid, &stage);
        uint64_t beside = (uint64_t)stages_of(s) * stage + lent_of(x, s);
        if (s->picks && beside < room / CACHE_SHARE) beside = room / CACHE_SHARE;
        if (hot + beside <= room)
            high = mid;
        else
            low = mid;
    }
    (void)try_prefixes(g, size, high, &stage);
    s->stage = stage;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Gives the hot prefix of a layer memory. False: no memory. */
static bool commit_prefix(const neuron_class *s, const neuron_layer *l) {
    size_t n = paging_to_pages((size_t)l->n_hot * s->stride);
    return n == 0 || os_memory_commit(s->base + (size_t)l->row * s->stride, n) == 0;
}

/* Maps the other neurons of a layer to a stage. False: no memory. */
static bool map_rest(const neuron_class *s, const neuron_layer *l, int turn) {
    size_t n = paging_to_pages((size_t)(l->n - l->n_hot) * s->stride);
    uint8_t *at = s->base + (size_t)(l->row + l->n_hot) * s->stride;
    return n == 0 || os_shared_map(s->memory, (size_t)turn * s->stage, at, n) == 0;
}

/* Maps the lent memory, which begins after the stages. False: no memory. */
static bool map_lent(paging_neurons *x, neuron_class *s, uint8_t *at) {
    if (lent_of(x, s) == 0) return true;
    x->lent_at = s->stage ? at : mem_map(x->lent);
    return x->lent_at &&
           (s->stage == 0 || os_shared_map(s->memory, 2 * s->stage, at, x->lent) == 0);
}

static pi_status map_class(paging *g, int size, uint64_t room, pi_error *err) {
    paging_neurons *x = g->neurons;
    neuron_class *s = &x->classes[size];
    size_t shared;
    uint64_t hot = 0;
    int turn = 0;
    for (int i = 0; i < x->n_layer; i++)
        if (x->layers[i].from && x->layers[i].size == size)
            hot += paging_to_pages((size_t)x->layers[i].n_hot * s->stride);
    shared = s->stage ? (size_t)(room - hot) / PAGING_PAGE * PAGING_PAGE : 0;
    if (!s->picks) shared = 2 * s->stage;
    s->slot_row = s->n_rows;
    s->n_slots = (int64_t)(shared / s->stride);
    s->first_slot = s->needs_all ? (int64_t)((2 * s->stage + s->stride - 1) / s->stride) : 0;
    if (!s->picks) s->n_slots = 0;
    s->most_slots = s->n_slots;
    s->shared = shared;
    s->hand = s->first_slot;
    size_t lent_begin = (size_t)s->n_rows * s->stride + to_units(shared);
    s->lent_from = s->lent_to = (int64_t)(2 * s->stage / s->stride);
    s->reserved = lent_begin + lent_of(x, s);
    g->sizes.hot += hot;
    g->sizes.cache += shared;
    s->slots = mem_calloc((size_t)s->n_slots + 1, sizeof *s->slots);
    void *base = os_memory_reserve(s->reserved);
    if (!base || !s->slots) return error_nomem(err, s->reserved, "neurons");
    s->base = base;
    for (int64_t i = 0; i < s->n_slots; i++) s->slots[i].layer = -1;
    os_memory_use_huge_pages(base, (size_t)s->n_rows * s->stride);
    bool ok = true;
    for (int i = 0; i < x->n_layer && ok; i++)
        if (x->layers[i].from && x->layers[i].size == size) ok = commit_prefix(s, &x->layers[i]);
    if (!ok) return error_nomem(err, (size_t)hot, "neurons");
    if (shared == 0)
        return map_lent(x, s, NULL) ? PI_OK : error_nomem(err, x->lent, "working buffers");
    s->memory = os_shared_create(shared);
    ok = s->memory != OS_SHARED_NONE &&
         os_shared_map(s->memory, 0, s->base + (size_t)s->slot_row * s->stride, shared) == 0;
    for (int i = 0; i < x->n_layer && ok; i++)
        if (x->layers[i].from && x->layers[i].size == size)
            ok = map_rest(s, &x->layers[i], turn++ % 2);
    ok = ok && map_lent(x, s, s->base + lent_begin);
    return ok ? PI_OK : error_nomem(err, shared, "neurons");
}

/* ---- filling it ------------------------------------------------------------------------------ */

/* Reads a run of neurons to a row of the class. */
static drive_request request_for(const paging *g, const neuron_layer *l, int64_t neuron, int64_t n,
                                 int64_t row, atomic_size_t *left) {
    const neuron_class *s = &g->neurons->classes[l->size];
    return (drive_request){.offset = l->offset + (uint64_t)neuron * s->stride,
                           .n_bytes = (size_t)n * s->stride,
                           .to = s->base + (size_t)row * s->stride,
                           .left = left};
}

static void own_slot(neuron_class *s, neuron_layer *l, int32_t layer, int64_t neuron,
                     int64_t slot) {
    s->slots[slot] = (neuron_slot){
        .layer = layer, .neuron = (int32_t)neuron, .usage = l->usage[neuron]};
    l->slot[neuron] = (int32_t)slot;
}

/* Reads hot prefixes, then fills an equal share of the slots with the next neurons of every
 * layer. */
static pi_status read_first(paging *g, pi_error *err) {
    paging_neurons *x = g->neurons;
    pi_status status = PI_OK;
    for (int i = 0; i < x->n_layer && status == PI_OK; i++) {
        neuron_layer *l = &x->layers[i];
        if (!l->from) continue;
        neuron_class *s = &x->classes[l->size];
        drive *d = g->drives[l->part];
        atomic_size_t left = 0;
        int n_same = 0;
        for (int k = 0; k < x->n_layer; k++)
            n_same += x->layers[k].from && x->layers[k].size == l->size;
        int64_t n = (s->n_slots - s->first_slot) / n_same;
        if (n > l->n - l->n_hot) n = l->n - l->n_hot;
        const drive_request hot = request_for(g, l, 0, l->n_hot, l->row, &left);
        if (l->n_hot > 0) drive_submit(d, &hot, 1);
        const drive_request next = request_for(g, l, l->n_hot, n, s->slot_row + s->hand, &left);
        if (n > 0 && l->picks) {
            drive_submit(d, &next, 1);
            for (int64_t k = 0; k < n; k++) own_slot(s, l, i, l->n_hot + k, s->hand++);
        }
        drive_wait(d, &left);
        status = drive_check(d, err);
    }
    for (int i = 0; i < x->n_classes; i++) x->classes[i].hand = x->classes[i].first_slot;
    return status;
}

static void write_addresses(paging *g, plan *p) {
    paging_neurons *x = g->neurons;
    for (int i = 0; i < p->n_steps; i++) {
        plan_step *s = &p->steps[i];
        if (!paging_is_bundled(g, s) || !x->layers[s->layer].from) continue;
        const neuron_layer *l = &x->layers[s->layer];
        const neuron_class *size = &x->classes[l->size];
        const uint8_t *at = size->base + (size_t)l->row * size->stride;
        for (int k = 0; k < s->n_matrices; k++)
            s->matrix[k].w.data = at + ((const uint8_t *)s->matrix[k].w.data - l->from);
        if (s->op != OP_FFN_SPARSE) continue;
        plan_matrix *down = &p->ffn[s->layer].down;
        down->w.data = at + ((const uint8_t *)down->w.data - l->from);
    }
}

/* Measures which gaps between selected neurons are read. */
static pi_status measure_gaps(const paging *g, pi_error *err) {
    static const double seconds = 0.05;
    const paging_neurons *x = g->neurons;
    for (int i = 0; i < x->n_layer; i++) {
        const neuron_layer *l = &x->layers[i];
        if (!l->from) continue;
        neuron_class *s = &x->classes[l->size];
        drive *d = g->drives[l->part];
        size_t gap;
        if (!l->picks || s->stage == 0 || s->gap >= 0) continue;
        pi_status status = drive_measure_gap(d, s->stride, seconds, &gap, err);
        if (status != PI_OK) return status;
        s->gap = (int64_t)(gap / s->stride);
    }
    return PI_OK;
}

/* Creates a unit for the neurons outside the prefix, in every layer. */
static pi_status list_tails(paging *g, const plan *p, pi_error *err) {
    paging_neurons *x = g->neurons;
    int *turns = mem_calloc((size_t)x->n_classes, sizeof *turns);
    if (!turns) return error_nomem(err, (size_t)x->n_classes * sizeof *turns, "neurons");
    x->tails.units = x->units;
    x->tails.ahead = true;
    for (int i = 0; i < p->n_steps; i++) {
        const plan_step *s = &p->steps[i];
        if (s->op != OP_FFN_SPARSE || !paging_is_bundled(g, s)) continue;
        const neuron_layer *l = &x->layers[s->layer];
        const neuron_class *size = &x->classes[l->size];
        int turn = turns[l->size]++ % 2, last = i;
        while (last + 1 < p->n_steps && p->steps[last].op != OP_FFN_DOWN) last++;
        if (!l->from || l->n_hot == l->n) continue;
        drive_request r = request_for(g, l, l->n_hot, l->n - l->n_hot, l->row + l->n_hot, NULL);
        x->units[x->tails.n++] = (paging_unit){
            .span = {.part = l->part, .begin = r.offset, .n_bytes = r.n_bytes, .at = r.to},
            .shared = true,
            .first_step = i,
            .last_step = last,
            .place = ((size_t)l->size << SIZE_PLACE_BITS) + (size_t)turn * size->stage,
            .picks = l->picks};
        if (l->picks) x->tails.ahead = false; /* between ubatches the memory belongs to the slots */
    }
    mem_free(turns);
    return paging_index_steps(g, &x->tails, err);
}

pi_status paging_neurons_fill(paging *g, plan *p, uint64_t n_bytes, pi_error *err) {
    paging_neurons *x = g->neurons;
    uint64_t least = paging_neurons_least(x), all = paging_neurons_all(x);
    pi_status status = PI_OK;
    for (int i = 0; i < x->n_classes && status == PI_OK; i++) {
        const neuron_class *s = &x->classes[i];
        uint64_t whole = all_of(x, s), own = least_of(x, s) < whole ? least_of(x, s) : whole;
        double share = all > least ? (double)(whole - own) / (double)(all - least) : 0;
        uint64_t room = own + (uint64_t)((double)(n_bytes - least) * share);
        choose_prefixes(g, i, n_bytes >= all ? whole : room);
        g->sizes.cached += s->stage ? (uint64_t)s->n_rows * s->stride : 0;
        g->sizes.lent += s->stage ? 0 : lent_of(x, s);
        status = map_class(g, i, room, err);
    }
    if (status == PI_OK && !g->sizes_only) status = read_first(g, err);
    if (status == PI_OK && !g->sizes_only) status = measure_gaps(g, err);
    if (status == PI_OK) status = list_tails(g, p, err);
    if (status != PI_OK) return status;
    for (int i = 0; i < x->n_layer; i++)
        if (x->layers[i].n_hot == x->layers[i].n) x->layers[i].picks = false;
    write_addresses(g, p);
    return PI_OK;
}

/* ---- picking --------------------------------------------------------------------------------- */

bool paging_picks(const paging *g, int layer) {
    return g->neurons && g->neurons->layers[layer].picks && !g->many;
}

/* A unique number for a layer's step in this ubatch; never 0. */
static uint32_t step_of(const paging *g, int layer) {
    return (uint32_t)(g->ubatch * (uint64_t)g->neurons->n_layer + (uint64_t)layer) + 1;
}

static neuron_ahead *ahead_of(paging_neurons *x, int layer) {
    return &x->ahead[layer % 2];
}

/* Keeps the slots of the step and, where there are enough slots, of the one before it, which may
 * still be computed. There are more slots than the neurons outside the prefixes of two layers, or
 * of one layer if every ubatch needs the stages. A neuron of a later layer may be evicted while
 * refill still reads it: only then may another read fill the slot. */
static int64_t take_slot(const paging *g, neuron_class *s, uint32_t step) {
    enum { PASSED_MOST = 256, PACE = 1024 };
    paging_neurons *x = g->neurons;
    for (int passed = 0;; passed++) {
        int64_t slot = s->hand;
        neuron_slot *o = &s->slots[slot];
        s->hand = next_slot(s, slot);
        if (o->layer < 0) return slot;
        if (passed == PASSED_MOST) { /* no usage below the floor so far: raise it */
            s->floor *= 1.25f;
            passed = 0;
        }
        if (step - o->step <= !s->needs_all || o->usage >= s->floor) continue;
        s->floor *= 1 + (float)(passed - PASSED) / PACE;
        if (s->floor < least_floor) s->floor = least_floor;
        neuron_layer *l = &x->layers[o->layer];
        drive_wait(g->drives[l->part], &l->refilling);
        l->slot[o->neuron] = -1;
        return slot;
    }
}

/* With the lock held: assigns a slot to a neuron and requests the neuron. */
static int64_t fetch(paging *g, int layer, int32_t neuron, atomic_size_t *left,
                     drive_request *request) {
    paging_neurons *x = g->neurons;
    neuron_layer *l = &x->layers[layer];
    neuron_class *s = &x->classes[l->size];
    uint32_t step = step_of(g, layer);
    int64_t slot = take_slot(g, s, step);
    own_slot(s, l, layer, neuron, slot);
    s->slots[slot].step = step;
    *request = request_for(g, l, neuron, 1, s->slot_row + slot, left);
    return slot;
}

/* The requests of one selection, in the order of the neurons. */
typedef struct fetch_list {
    paging *g;
    int layer;
    atomic_size_t *left;
    drive_request *requests; /* [n] */
    size_t n;
    int64_t end; /* after the last neuron; -1: none */
} fetch_list;

/* With the lock held: requests the gap, neurons [f->end, to). Neurons that are
 * used often get a slot; the others are dropped. */
static void fetch_gap(fetch_list *f, int64_t to) {
    const paging_neurons *x = f->g->neurons;
    const neuron_layer *l = &x->layers[f->layer];
    const neuron_class *s = &x->classes[l->size];
    int64_t dropped = -1; /* the previous neuron if it was dropped, else -1 */
    for (int64_t i = f->end; i < to; i++) {
        drive_request *r = &f->requests[f->n];
        bool stays = l->slot[i] < 0 && l->usage[i] >= s->floor;
        if (stays) {
            (void)fetch(f->g, f->layer, (int32_t)i, f->left, r);
            f->n++;
        } else if (dropped < 0) {
            *r = request_for(f->g, l, i, 1, 0, f->left);
            r->to = NULL;
            f->n++;
        } else {
            r[-1].n_bytes += s->stride;
        }
        f->requests[f->n - 1].joined = true;
        dropped = stays ? -1 : i;
    }
}

/* With the lock held: requests a neuron, joined with the previous one if the gap
 * is small. Returns its slot. */
static int64_t fetch_next(fetch_list *f, int32_t neuron) {
    const paging_neurons *x = f->g->neurons;
    const neuron_class *s = &x->classes[x->layers[f->layer].size];
    bool joined = f->end >= 0 && neuron - f->end <= s->gap;
    if (joined) fetch_gap(f, neuron);
    drive_request *r = &f->requests[f->n++];
    int64_t slot = fetch(f->g, f->layer, neuron, f->left, r);
    r->joined = joined;
    f->end = neuron + 1;
    return slot;
}

static void submit_list(const fetch_list *f) {
    const paging *g = f->g;
    if (f->n > 0) drive_submit(g->drives[g->neurons->layers[f->layer].part], f->requests, f->n);
}

/* With the lock held: counts a selected neuron that has a slot. A prefetched neuron counts as a
 * miss. */
static void use_slot(paging_neurons *x, neuron_layer *l, neuron_slot *o, uint32_t step) {
    bool ahead = o->ahead && o->step == step;
    l->n_useful += ahead;
    x->misses += ahead;
    x->hits += !ahead;
    o->ahead = false;
    o->step = step;
    o->usage = l->usage[o->neuron];
}

static int n_parts(const neuron_layer *l) {
    return (int)((l->n + l->part_rows - 1) / l->part_rows);
}

/* Requests the neurons of a part that the layer will probably select. */
static void send_ahead(paging *g, int layer, int part, const int32_t *rows, int64_t n) {
    paging_neurons *x = g->neurons;
    neuron_layer *l = &x->layers[layer];
    neuron_class *s = &x->classes[l->size];
    neuron_ahead *a = ahead_of(x, layer);
    fetch_list f = {g, layer, &a->left[part], a->requests + part * l->part_rows, 0, -1};
    os_mutex_lock(&x->lock);
    atomic_store_explicit(&a->layer, layer, memory_order_relaxed);
    for (int64_t i = 0; i < n && l->n_ahead < l->room; i++) {
        if (rows[i] < l->n_hot || l->slot[rows[i]] >= 0) continue;
        int64_t slot = fetch_next(&f, rows[i]);
        s->slots[slot].ahead = true;
        l->n_ahead++;
    }
    os_mutex_unlock(&x->lock);
    submit_list(&f);
}

static void send_waiting(paging *g, int layer) {
    neuron_ahead *a = ahead_of(g->neurons, layer);
    if (a->waiting != layer) return;
    const neuron_layer *l = &g->neurons->layers[layer];
    for (int part = 0; part < n_parts(l); part++)
        send_ahead(g, layer, part, a->rows + part * l->part_rows, a->n_rows[part]);
    a->waiting = -1;
}

/* The layer before it has not selected its neurons in this ubatch. */
static bool is_early(const paging *g, int layer) {
    const paging_neurons *x = g->neurons;
    return layer > 0 && paging_picks(g, layer - 1) &&
           atomic_load_explicit(&x->ready[0], memory_order_relaxed) != step_of(g, layer - 1);
}

void paging_prefetch(paging *g, int layer, int part, const int32_t *rows, int64_t n) {
    neuron_ahead *a = ahead_of(g->neurons, layer);
    const neuron_layer *l = &g->neurons->layers[layer];
    if (!is_early(g, layer)) {
        send_ahead(g, layer, part, rows, n);
        return;
    }
    if (g->neurons->classes[l->size].needs_all) n = 0; /* the slots are for one layer at a time */
    memcpy(a->rows + part * l->part_rows, rows, (size_t)n * sizeof *rows);
    a->n_rows[part] = n;
    if (part == 0) a->waiting = layer;
}

void paging_pick(paging *g, int layer, int part, const int32_t *rows, const uint8_t *mark,
                 int64_t n) {
    paging_neurons *x = g->neurons;
    neuron_layer *l = &x->layers[layer];
    neuron_class *s = &x->classes[l->size];
    uint32_t step = step_of(g, layer);
    int64_t first = part * l->part_rows;
    fetch_list f = {g, layer, &x->left[part], x->requests + first, 0, -1};
    os_mutex_lock(&x->lock);
    l->late = l->late ||
              atomic_load_explicit(&ahead_of(x, layer)->left[part], memory_order_relaxed) > 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t neuron = rows[i];
        x->rows[first + i] = neuron;
        if (mark) x->mark[first + i] = mark[i];
        if (neuron < l->n_hot) continue;
        int64_t slot = l->slot[neuron];
        l->usage[neuron] += x->gain;
        if (slot >= 0) {
            use_slot(x, l, &s->slots[slot], step);
        } else {
            x->misses++;
            l->n_missing++;
            slot = fetch_next(&f, neuron);
        }
        x->rows[first + i] = (int32_t)(s->slot_row + slot - l->row);
    }
    x->n_picked = x->n_picked % n_parts(l) + 1;
    bool last = x->n_picked == n_parts(l);
    os_mutex_unlock(&x->lock);
    x->n_rows[part] = n;
    submit_list(&f);
    atomic_store_explicit(&x->ready[part], step, memory_order_release);
    if (last && layer + 1 < x->n_layer) send_waiting(g, layer + 1);
}

bool paging_neurons_prefetch(const paging *g, int layer) {
    return paging_picks(g, layer) && g->neurons->layers[layer].prefetches;
}

int64_t paging_picked(paging *g, int layer, int part, int32_t *rows, uint8_t *mark) {
    paging_neurons *x = g->neurons;
    const neuron_layer *l = &x->layers[layer];
    int64_t first = part * l->part_rows;
    int round = 0;
    while (atomic_load_explicit(&x->ready[part], memory_order_acquire) != step_of(g, layer))
        pool_wait(&round);
    drive_wait(g->drives[l->part], &l->refilling);
    drive_wait(g->drives[l->part], &ahead_of(x, layer)->left[part]);
    drive_wait(g->drives[l->part], &x->left[part]);
    memcpy(rows, x->rows + first, (size_t)x->n_rows[part] * sizeof *rows);
    if (mark) memcpy(mark, x->mark + first, (size_t)x->n_rows[part]);
    return x->n_rows[part];
}

int32_t paging_neuron(const paging *g, int layer, int32_t row) {
    const paging_neurons *x = g->neurons;
    const neuron_layer *l = &x->layers[layer];
    const neuron_class *s = &x->classes[l->size];
    if (row < l->n_hot) return row;
    return s->slots[row + l->row - s->slot_row].neuron;
}

/* ---- ubatches -------------------------------------------------------------------------------- */

void paging_neurons_empty(paging_neurons *x, neuron_class *s, int64_t from, int64_t to) {
    for (int64_t i = from; i < to && i < s->n_slots; i++) {
        neuron_slot *o = &s->slots[i];
        if (o->layer >= 0) x->layers[o->layer].slot[o->neuron] = -1;
        *o = (neuron_slot){.layer = -1};
    }
}

static void rescale(paging_neurons *x) {
    for (int i = 0; i < x->n_layer; i++)
        for (int64_t k = 0; k < x->layers[i].n; k++) x->layers[i].usage[k] /= x->gain;
    for (int i = 0; i < x->n_classes; i++) {
        neuron_class *s = &x->classes[i];
        for (int64_t k = 0; k < s->n_slots; k++) s->slots[k].usage /= x->gain;
        s->floor /= x->gain;
    }
    x->gain = 1;
}

/* Adapts prefetching after a ubatch. The drive should be busy until neurons are selected, and
 * longer if hardly any read is useless. */
static void judge(const paging *g, neuron_layer *l, int layer) {
    g->neurons->n_ahead += (uint64_t)l->n_ahead;
    g->neurons->in_vain += (uint64_t)(l->n_ahead - l->n_useful);
    if (l->n_ahead > 0) l->useful += ((double)l->n_useful / (double)l->n_ahead - l->useful) / 8;
    bool sure = l->useful >= sure_useful;
    if (l->n_ahead > 0 && l->late && !sure) l->room -= l->room / 8;
    if (l->n_ahead == l->room && (!l->late || sure)) l->room += l->room / 8;
    if (l->room < LEAST_AHEAD) l->room = LEAST_AHEAD;
    l->missing += ((double)(l->n_missing + l->n_useful) - l->missing) / 8;
    bool tries = (g->ubatch + (uint64_t)layer) % PAGING_TRY_EVERY == 0;
    l->prefetches = l->missing >= paging_least_missing &&
                    (l->useful >= paging_least_useful || tries);
    l->n_ahead = l->n_useful = l->n_missing = 0;
    l->late = false;
}

/* Drops a view of shared memory, because a page mapped twice counts twice as resident. */
static void drop_view(uint8_t *at, size_t n_bytes) {
    if (n_bytes > 0) os_memory_forget(at, n_bytes);
}

/* Gives `lent` bytes to working buffers, or takes them back. */
static void lend(paging_neurons *x, size_t lent) {
    if (x->lender < 0 || x->classes[x->lender].stage == 0) return;
    neuron_class *s = &x->classes[x->lender];
    size_t begin = 2 * s->stage, before = x->borrowed;
    uint8_t *slots = s->base + (size_t)s->slot_row * s->stride;
    x->borrowed = paging_to_pages(lent);
    if (x->borrowed < before) drop_view(x->lent_at + x->borrowed, before - x->borrowed);
    s->lent_to = s->lent_from;
    if (lent > 0) s->lent_to = (int64_t)((begin + x->borrowed + s->stride - 1) / s->stride);
    if (s->lent_to > s->n_slots) s->lent_to = s->n_slots;
    s->hand = next_slot(s, s->hand - 1);
    x->refills = x->refills || x->borrowed < before;
    if (x->borrowed <= before) return;
    paging_neurons_empty(x, s, s->lent_from, s->lent_to);
    drop_view(slots + begin + before, x->borrowed - before);
}

void *paging_neurons_lent(const paging_neurons *x) {
    return x->lent_at;
}

static int64_t count_free(const neuron_class *s) {
    int64_t n = 0;
    for (int64_t i = s->first_slot; i < s->n_slots; i++)
        n += s->slots[i].layer < 0 && !(i >= s->lent_from && i < s->lent_to);
    return n;
}

/* Neurons of a class that are not in memory and have at least this usage. */
static int64_t count_missing(const paging_neurons *x, int size, float usage) {
    int64_t n = 0;
    for (int i = 0; i < x->n_layer; i++) {
        const neuron_layer *l = &x->layers[i];
        for (int64_t k = l->n_hot; l->picks && l->size == size && k < l->n; k++)
            n += l->slot[k] < 0 && l->usage[k] >= usage;
    }
    return n;
}

/* Reads the most used neurons into slots that prefill has left empty; otherwise the next tokens
 * would read them one by one. Neurons whose usage is below the floor are not read. */
static void refill(paging *g) {
    paging_neurons *x = g->neurons;
    for (int size = 0; size < x->n_classes; size++) {
        const neuron_class *s = &x->classes[size];
        int64_t n_free = count_free(s);
        float least = s->floor;
        if (n_free == 0) continue;
        while (count_missing(x, size, least) > n_free) least *= 1.25f;
        for (int i = 0; i < x->n_layer; i++) {
            neuron_layer *l = &x->layers[i];
            fetch_list f = {g, i, &l->refilling, x->requests, 0, -1};
            for (int64_t k = l->n_hot; l->picks && l->size == size && k < l->n; k++)
                if (l->slot[k] < 0 && l->usage[k] >= least) (void)fetch_next(&f, (int32_t)k);
            submit_list(&f);
        }
    }
    x->refills = false;
}

void paging_neurons_begin(paging *g, size_t lent) {
    paging_neurons *x = g->neurons;
    lend(x, lent);
    for (int i = 0; i < x->n_layer && !g->many; i++) judge(g, &x->layers[i], i);
    if (!g->many) {
        if (x->refills) refill(g);
        x->gain *= exp2f(1.0f / HALF_LIFE);
        if (x->gain > most_gain) rescale(x);
        return;
    }
    x->refills = true;
    for (int i = 0; i < x->n_classes; i++) {
        neuron_class *s = &x->classes[i];
        paging_neurons_empty(x, s, s->first_slot,
                             (int64_t)((2 * s->stage + s->stride - 1) / s->stride));
        s->hand = next_slot(s, s->first_slot - 1);
        drop_view(s->base + (size_t)s->slot_row * s->stride, 2 * s->stage);
    }
}

void paging_neurons_advance(const paging *g) {
    const paging_neurons *x = g->neurons;
    for (int i = 0; i < 2; i++) {
        int layer = atomic_load_explicit(&x->ahead[i].layer, memory_order_relaxed);
        if (layer >= 0) drive_poll(g->drives[x->layers[layer].part]);
    }
}

void paging_neurons_end(paging *g, bool drop) {
    paging_neurons *x = g->neurons;
    x->n_picked = 0;
    for (int k = 0; k < 2; k++) {
        neuron_ahead *a = &x->ahead[k];
        int layer = atomic_exchange_explicit(&a->layer, -1, memory_order_relaxed);
        for (int i = 0; i < PLAN_FFN_MAX_PARTS && layer >= 0; i++) /* the ubatch was cancelled */
            drive_wait(g->drives[x->layers[layer].part], &a->left[i]);
        a->waiting = -1;
    }
    for (int i = 0; i < x->n_layer; i++)
        if (x->layers[i].from) drive_wait(g->drives[x->layers[i].part], &x->layers[i].refilling);
    for (int i = 0; i < x->n_classes && drop; i++)
        paging_neurons_empty(x, &x->classes[i], 0, x->classes[i].n_slots);
}
