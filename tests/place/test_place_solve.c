/* test_place_solve.c: compares the solver with brute force over every placement of tiny instances,
 * and checks its properties on larger instances. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mem.h"
#include "place_device.h"
#include "random_place.h"

enum { TINY = 150, LARGE = 5, BUDGETS = 12 };

/* The solver's relative distance from the optimum is at most this; see place_solve.c. */
static const double PROMISE = 2e-5, ROUNDING = 1e-9;

static void solve(const place_workload *w, const place_machine *m, uint64_t budget,
                  place_plan *placed) {
    pi_error err = {.status = PI_OK};
    if (place_solve(w, m, budget, placed, &err) != PI_OK) fail_msg("%s", err.message);
}

/* ---- brute force ----------------------------------------------------------------------------- */

typedef struct odometer {
    const place_workload *w;
    const place_machine *m;
    uint64_t budget;
    place_plan placed;
    double best;
} odometer;

static void try_all(odometer *o, int i) {
    if (i == o->w->n_layers) {
        for (int primary = 0; primary < PLAN_SIDES; primary++) {
            o->placed.head = (plan_side)primary;
            if (plain_bytes(o->w, o->m, &o->placed) > (double)o->budget) continue;
            o->best = fmin(o->best, plain_seconds(o->w, o->m, &o->placed));
        }
        return;
    }
    const place_layer *l = &o->w->layers[i];
    for (int primary = 0; primary < PLAN_SIDES; primary++) {
        if (l->with_previous && (plan_side)primary != o->placed.splits[i - 1].primary) continue;
        for (int64_t hot = 0; hot <= l->n; hot += l->unit) {
            o->placed.splits[i] = (plan_split){.primary = (plan_side)primary, .hot = hot};
            try_all(o, i + 1);
        }
    }
}

static void test_brute_force(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 11);
    for (int round = 0; round < TINY; round++) {
        plan_split splits[3];
        place_workload w;
        random_workload(&r, 1 + (int)(rng_u64(&r) % 3), 5, &w);
        place_machine m = random_machine(&r);
        odometer o = {.w = &w, .m = &m, .best = INFINITY};
        o.budget = random_budget(&r, &w, &m);
        o.placed = (place_plan){.n_layers = w.n_layers, .splits = splits};
        try_all(&o, 0);
        place_plan placed;
        solve(&w, &m, o.budget, &placed);
        double seconds = plain_seconds(&w, &m, &placed);
        assert_true(plain_bytes(&w, &m, &placed) <= (double)o.budget);
        if (seconds > o.best * (1 + PROMISE))
            fail_msg("round %d: %.9g, best %.9g (%.3g more)", round, seconds, o.best,
                     seconds / o.best - 1);
        if (placed.bound > o.best * (1 + ROUNDING))
            fail_msg("round %d: bound %.9g above the best %.9g", round, placed.bound, o.best);
        place_plan_free(&placed);
        place_workload_free(&w);
    }
}

/* ---- properties ------------------------------------------------------------------------------ */

static void check_plan(const place_workload *w, const place_machine *m, uint64_t budget,
                       const place_plan *placed) {
    place_prediction t;
    place_layer_time layers[64];
    place_predict(w, m, placed, &t, layers);
    double seconds = plain_seconds(w, m, placed), sum = t.head, homes = t.sync;
    int64_t n_moves = t.exchanges;
    assert_true(fabs(t.seconds - seconds) <= ROUNDING * seconds);
    assert_true(placed->bound <= seconds * (1 + ROUNDING));
    for (int i = 0; i < w->n_layers; i++) {
        assert_in_range((uintmax_t)placed->splits[i].hot, 0, (uintmax_t)w->layers[i].n);
        assert_int_equal(placed->splits[i].hot % w->layers[i].unit, 0);
        assert_true(!w->layers[i].with_previous ||
                    placed->splits[i].primary == placed->splits[i - 1].primary);
        sum += layers[i].total;
        homes -= layers[i].sync;
        const plan_split *c = &placed->splits[i];
        const bool split = c->primary == SIDE_GPU ? c->hot < w->layers[i].n : c->hot > 0;
        n_moves -= split;
        assert_true(layers[i].sync ==
                    (split ? place_machine_sync(m, w->layers[i].exchange_bytes) : 0));
    }
    assert_true(fabs(sum + homes - seconds) <= ROUNDING * seconds);
    assert_true(fabs(homes - (double)n_moves * plain_exchange(m, w->stream_bytes)) <=
                ROUNDING * seconds);

    double used = plain_bytes(w, m, placed);
    assert_true(used <= (double)budget);
    assert_true(used == (double)(t.resident[SIDE_GPU] + t.margin));
    uint64_t twice = placed->head == SIDE_GPU && !m->shared ? w->tied_bytes : 0;
    assert_int_equal(t.weights[SIDE_GPU] + t.weights[SIDE_CPU] + t.kv_cache[SIDE_GPU] +
                         t.kv_cache[SIDE_CPU],
                     workload_bytes(w) + twice);
}

/* Increasing budgets: the plan is within the budget and never slower than with a smaller budget. */
static void test_budgets(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 12);
    for (int round = 0; round < LARGE; round++) {
        place_workload w;
        random_workload(&r, 4 + (int)(rng_u64(&r) % 40), 200, &w);
        place_machine m = random_machine(&r);
        uint64_t all = workload_bytes(&w) + w.scratch_bytes + m.runtime_bytes + m.margin_bytes;
        double before = INFINITY;
        for (uint64_t i = 0; i <= BUDGETS; i++) {
            uint64_t budget = all * i / BUDGETS;
            place_plan placed;
            solve(&w, &m, budget, &placed);
            check_plan(&w, &m, budget, &placed);
            double seconds = plain_seconds(&w, &m, &placed);
            if (seconds > before * (1 + PROMISE))
                fail_msg("round %d: %.9g with %d/%d, %.9g with less", round, seconds, (int)i,
                         BUDGETS, before);
            /* The bound proves closeness to the optimum at any size. */
            if (placed.bound < seconds * 0.999)
                fail_msg("round %d, %d/%d: %.9g, bound only %.9g", round, (int)i, BUDGETS, seconds,
                         placed.bound);
            before = seconds;
            place_plan_free(&placed);
        }
        place_workload_free(&w);
    }
}

static bool all_at(const place_workload *w, const place_plan *p, plan_side primary) {
    for (int i = 0; i < w->n_layers; i++) {
        if (p->splits[i].primary != primary) return false;
        if (p->splits[i].hot != (primary == SIDE_GPU ? w->layers[i].n : 0)) return false;
    }
    return p->head == primary;
}

static void test_ends(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 13);
    place_workload w;
    place_plan placed;
    random_workload(&r, 6, 50, &w);
    w.scratch_bytes = 1000;
    place_machine m = random_machine(&r);
    m.shared = false;
    m.sync = 1e-7;
    m.device[SIDE_GPU] = (place_device){.stream_gbps = 1e4, .gather_gbps = 1e4};
    m.runtime_bytes = 5000;
    m.margin_bytes = 4000;
    uint64_t fixed = 10000, all = workload_bytes(&w) + fixed;
    const uint64_t too_little[] = {0, 1, fixed - 1, fixed};
    for (size_t i = 0; i < sizeof too_little / sizeof *too_little; i++) {
        solve(&w, &m, too_little[i], &placed);
        assert_true(all_at(&w, &placed, SIDE_CPU));
        place_prediction t;
        place_predict(&w, &m, &placed, &t, NULL);
        assert_int_equal(t.resident[SIDE_GPU], 0);
        assert_int_equal(t.margin, 0);
        place_plan_free(&placed);
    }
    solve(&w, &m, all, &placed); /* the GPU is so fast that it is better for everything */
    assert_true(all_at(&w, &placed, SIDE_GPU));
    place_plan_free(&placed);
    solve(&w, &m, UINT64_MAX, &placed);
    assert_true(all_at(&w, &placed, SIDE_GPU));
    place_plan_free(&placed);
    m.has_gpu = false;
    solve(&w, &m, all, &placed);
    assert_true(all_at(&w, &placed, SIDE_CPU));
    place_plan_free(&placed);
    place_workload_free(&w);
}

/* Counts the neurons of helpers in a plan; they must be whole, existing groups. */
static int64_t count_helpers(const place_workload *w, const place_plan *p, int n) {
    int64_t sum = 0;
    for (int i = 0; i < w->n_layers; i++) {
        const plan_split *c = &p->splits[i];
        assert_true(plan_split_end(c) <= w->layers[i].n && c->helpers[c->device] == 0);
        for (int d = 0; d < PLAN_MAX_DEVICES; d++) {
            assert_true(c->helpers[d] >= 0 && c->helpers[d] % w->layers[i].unit == 0);
            assert_true(d < n || c->helpers[d] == 0);
        }
        sum += plan_split_end(c) - c->hot;
    }
    return sum;
}

/* The time of a plan without its helpers, whose gain must agree with the second formulation of the
 * cost model. */
static double without_helpers(const place_workload *w, const place_machine *m, place_plan *p) {
    place_prediction with, without;
    place_predict(w, m, p, &with, NULL);
    double plain = plain_seconds(w, m, p);
    for (int i = 0; i < w->n_layers; i++)
        memset(p->splits[i].helpers, 0, sizeof p->splits[i].helpers);
    place_predict(w, m, p, &without, NULL);
    double gain = without.seconds - with.seconds;
    assert_true(gain > 0);
    assert_true(fabs(gain - (plain_seconds(w, m, p) - plain)) <= ROUNDING * without.seconds);
    return without.seconds;
}

/* Sending the residual stream from GPU to GPU costs half an exchange. */
static void check_crossings(const place_workload *w, const place_machine *m,
                            const place_plan *placed) {
    plan_split splits[64];
    place_prediction several, one;
    const place_plan plain = {.n_layers = w->n_layers, .splits = splits, .head = placed->head};
    int n = 0;
    assert_true(w->n_layers <= 64);
    for (int i = 0; i < w->n_layers; i++) {
        const plan_split *c = &placed->splits[i], *before = c - (i > 0);
        splits[i] = (plan_split){.primary = c->primary, .hot = c->hot};
        n += c->primary == SIDE_GPU && before->primary == SIDE_GPU && c->device != before->device;
    }
    place_predict(w, m, placed, &several, NULL);
    place_predict(w, m, &plain, &one, NULL);
    assert_int_equal(several.exchanges, one.exchanges + n);
    const double crossing = 0.5 * plain_exchange(m, w->stream_bytes);
    assert_true(fabs(several.seconds - one.seconds - n * crossing) <= ROUNDING * several.seconds);
}

/* Stages follow the shares. A plan for several GPUs is within every budget, has every layer on the
 * GPU of its stage, takes the predicted bytes of all parts, and is not faster than one GPU with all
 * memory. Helpers use the rest of the budgets and save time. */
static void test_stages(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 15);
    int n_helpers = 0;
    for (int round = 0; round < LARGE; round++) {
        enum { N = 3 };
        place_workload w;
        place_plan placed, one;
        place_prediction t;
        int end[N];
        uint64_t budgets[N];
        double shares[N];
        random_workload(&r, 3 + (int)(rng_u64(&r) % 20), 100, &w);
        place_machine m[PLAN_MAX_DEVICES] = {random_machine(&r)};
        m[0].shared = false;
        if (round % 2) m[0].sync = m[0].bus_gbps = 0;
        for (int d = 0; d < N; d++) {
            m[d] = m[0];
            shares[d] = 1 + (double)(rng_u64(&r) % 4);
            budgets[d] = random_budget(&r, &w, m) / 2;
        }
        if (round % 2) budgets[0] = UINT64_MAX / 2; /* room for helpers, which cost nothing */
        place_choose_stages(&w, shares, N, 0, end);
        assert_true(end[0] >= 0 && end[0] <= end[1] && end[1] < end[2]);
        assert_int_equal(end[2], w.n_layers); /* the last stage has the head */
        if (place_solve_stages(&w, m, budgets, end, N, &placed, NULL)) fail();
        place_predict(&w, m, &placed, &t, NULL);
        uint64_t sum = 0;
        for (int d = 0; d < N; d++) {
            assert_true(t.on_device[d] == 0 || t.on_device[d] + m[d].margin_bytes <= budgets[d]);
            sum += t.on_device[d];
        }
        assert_int_equal(sum, t.resident[SIDE_GPU]);
        for (int i = 0, d = 0; i < w.n_layers; i++) {
            while (i == end[d]) d++;
            bool any = placed.splits[i].primary == SIDE_GPU || placed.splits[i].hot > 0;
            assert_true(placed.splits[i].device == d || !any);
        }
        double seconds = t.seconds;
        if (count_helpers(&w, &placed, N) == 0) check_crossings(&w, m, &placed);
        if (count_helpers(&w, &placed, N) > 0) {
            seconds = without_helpers(&w, m, &placed);
            n_helpers++;
        }
        assert_true(placed.bound <= seconds * (1 + ROUNDING));
        /* a stage is solved without knowing its neighbour's last primary */
        if (placed.bound < seconds * 0.97)
            fail_msg("round %d: %.9g, bound only %.9g", round, seconds, placed.bound);
        /* One GPU with all memory needs no messages between GPUs. */
        uint64_t all = budgets[0] + budgets[1] + budgets[2];
        solve(&w, m, all, &one);
        double alone = plain_seconds(&w, m, &one);
        assert_true(alone * (1 - PROMISE) <= seconds);
        place_plan_free(&one);
        place_plan_free(&placed);
        place_workload_free(&w);
    }
    assert_true(n_helpers > 0);
}

/* Equal layers are divided by number; layers that stay on the CPU do not count. */
static void test_equal_stages(void **state) {
    (void)state;
    place_layer layers[12];
    for (int i = 0; i < 12; i++)
        layers[i] = (place_layer){.always_bytes = 100, .n = 10, .unit = 5, .unit_bytes = 50};
    const place_workload w = {.n_layers = 12, .layers = layers};
    const double shares[] = {3, 1, 2};
    int end[3];
    place_choose_stages(&w, shares, 3, 0, end);
    assert_true(end[0] == 6 && end[1] == 8 && end[2] == 12);
    place_choose_stages(&w, shares, 3, 6, end);
    assert_true(end[0] == 9 && end[1] == 10 && end[2] == 12);
    place_choose_stages(&w, shares, 3, 11, end);
    assert_true(end[0] == 11 && end[1] == 11 && end[2] == 12);
    place_choose_stages(&w, shares, 1, 0, end);
    assert_int_equal(end[0], 12);
}

/* The fastest device with enough memory, otherwise the device that reads most of the model
 * soonest. */
static void test_choose_device(void **state) {
    (void)state;
    const uint64_t gib = 1 << 30;
    const gpu_info infos[] = {
        {.memory_free = 24 * gib, .bandwidth = 360e9},
        {.memory_free = 8 * gib, .bandwidth = 1008e9},
        {.memory_free = 12 * gib, .bandwidth = 600e9},
        {.memory_free = 1 * gib},
    };
    assert_int_equal(place_choose_device(infos, 4, 0, UINT64_MAX), 1);
    assert_int_equal(place_choose_device(infos, 4, 6 * gib, UINT64_MAX), 1);
    assert_int_equal(place_choose_device(infos, 4, 11 * gib, UINT64_MAX), 2);
    assert_int_equal(place_choose_device(infos, 4, 40 * gib, UINT64_MAX), 0);
    /* with a small budget free memory makes no difference */
    assert_int_equal(place_choose_device(infos, 4, 40 * gib, 4 * gib), 1);
    assert_int_equal(place_choose_device(infos + 3, 1, 40 * gib, UINT64_MAX), 0);
}

/* A GPU that is slower than the CPU in everything, with expensive exchanges, is not used. */
static void test_useless_gpu(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 14);
    place_workload w;
    place_plan placed;
    random_workload(&r, 8, 50, &w);
    place_machine m = random_machine(&r);
    m.device[SIDE_CPU] = (place_device){.stream_gbps = 50, .gather_gbps = 50};
    m.device[SIDE_GPU] = (place_device){.stream_gbps = 5, .gather_gbps = 5, .step = 1e-6};
    m.sync = 1e-3;
    solve(&w, &m, UINT64_MAX, &placed);
    assert_true(all_at(&w, &placed, SIDE_CPU));
    place_plan_free(&placed);
    place_workload_free(&w);
}

/* Few large units. */
static void test_large_units(void **state) {
    (void)state;
    enum { UNITS = 8, LAYERS = 4 };
    static const double shares[UNITS] = {0.6, 0.4, 0.3, 0.2, 0.2, 0.1, 0.1, 0.1}; /* sum 2 */
    place_layer layers[LAYERS];
    double gather[UNITS + 1] = {0};
    const uint64_t size = 100 << 20;
    for (int i = 0; i < UNITS; i++) gather[i + 1] = gather[i] + shares[i] * (double)size;
    for (int i = 0; i < LAYERS; i++)
        layers[i] = (place_layer){
            .always_bytes = 50 << 20, .n = UNITS, .unit = 1, .unit_bytes = size, .gather = gather};
    place_workload w = {.n_layers = LAYERS, .layers = layers};
    place_machine m;
    place_plan placed;
    assert_true(place_machine_find("rtx-3060-ddr4", &m));
    uint64_t fixed = m.runtime_bytes + m.margin_bytes;
    solve(&w, &m, fixed + LAYERS * ((50ull << 20) + 2 * size), &placed);
    check_plan(&w, &m, fixed + LAYERS * ((50ull << 20) + 2 * size), &placed);
    for (int i = 0; i < LAYERS; i++) {
        assert_int_equal(placed.splits[i].primary, SIDE_GPU);
        assert_int_equal(placed.splits[i].hot, 2); /* the two most used units */
    }
    place_plan_free(&placed);
}

static void test_allocation_failures(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 15);
    place_workload w;
    random_workload(&r, 5, 6, &w);
    place_machine m = random_machine(&r);
    uint64_t budget = workload_bytes(&w) / 2 + m.runtime_bytes + m.margin_bytes;
    int64_t before = mem_count();
    place_plan placed;
    solve(&w, &m, budget, &placed);
    place_plan_free(&placed);
    int64_t n = mem_count() - before;
    assert_true(n > 0);
    for (int64_t at = 1; at <= n; at++) {
        pi_error err = {.status = PI_OK};
        mem_fail_at(at);
        pi_status status = place_solve(&w, &m, budget, &placed, &err);
        mem_fail_at(0);
        assert_int_equal(status, PI_ERR_NOMEM);
        assert_null(placed.splits);
    }
    place_workload_free(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_useless_gpu),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_equal_stages),
        cmocka_unit_test(test_choose_device),
        cmocka_unit_test(test_large_units),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests_name("place_solve", tests, NULL, NULL);
}
