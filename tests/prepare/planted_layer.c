/* planted_layer.c: see planted_layer.h. Inputs are normally distributed, with one constant
 * component that gives the gate its mean, unless a bias does. */
#include "planted_layer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mem.h"
#include "rng.h"

static float *floats(int64_t n) {
    float *p = mem_calloc((size_t)n, sizeof *p);
    assert_non_null(p);
    return p;
}

/* Adds rows that give variance 1 for inputs of variance 1: low-rank part and noise. Component 0
 * stays zero. */
static void make_gate(const planted_shape *s, rng *r, planted_layer *p) {
    float *basis = floats(s->rank * s->n_embd), *weight = floats(s->rank);
    for (int64_t i = 0; i < s->rank * s->n_embd; i++) basis[i] = rng_normal(r);
    for (int64_t i = 0; i < s->n_ff; i++) {
        float *row = p->gate + i * s->n_embd;
        for (int64_t k = 0; k < s->rank; k++) weight[k] = rng_normal(r);
        double square = 0, low = 0;
        for (int64_t j = 1; j < s->n_embd; j++) {
            for (int64_t k = 0; k < s->rank; k++) row[j] += weight[k] * basis[k * s->n_embd + j];
            low += (double)row[j] * (double)row[j];
        }
        float scale = (float)(sqrt(low / (double)s->n_embd) * sqrt(s->noise / (1 - s->noise)));
        for (int64_t j = 1; j < s->n_embd; j++) {
            row[j] += scale * rng_normal(r);
            square += (double)row[j] * (double)row[j];
        }
        for (int64_t j = 1; j < s->n_embd; j++) row[j] /= (float)sqrt(square);
        float mean = (float)(s->bias + s->spread * (double)rng_normal(r));
        if (s->gate_bias)
            p->bias[i] = mean;
        else
            row[0] = mean;
    }
    mem_free(basis);
    mem_free(weight);
}

/* unit: [rank][n_embd] directions of variance 1. weight: [n_ff][rank] rows of length 1. */
static void make_rectified(const planted_shape *s, rng *r, planted_layer *p, float *unit,
                           float *weight) {
    for (int64_t k = 0; k < s->rank; k++)
        for (int64_t j = 1; j < s->n_embd; j++)
            unit[k * s->n_embd + j] = rng_normal(r) / sqrtf((float)s->n_embd);
    for (int64_t i = 0; i < s->n_ff; i++)
        for (int64_t k = 0; k < s->rank; k++) {
            float w = weight[i * s->rank + k] = rng_normal(r) / sqrtf((float)s->rank);
            for (int64_t j = 0; j < s->n_embd; j++)
                p->gate[i * s->n_embd + j] += w * unit[k * s->n_embd + j];
        }
}

/* The output of the hidden layer for x: u + |u| - E|u| for every direction u; its linear part is
 * u. */
static void rectify(const planted_shape *s, const float *unit, const float *x, float *out) {
    const float mean = 0.7978846f; /* E|u| = sqrt(2 / pi) */
    for (int64_t k = 0; k < s->rank; k++) {
        float u = 0;
        for (int64_t j = 0; j < s->n_embd; j++) u += unit[k * s->n_embd + j] * x[j];
        out[k] = u + fabsf(u) - mean;
    }
}

static double dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += (double)a[j] * (double)b[j];
    return sum;
}

void planted_make(const planted_shape *s, planted_layer *p) {
    int64_t tokens = s->n_train + s->n_held;
    rng r;
    rng_seed(&r, s->seed);
    *p = (planted_layer){.x = floats(tokens * s->n_embd), .gate = floats(s->n_ff * s->n_embd)};
    if (s->gate_bias) p->bias = floats(s->n_ff);
    float *hidden = floats(s->n_ff), *norm = floats(s->n_ff), *units = floats(s->rank);
    float *unit = floats(s->rank * s->n_embd), *weight = floats(s->n_ff * s->rank);
    if (s->rectified)
        make_rectified(s, &r, p, unit, weight);
    else
        make_gate(s, &r, p);
    for (int64_t i = 0; i < s->n_ff; i++) norm[i] = (float)(0.5 + rng_uniform(&r));
    active_init(&p->active, s->n_ff);
    for (int64_t t = 0; t < tokens; t++) {
        float *x = p->x + t * s->n_embd;
        for (int64_t j = 0; j < s->n_embd; j++) x[j] = j == 0 ? 1 : rng_normal(&r);
        if (s->rectified) rectify(s, unit, x, units);
        for (int64_t i = 0; i < s->n_ff; i++) {
            double sum = p->bias ? (double)p->bias[i] : 0;
            if (s->rectified)
                sum = s->bias + dot(weight + i * s->rank, units, s->rank);
            else
                sum += dot(p->gate + i * s->n_embd, x, s->n_embd);
            hidden[i] = sum > 0 ? (float)sum * fabsf(rng_normal(&r)) : 0;
        }
        assert_int_equal(active_add(&p->active, hidden, norm, NULL), PI_OK);
    }
    mem_free(hidden);
    mem_free(norm);
    mem_free(units);
    mem_free(unit);
    mem_free(weight);
    p->data = (predictor_data){.n_embd = s->n_embd,
                               .n_ff = s->n_ff,
                               .n_train = s->n_train,
                               .n_held = s->n_held,
                               .x = p->x,
                               .gate = p->gate,
                               .gate_bias = p->bias,
                               .active = &p->active,
                               .gate_row_bytes = (size_t)s->n_embd / 32 * 34};
}

void planted_free(planted_layer *p) {
    active_free(&p->active);
    mem_free(p->x);
    mem_free(p->gate);
    mem_free(p->bias);
}

int planted_set_up(const planted_shape *shape, int n_threads, void **state) {
    planted_fixture *f = mem_calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(pool_create(n_threads, &f->pool, NULL), PI_OK);
    planted_make(shape, &f->layer);
    *state = f;
    return 0;
}

int planted_tear_down(void **state) {
    planted_fixture *f = *state;
    planted_free(&f->layer);
    pool_destroy(f->pool);
    mem_free(f);
    return 0;
}
