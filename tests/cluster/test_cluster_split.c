/* test_cluster_split.c: layers of machines: by proportions, and by what machines measured. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "place_ranks.h"

static void test_proportions(void **state) {
    (void)state;
    int end[4];
    place_ranks_split(8, (const float[]){3, 1}, 2, end);
    assert_int_equal(end[0], 6);
    assert_int_equal(end[1], 8);
    place_ranks_split(8, (const float[]){1, 2, 5}, 3, end);
    assert_int_equal(end[0], 1);
    assert_int_equal(end[1], 3);
    assert_int_equal(end[2], 8);
    /* everybody has a layer */
    place_ranks_split(4, (const float[]){1, 0, 0, 0}, 4, end);
    for (int i = 0; i < 4; i++) assert_int_equal(end[i], i + 1);
    place_ranks_split(4, (const float[]){0, 0, 0, 1}, 4, end);
    for (int i = 0; i < 4; i++) assert_int_equal(end[i], i + 1);
}

enum { LAYERS = 20, LAYER_BYTES = 1000 };

/* A model of equal layers and nothing else. */
static void make_model(model *m, model_layer *layers) {
    memset(m, 0, sizeof *m);
    memset(layers, 0, LAYERS * sizeof *layers);
    m->hp.n_layer = LAYERS;
    m->layers = layers;
    for (int i = 0; i < LAYERS; i++) {
        layers[i].t[ROLE_FFN_UP].data = layers;
        layers[i].t[ROLE_FFN_UP].n_bytes = LAYER_BYTES;
    }
}

static void test_measured(void **state) {
    (void)state;
    static model_layer layers[LAYERS];
    model m;
    int end[3];
    make_model(&m, layers);
    /* By speed: 3 to 1. */
    place_rank two[] = {{.seconds_per_byte = 1e-6, .memory = UINT64_MAX},
                        {.seconds_per_byte = 3e-6, .memory = UINT64_MAX}};
    place_ranks_solve(&m, two, 2, end);
    assert_int_equal(end[0], 15);
    assert_int_equal(end[1], LAYERS);
    /* By memory: reading a part of the layers from the drive costs more than the slow machine. */
    two[0].memory = 5 * LAYER_BYTES;
    place_ranks_solve(&m, two, 2, end);
    assert_in_range(end[0], 5, 6);
    /* Too little memory together: both read from the drive, nobody takes everything. */
    two[1].memory = 5 * LAYER_BYTES;
    place_ranks_solve(&m, two, 2, end);
    assert_in_range(end[0], 6, LAYERS - 1);
    /* The head counts. */
    m.t[ROLE_OUTPUT].data = layers;
    m.t[ROLE_OUTPUT].n_bytes = 4 * LAYER_BYTES;
    const place_rank equal[] = {{.seconds_per_byte = 1e-6, .memory = UINT64_MAX},
                                {.seconds_per_byte = 1e-6, .memory = UINT64_MAX},
                                {.seconds_per_byte = 1e-6, .memory = UINT64_MAX}};
    place_ranks_solve(&m, equal, 3, end);
    assert_int_equal(end[0], 4);
    assert_int_equal(end[1], 12);
    assert_int_equal(end[2], LAYERS);
    /* Rank 0 measured the head: it takes as long as one layer. */
    const place_rank fast[] = {
        {.seconds_per_byte = 1e-6, .memory = UINT64_MAX, .head_seconds = LAYER_BYTES * 1e-6},
        {.seconds_per_byte = 1e-6, .memory = UINT64_MAX}};
    place_ranks_solve(&m, fast, 2, end);
    assert_in_range(end[0], 9, 10);
    assert_true(place_rank_seconds(&m, &fast[0], 0, 9) > 9.99e-3 &&
                place_rank_seconds(&m, &fast[0], 0, 9) < 10.01e-3);
}

static void assert_close(double value, double expected) {
    if (fabs(value - expected) > 1e-12) fail_msg("%g instead of %g", value, expected);
}

/* Predicted seconds of ranks with given rates: sums of parts, output head, prefill, drive, GPU. */
static void test_predictions(void **state) {
    (void)state;
    static model_layer layers[LAYERS];
    const double layer = LAYER_BYTES * 1e-6;
    model m;
    make_model(&m, layers);
    m.t[ROLE_OUTPUT].data = layers;
    m.t[ROLE_OUTPUT].n_bytes = 4 * LAYER_BYTES;
    place_rank r = {.seconds_per_byte = 1e-6, .memory = UINT64_MAX, .head_seconds = 7e-3};
    assert_close(place_rank_seconds(&m, &r, 0, 5), 5 * layer + 7e-3);
    assert_close(place_rank_seconds(&m, &r, 5, LAYERS), 15 * layer);
    for (int i = 1; i < LAYERS; i++)
        assert_close(place_rank_seconds(&m, &r, 0, i) + place_rank_seconds(&m, &r, i, LAYERS),
                     place_rank_seconds(&m, &r, 0, LAYERS));
    assert_true(place_rank_prefill(&m, &r, 0, 5) == 0); /* not measured */
    r.prefill_per_byte = 30e-6;
    assert_close(place_rank_prefill(&m, &r, 0, 5), 5 * 30 * layer + 7e-3);
    assert_close(place_rank_prefill(&m, &r, 5, 9), 4 * 30 * layer);
    /* A quarter of the bytes is read from the drive, once in prefill and once in decode. */
    r.memory = 3 * LAYER_BYTES;
    const double drive = 0.25 * (PLACE_RANKS_DRIVE - 1) * 4 * layer;
    assert_close(place_rank_seconds(&m, &r, 5, 9), 4 * layer + drive);
    assert_close(place_rank_prefill(&m, &r, 5, 9), 4 * 30 * layer + drive);
    /* Two layers fit on the GPU, which is ten times as fast; two on the CPU. */
    r.gpu_memory = 2 * LAYER_BYTES;
    r.gpu_seconds_per_byte = 1e-7;
    assert_close(place_rank_seconds(&m, &r, 5, 9), 2 * layer + 0.2 * layer);
    assert_close(place_rank_prefill(&m, &r, 5, 9), 4 * 30 * layer);
    assert_close(place_rank_seconds(&m, &r, 5, 7), 0.2 * layer);
}

static void test_bytes(void **state) {
    (void)state;
    static model_layer layers[LAYERS];
    model m;
    make_model(&m, layers);
    m.hp.n_expert = 8;
    m.hp.n_expert_used = 2;
    layers[1].t[ROLE_FFN_DOWN].data = layers;
    layers[1].t[ROLE_FFN_DOWN].n_bytes = 8 * 100;
    layers[1].t[ROLE_FFN_DOWN].expert_bytes = 100;
    assert_int_equal(place_layer_bytes(&m, 0, 2, false), 2 * LAYER_BYTES + 800);
    assert_int_equal(place_layer_bytes(&m, 0, 2, true), 2 * LAYER_BYTES + 200);
    m.t[ROLE_TOKEN_EMBD].data = m.t[ROLE_OUTPUT].data = layers; /* one matrix for both */
    m.t[ROLE_TOKEN_EMBD].n_bytes = m.t[ROLE_OUTPUT].n_bytes = 300;
    assert_int_equal(place_global_bytes(&m, false), 300);
    assert_int_equal(place_global_bytes(&m, true), 300);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proportions), cmocka_unit_test(test_measured),
        cmocka_unit_test(test_predictions), cmocka_unit_test(test_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
