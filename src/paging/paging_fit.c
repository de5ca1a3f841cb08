/* paging_fit.c: divides the budget. */
#include <inttypes.h>
#include <string.h>

#include "mem.h"
#include "paging_impl.h"

static size_t matrix_bytes(const plan_matrix *m) {
    return m->w.n_out > 0 ? (size_t)(m->w.n_out - 1) * m->w.row_bytes + m->row_size : 0;
}

/* ---- units ----------------------------------------------------------------------------------- */

static paging_unit *find_unit(paging *g, const plan_matrix *m) {
    for (int i = g->n_units - 1; i >= 0; i--) /* units of the current step come last */
        if (g->units[i].from == m->w.data && g->units[i].n_bytes == matrix_bytes(m))
            return &g->units[i];
    return NULL;
}

static void add_unit(paging *g, const plan_matrix *m, int step) {
    paging_span span;
    size_t n_bytes = matrix_bytes(m);
    if (n_bytes == 0 || !paging_span_of(g, m->w.data, n_bytes, &span)) return; /* it stays */
    paging_unit *u = find_unit(g, m);
    if (!u) {
        u = &g->units[g->n_units++];
        *u = (paging_unit){.from = m->w.data, .n_bytes = n_bytes, .span = span, .first_step = step};
    }
    u->last_step = step;
}

/* The matrices that a step reads: its own, rows of down (which belong to the layer), and for
 * compressed attention the matrices of the neighbouring steps (cpu_latent.c). */
static int step_matrices(const paging *g, plan *p, int step, plan_matrix *out[PLAN_MAX_GROUP + 1]) {
    plan_step *s = &p->steps[step];
    int n = 0;
    if (s->layer < 0 || paging_is_bundled(g, s)) return 0;
    for (int k = 0; k < s->n_matrices; k++) out[n++] = &s->matrix[k];
    for (int k = 0; s->op == OP_ATTENTION && p->model->hp.n_latent > 0 && k < 2; k++)
        out[n++] = s[plan_latent_offset(s, k ? ROLE_ATTN_K_B : ROLE_ATTN_V_B)].matrix;
    bool sparse = s->op == OP_FFN_SPARSE || s->op == OP_FFN_DOWN;
    if (sparse && p->ffn[s->layer].down.w.data) out[n++] = &p->ffn[s->layer].down;
    return n;
}

static pi_status list_units(paging *g, plan *p, pi_error *err) {
    plan_matrix *m[PLAN_MAX_GROUP + 1];
    size_t most = (size_t)p->n_steps * (PLAN_MAX_GROUP + 1);
    g->units = mem_calloc(most, sizeof *g->units);
    if (!g->units) return error_nomem(err, most * sizeof *g->units, "weights");
    for (int i = 0; i < p->n_steps; i++) { /* early steps run only where nothing is streamed */
        if (p->steps[i].early) continue;
        for (int k = step_matrices(g, p, i, m); k > 0; k--) add_unit(g, m[k - 1], i);
    }
    return PI_OK;
}

/* ---- the budget ------------------------------------------------------------------------------ */

static uint64_t bytes_of_units(const paging *g) {
    uint64_t n = 0;
    for (int i = 0; i < g->n_units; i++) n += g->units[i].span.n_bytes;
    return n;
}

/* Twice the bytes that one step needs: the units of the next step arrive while this step is
 * computed. Compressed attention needs the units of the step before it and one matrix more. This
 * matrix counts twice, because it may not fit at the end of the ring. */
static uint64_t ring_bytes(const paging *g, const plan *p) {
    uint64_t most = 0, group = 0;
    for (int i = 0; i < g->n_units; i++) {
        const paging_unit *u = &g->units[i], *last = i > 0 ? u - 1 : u;
        bool goes_on = i > 0 && u->first_step <= last->last_step;
        bool attention = goes_on && p->steps[last->last_step].op == OP_ATTENTION;
        group = (goes_on ? group : 0) + u->span.n_bytes;
        uint64_t bytes = attention ? group + u->span.n_bytes : 2 * group;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Pins units until `room` is used up, spread over the layers, so that the drive can read while
 * pinned units are computed; then pins further units that fit. The others keep their order. */
static void choose_pinned(paging *g, uint64_t room) {
    uint64_t total = bytes_of_units(g), passed = 0, pinned = 0;
    for (int i = 0; i < g->n_units; i++) {
        paging_unit *u = &g->units[i];
        passed += u->span.n_bytes;
        double want = (double)room * ((double)passed / (double)total);
        if ((double)(pinned + u->span.n_bytes) > want) continue;
        pinned += u->span.n_bytes;
        u->place = 1;
    }
    for (int i = 0; i < g->n_units; i++) {
        paging_unit *u = &g->units[i];
        if (u->place || pinned + u->span.n_bytes > room) continue;
        pinned += u->span.n_bytes;
        u->place = 1;
    }
    g->sizes.pinned = pinned;
    g->sizes.streamed = total - pinned;
}

/* Streamed units come first. */
static pi_status sort_units(paging *g, pi_error *err) {
    paging_unit *sorted = mem_calloc((size_t)g->n_units + 1, sizeof *sorted);
    if (!sorted) return error_nomem(err, (size_t)g->n_units * sizeof *sorted, "weights");
    int n = 0;
    for (int pinned = 0; pinned < 2; pinned++) {
        for (int i = 0; i < g->n_units; i++)
            if ((int)g->units[i].place == pinned) sorted[n++] = g->units[i];
        if (!pinned) g->matrices.n = n;
    }
    mem_free(g->units);
    g->units = sorted;
    return PI_OK;
}

static pi_status place_units(paging *g, pi_error *err) {
    uint8_t *at = NULL;
    size_t place = 0;
    if (g->sizes.pinned) at = g->pinned_memory = mem_map(g->sizes.pinned);
    if (g->sizes.ring) g->ring = mem_map(g->sizes.ring);
    if ((g->sizes.pinned && !at) || (g->sizes.ring && !g->ring))
        return error_nomem(err, g->sizes.pinned + g->sizes.ring, "weights");
    for (int i = 0; i < g->n_units; i++) {
        paging_unit *u = &g->units[i];
        size_t n = u->span.n_bytes;
        if (i >= g->matrices.n) {
            u->span.at = at;
            at += n;
            continue;
        }
        if (place + n > g->sizes.ring) place = 0;
        u->place = place;
        u->span.at = g->ring + place;
        place += n;
    }
    g->matrices.units = g->units;
    g->matrices.ahead = true;
    return paging_index_steps(g, &g->matrices, err);
}

static void write_addresses(paging *g, plan *p) {
    plan_matrix *m[PLAN_MAX_GROUP + 1];
    uint64_t offset;
    int part;
    for (int i = 0; i < p->n_steps; i++) {
        for (int k = step_matrices(g, p, i, m); k > 0; k--) {
            const paging_unit *u = find_unit(g, m[k - 1]);
            if (!u || !gguf_locate(g->source->file, m[k - 1]->w.data, &part, &offset)) continue;
            m[k - 1]->w.data = u->span.at + (offset - u->span.begin);
        }
    }
}

static pi_status read_pinned(paging *g, uint64_t tables, pi_error *err) {
    int n = g->n_units - g->matrices.n;
    paging_span *spans = mem_calloc((size_t)n + PAGING_TABLES, sizeof *spans);
    if (!spans) return error_nomem(err, (size_t)n * sizeof *spans, "weights");
    for (int i = 0; i < n; i++) spans[i] = g->units[g->matrices.n + i].span;
    n += paging_tables_place(g, g->pinned_memory + (g->sizes.pinned - tables), spans + n);
    pi_status status = paging_read(g, g->always, g->n_always, err);
    if (status == PI_OK) status = paging_read(g, spans, n, err);
    mem_free(spans);
    return status;
}

static pi_status fail_budget(uint64_t budget, uint64_t beside, uint64_t needed, pi_error *err) {
    const double gib = 1 << 30;
    return error_set(err, PI_ERR_LIMIT,
                     "memory budget too small: %.2f GiB: this model needs %.2f GiB at least: %.2f "
                     "for weights, %.2f for buffers and the KV cache",
                     (double)budget / gib, (double)(needed + beside) / gib + 0.005,
                     (double)needed / gib, (double)beside / gib);
}

/* The cache's share of the room; the cache holds experts or neurons, whichever the model has. */
static pi_status fill_caches(paging *g, plan *p, uint64_t room, pi_error *err) {
    uint64_t experts = g->experts ? paging_experts_all(g->experts) : 0;
    uint64_t least = g->neurons ? paging_neurons_least(g->neurons) : 0;
    uint64_t neurons = g->neurons ? paging_neurons_all(g->neurons) : 0;
    if (experts > room - least) experts = room - least;
    room -= experts;
    pi_status status = g->experts ? paging_experts_fill(g, experts, err) : PI_OK;
    if (status != PI_OK || !g->neurons) return status;
    return paging_neurons_fill(g, p, room < neurons ? room : neurons, err);
}

pi_status paging_fit(paging *g, plan *p, uint64_t budget, uint64_t beside, uint64_t lent,
                     pi_error *err) {
    paging_sizes *s = &g->sizes;
    g->n_steps = p->n_steps;
    s->beside = beside;
    g->lent = lent;
    pi_status status = list_units(g, p, err);
    if (status == PI_OK) status = paging_experts_create(g, p, err);
    if (status == PI_OK) status = paging_neurons_create(g, p, err);
    if (status != PI_OK) return status;
    uint64_t least = (g->experts ? paging_experts_least(g->experts) : 0) +
                     (g->neurons ? paging_neurons_least(g->neurons) : 0);
    uint64_t units = bytes_of_units(g), ring = ring_bytes(g, p);
    if (ring > units) ring = units; /* all of them stay in memory */
    s->needed = s->always + ring + least;
    uint64_t room = budget > beside ? budget - beside : 0;
    if (room < s->needed) return fail_budget(budget, beside, s->needed, err);
    room -= s->always;
    bool stay = room >= units + least;
    s->ring = stay ? 0 : ring;
    choose_pinned(g, stay ? units : room - ring - least);
    room -= s->ring + s->pinned;
    uint64_t tables = 0, caches = (g->experts ? paging_experts_all(g->experts) : 0) +
                                  (g->neurons ? paging_neurons_all(g->neurons) : 0);
    if (stay && room > caches) tables = paging_tables_pin(g, room - caches);
    s->pinned += tables;
    room -= tables;
    status = sort_units(g, err);
    if (status == PI_OK) status = place_units(g, err);
    if (status == PI_OK && !g->sizes_only) status = read_pinned(g, tables, err);
    if (status == PI_OK) status = fill_caches(g, p, room, err);
    if (status != PI_OK) return status;
    write_addresses(g, p);
    return PI_OK;
}
