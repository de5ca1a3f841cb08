/* place_solve.c: branch and bound over the relaxed problem. A subset of all placements is a range
 * of split points per layer and primary device. The relaxation of a subset gives a lower bound and
 * two placements that enclose the budget; branching splits the subset at the item where the two
 * differ most. Good placements come from combining the two (the first layers from one, the rest
 * from the other), relaxing again with these primary devices fixed, and filling the remaining
 * memory with single steps.
 *
 * Without the search, placements of published models would be at most 0.07% slower, those of random
 * models of 16 to 63 layers up to 2%, and those of models with a few large layers up to 27%. The
 * search ends after at most MAX_PARTS subsets; the plan's `bound` limits the possible
 * improvement. */
#include <math.h>
#include <string.h>

#include "mem.h"
#include "place_search.h"

enum {
    MAX_PARTS = 200 /* about a millisecond per subset with 60 layers */
};

/* Relative tolerance, far below the errors of the cost model. */
static const double TOLERANCE = 1e-5;

typedef struct part {
    double bound;
    place_range (*ranges)[PLAN_SIDES]; /* [n] */
} part;

typedef struct search {
    place_problem problem;
    part parts[MAX_PARTS];
    int n_parts, n_made;
    double given_up; /* least bound of the subsets not searched */
    place_choice best, below, above, mixed, fixed_below, fixed_above;
    place_range (*fixed)[PLAN_SIDES]; /* [n] */
    arena arena;
    bool no_memory;
} search;

static void choice_create(search *s, place_choice *c) {
    c->primary = arena_calloc(&s->arena, (size_t)s->problem.n, sizeof *c->primary);
    c->k = arena_calloc(&s->arena, (size_t)s->problem.n, sizeof *c->k);
    if (!c->primary || !c->k) s->no_memory = true;
}

static void *ranges_create(search *s) {
    void *p = arena_calloc(&s->arena, (size_t)s->problem.n, sizeof(place_range[PLAN_SIDES]));
    if (!p) s->no_memory = true;
    return p;
}

static void keep_if_better(search *s, const place_choice *c) {
    if (c->bytes <= s->problem.budget && c->time < s->best.time)
        place_choice_copy(&s->problem, &s->best, c);
}

/* ---- good placements ------------------------------------------------------------------------- */

/* Spends the rest of the budget greedily on the item with the largest gain. */
static void fill_up(search *s, place_choice *c) {
    const place_problem *p = &s->problem;
    for (int round = 0; round < 4 * p->n; round++) {
        double left = p->budget - c->bytes, most = 0;
        int gainer = -1;
        int64_t to = 0;
        for (int i = 0; i < p->n; i++) {
            const place_item *item = &p->items[i];
            if (c->k[i] == item->n_units) continue;
            place_range range = {c->k[i], item->n_units};
            double room = floor(left / (double)item->unit_bytes);
            if (room < (double)(item->n_units - c->k[i])) range.high = c->k[i] + (int64_t)room;
            int64_t k = place_best_split(item, c->primary[i], range, 0);
            double gain = place_ffn_time(item, c->primary[i], c->k[i]) -
                          place_ffn_time(item, c->primary[i], k);
            if (gain <= most) continue;
            most = gain;
            gainer = i;
            to = k;
        }
        if (gainer < 0) return;
        c->k[gainer] = to;
        place_choice_sum(p, c);
    }
}

/* The best relaxed placement with the primary devices of the given placement. A side with none or
 * all of a layer's neurons keeps them, because the cost is discontinuous there. */
static void improve(search *s, const place_choice *c) {
    place_problem *p = &s->problem;
    double bound;
    for (int i = 0; i < p->n; i++) {
        int64_t n = p->items[i].n_units;
        bool gpu = c->primary[i] == SIDE_GPU;
        place_range r = gpu ? (c->k[i] == n ? (place_range){n, n} : (place_range){0, n - 1})
                            : (c->k[i] == 0 ? (place_range){0, 0} : (place_range){1, n});
        s->fixed[i][c->primary[i]] = r;
        s->fixed[i][!c->primary[i]] = (place_range){0, -1};
    }
    if (place_relax(p, s->fixed, &s->fixed_below, &s->fixed_above, &bound) == PLACE_EMPTY) return;
    fill_up(s, &s->fixed_below);
    keep_if_better(s, &s->fixed_below);
}

/* Items before `at` from a, the others from b. */
static void mix(search *s, const place_choice *a, const place_choice *b, int at) {
    for (int i = 0; i < s->problem.n; i++) {
        const place_choice *from = i < at ? a : b;
        s->mixed.primary[i] = from->primary[i];
        s->mixed.k[i] = from->k[i];
    }
    place_choice_sum(&s->problem, &s->mixed);
}

static void try_mixtures(search *s, const place_choice *a, const place_choice *b) {
    int at_best = -1;
    double least = INFINITY;
    for (int at = 0; at <= s->problem.n; at++) {
        mix(s, a, b, at);
        if (s->mixed.bytes > s->problem.budget || s->mixed.time >= least) continue;
        least = s->mixed.time;
        at_best = at;
    }
    if (at_best < 0) return;
    mix(s, a, b, at_best);
    keep_if_better(s, &s->mixed);
    improve(s, &s->mixed);
}

/* ---- subsets --------------------------------------------------------------------------------- */

static double tolerated(const search *s) {
    return s->best.time * (1 - TOLERANCE);
}

/* Adds a subset: a copy of the ranges with one item's ranges changed. */
static void add_part(search *s, place_range (*ranges)[PLAN_SIDES], int item, place_range cpu,
                     place_range gpu, double bound) {
    if (s->n_made == MAX_PARTS) {
        s->given_up = fmin(s->given_up, bound);
        return;
    }
    part *t = &s->parts[s->n_parts];
    t->ranges = ranges_create(s);
    if (!t->ranges) return;
    memcpy(t->ranges, ranges, (size_t)s->problem.n * sizeof *ranges);
    t->ranges[item][SIDE_CPU] = cpu;
    t->ranges[item][SIDE_GPU] = gpu;
    t->bound = bound;
    s->n_parts++;
    s->n_made++;
}

/* The item in which the two placements differ by most bytes; -1: they are equal. */
static int widest_difference(const search *s) {
    int widest = -1;
    double most = -1;
    for (int i = 0; i < s->problem.n; i++) {
        const place_item *item = &s->problem.items[i];
        bool same_primary = s->below.primary[i] == s->above.primary[i];
        if (same_primary && s->below.k[i] == s->above.k[i]) continue;
        double bytes = fabs((double)(s->below.k[i] - s->above.k[i])) * (double)item->unit_bytes;
        if (!same_primary) bytes += (double)item->bytes;
        if (bytes <= most) continue;
        most = bytes;
        widest = i;
    }
    return widest;
}

static void branch(search *s, place_range (*ranges)[PLAN_SIDES], double bound) {
    const place_range none = {0, -1};
    int i = widest_difference(s);
    if (i < 0) return;
    place_range cpu = ranges[i][SIDE_CPU], gpu = ranges[i][SIDE_GPU];
    if (s->below.primary[i] != s->above.primary[i]) {
        add_part(s, ranges, i, cpu, none, bound);
        add_part(s, ranges, i, none, gpu, bound);
        return;
    }
    plan_side primary = s->below.primary[i];
    int64_t a = s->below.k[i], b = s->above.k[i];
    int64_t middle = a < b ? a + (b - a + 1) / 2 : b + (a - b + 1) / 2;
    place_range *own = primary == SIDE_CPU ? &cpu : &gpu, low = *own, high = *own;
    low.high = middle - 1;
    high.low = middle;
    *own = low;
    add_part(s, ranges, i, cpu, gpu, bound);
    *own = high;
    if (primary == SIDE_CPU) /* the first half has the other primary */
        add_part(s, ranges, i, high, none, bound);
    else
        add_part(s, ranges, i, none, high, bound);
}

static void explore(search *s, place_range (*ranges)[PLAN_SIDES], double parent) {
    double bound;
    place_relaxed result = place_relax(&s->problem, ranges, &s->below, &s->above, &bound);
    if (result == PLACE_EMPTY) return;
    keep_if_better(s, &s->below);
    if (result == PLACE_SOLVED) return;
    bound = fmax(bound, parent);
    if (bound >= tolerated(s)) return;
    try_mixtures(s, &s->below, &s->above);
    try_mixtures(s, &s->above, &s->below);
    if (bound < tolerated(s)) branch(s, ranges, bound);
}

/* The subset with the least bound. */
static int next_part(const search *s) {
    int next = 0;
    for (int i = 1; i < s->n_parts; i++)
        if (s->parts[i].bound < s->parts[next].bound) next = i;
    return next;
}

/* Returns the least time that any placement could have. */
static double run(search *s) {
    place_range(*all)[PLAN_SIDES] = ranges_create(s);
    if (s->no_memory) return 0;
    for (int i = 0; i < s->problem.n; i++)
        for (int primary = 0; primary < PLAN_SIDES; primary++)
            all[i][primary] = (place_range){0, s->problem.items[i].n_units};
    s->given_up = INFINITY;
    explore(s, all, 0);
    while (s->n_parts > 0 && !s->no_memory) {
        int next = next_part(s);
        part t = s->parts[next];
        s->parts[next] = s->parts[--s->n_parts];
        if (t.bound >= tolerated(s)) break;
        explore(s, t.ranges, t.bound);
    }
    return fmin(s->given_up, tolerated(s));
}

/* ---- the plan -------------------------------------------------------------------------------- */

static pi_status search_create(search **out, const place_item *items, int n, double sync,
                               double budget, pi_error *err) {
    search *s = mem_calloc(1, sizeof *s);
    *out = s;
    if (!s) return error_nomem(err, sizeof *s, "placement");
    arena_init(&s->arena);
    s->problem = (place_problem){.n = n, .items = items, .sync = sync, .budget = budget};
    s->problem.steps = arena_calloc(&s->arena, (size_t)n, sizeof *s->problem.steps);
    if (!s->problem.steps) s->no_memory = true;
    place_choice *choices[] = {&s->best,  &s->below,       &s->above,      &s->problem.spare,
                               &s->mixed, &s->fixed_below, &s->fixed_above};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) choice_create(s, choices[i]);
    s->fixed = ranges_create(s);
    if (s->no_memory) return error_nomem(err, (size_t)n * sizeof(place_item), "placement");
    place_choice_sum(&s->problem, &s->best); /* zeroed: all on the CPU */
    return PI_OK;
}

pi_status place_solve(const place_workload *w, const place_machine *m, uint64_t budget,
                      place_plan *out, pi_error *err) {
    int n = w->n_layers + 1;
    uint64_t fixed = w->scratch_bytes + m->runtime_bytes + m->margin_bytes;
    search *s = NULL;
    *out = (place_plan){.n_layers = w->n_layers};
    out->splits = mem_calloc((size_t)w->n_layers, sizeof *out->splits);
    place_item *items = mem_calloc((size_t)n, sizeof *items);
    pi_status status = out->splits && items ? PI_OK
                                            : error_nomem(err, (size_t)n * sizeof *items, "layers");
    if (status == PI_OK) {
        place_items_fill(w, m, items);
        double room = budget > fixed ? (double)(budget - fixed) : 0;
        status = search_create(&s, items, n, place_machine_sync(m, w->stream_bytes), room, err);
    }
    if (status == PI_OK) {
        out->bound = s->best.time;
        if (m->has_gpu && budget > fixed) out->bound = run(s);
        if (s->no_memory) status = error_nomem(err, sizeof *s, "placement");
    }
    for (int i = 0; i < w->n_layers && status == PI_OK; i++) {
        out->splits[i].primary = s->best.primary[i];
        out->splits[i].hot = s->best.k[i] * w->layers[i].unit;
    }
    if (status == PI_OK)
        out->head = s->best.primary[w->n_layers];
    else
        place_plan_free(out);
    if (s) arena_free(&s->arena);
    mem_free(s);
    mem_free(items);
    return status;
}

void place_plan_free(place_plan *p) {
    mem_free(p->splits);
    *p = (place_plan){0};
}
