/* kernel_act.c: tests of activation quantization: the scalar tier against its definition, and all
 * tiers against the scalar tier bit for bit; also tests the read that measures bandwidth. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "act.h"
#include "kernel_case.h"
#include "kernel_tests.h"

static const float hostile[] = {0.0f,  -0.0f,    3e38f,     -3e38f, 1e-45f,   -1e-45f, 1e-39f,
                                1e20f, INFINITY, -INFINITY, NAN,    2.5e-38f, 127.5f,  -63.5f};
enum { N_HOSTILE = sizeof hostile / sizeof *hostile };

/* Makes vectors without the rest of a case. On average `evil` of 16 elements are hostile. */
static void make_vectors(kernel_case *c, int64_t n, int64_t n_cols, int evil, rng *r) {
    *c = (kernel_case){.n_cols = n_cols, .ldx = n + 5, .w = {.n_in = n}};
    size_t n_x = (size_t)(n_cols - 1) * (size_t)c->ldx + (size_t)n;
    c->x = fenced_alloc(n_x * sizeof *c->x);
    assert_non_null(c->x);
    for (size_t i = 0; i < n_x; i++) {
        bool here = (int)(rng_u64(r) >> 60) < evil;
        c->x[i] = here ? hostile[rng_u64(r) % N_HOSTILE] : rng_normal(r);
    }
}

static float x_at(const kernel_case *c, int64_t col, int64_t i) {
    return c->x[col * c->ldx + i];
}

static void check_q8_column(const kernel_case *c, const cpu_act *a, int64_t col) {
    const void *column = act_column(a, col);
    for (int64_t g = 0; g < a->n / CPU_ACT_GROUP; g++) {
        double amax = 0.0;
        int32_t sum[2] = {0, 0};
        for (int64_t i = 32 * g; i < 32 * g + 32; i++) {
            amax = fmax(amax, fabs((double)x_at(c, col, i)));
            sum[i / 16 % 2] += act_q8_q(column)[i];
        }
        float d = act_q8_d(column, a->n)[g];
        assert_true(fabs((double)d * 127.0 - amax) <= 1e-7 * amax);
        assert_memory_equal(act_q8_sum(column, a->n) + 2 * g, sum, sizeof sum);
        for (int64_t i = 32 * g; i < 32 * g + 32; i++) {
            double error = kernel_act_value(a, col, i) - (double)x_at(c, col, i);
            assert_true(fabs(error) <= (double)d * 0.50001);
        }
    }
}

void kernel_test_encode_meaning(void **state) {
    (void)state;
    cpu_kernels k;
    rng r;
    rng_seed(&r, 11);
    assert_true(cpu_kernels_get(CPU_TIER_SCALAR, &k));
    kernel_case c;
    make_vectors(&c, 288, 5, 0, &r);
    for (int64_t i = 0; i < 32; i++) c.x[64 + i] = 0.0f; /* a group of zeros */
    for (int kind = 0; kind < CPU_ACT_KIND_COUNT; kind++) {
        cpu_act a = kernel_encode(&k, &c, (cpu_act_kind)kind, CPU_ACT_COLUMNS);
        for (int64_t col = 0; col < c.n_cols; col++) {
            const bool q8 = act_form(a.kind, a.layout, a.n_cols) == CPU_ACT_Q8;
            if (q8) check_q8_column(&c, &a, col);
            for (int64_t i = 0; i < a.n && !q8; i++) {
                double x = (double)x_at(&c, col, i);
                double tolerance = kind == CPU_ACT_BF16 ? fabs(x) / 256.0 : 0.0;
                assert_true(fabs(kernel_act_value(&a, col, i) - x) <= tolerance);
            }
        }
        fenced_free(a.data);
    }
    fenced_free(c.x);
}

/* High plus low part is the split number, and the high part alone is close to it; both parts are
 * zero behind the last element and in absent vectors. */
static void check_split(const kernel_case *c, const cpu_act *panels) {
    for (int64_t col = 0; col < (c->n_cols + 15) / 16 * 16; col++) {
        const char *panel = act_panel(panels, col / CPU_PANEL);
        for (int64_t i = 0; i < (c->w.n_in + 31) / 32 * 32; i++) {
            const bool is_there = col < c->n_cols && i < c->w.n_in;
            const double x = is_there ? (double)x_at(c, col, i) : 0.0;
            const int64_t at = i / 32 * 1024 + (i % 32 / 2 * 16 + col % 16) * 2 + i % 2;
            uint16_t part[2];
            for (int k = 0; k < 2; k++) memcpy(&part[k], panel + 2 * (at + 512 * k), 2);
            const double high = (double)quant_bf16_to_f32(part[0]),
                         low = (double)quant_bf16_to_f32(part[1]);
            if (!isfinite(x)) {
                assert_true(!isfinite(low));
                continue;
            }
            if (fabs(x) > 2e38) continue; /* the high part may be infinite */
            assert_true(fabs(high - x) <= fabs(x) * 0x1p-8 + 0x1p-133);
            assert_true(fabs(high + low - x) <= fabs(x) * 0x1p-16 + 0x1p-133);
        }
    }
}

/* Checks that panels hold the values of the columns, in another order. */
static void check_panels(const cpu_act *columns, const cpu_act *panels) {
    int64_t n = columns->n;
    for (int64_t col = 0; col < (columns->n_cols + 15) / 16 * 16; col++) {
        const void *panel = act_panel(panels, col / CPU_PANEL);
        const void *column = col < columns->n_cols ? act_column(columns, col) : NULL;
        int64_t lane = col % CPU_PANEL;
        for (int64_t i = 0; i < n; i++) {
            char want[4] = {0}; /* absent vectors are zero */
            const void *got;
            size_t size = columns->kind == CPU_ACT_F32 ? 4 : columns->kind == CPU_ACT_BF16 ? 2 : 1;
            const act_q8_panel_group *g = (const act_q8_panel_group *)panel + i / CPU_ACT_GROUP;
            if (column != NULL) memcpy(want, (const char *)column + (size_t)i * size, size);
            if (columns->kind == CPU_ACT_F32)
                got = (const float *)panel + i * CPU_PANEL + lane;
            else if (columns->kind == CPU_ACT_BF16)
                got = (const uint16_t *)panel + (i / 2 * CPU_PANEL + lane) * 2 + i % 2;
            else
                got = &g->q[i % 32 / 4][lane][i % 4];
            assert_memory_equal(got, want, size);
            if (columns->kind != CPU_ACT_Q8) continue;
            float d = 0.0f;
            int32_t sum = 0;
            if (column != NULL) {
                d = act_q8_d(column, n)[i / 32];
                sum = act_q8_sum(column, n)[i / 16];
            }
            assert_memory_equal(&g->d[lane], &d, sizeof d);
            assert_int_equal(g->sum[i / 16 % 2][lane], sum);
        }
    }
}

static void compare_encoders(const kernel_tiers *tiers, const kernel_case *c, cpu_act_kind kind) {
    cpu_act want[2];
    for (int layout = 0; layout < 2; layout++)
        want[layout] = kernel_encode(&tiers->table[0], c, kind, (cpu_act_layout)layout);
    const cpu_act_kind form = act_form(kind, CPU_ACT_PANELS, c->n_cols);
    if (form == CPU_ACT_F32_SPLIT) {
        check_split(c, &want[CPU_ACT_PANELS]);
    } else {
        cpu_act columns = kernel_encode(&tiers->table[0], c, form, CPU_ACT_COLUMNS);
        check_panels(&columns, &want[CPU_ACT_PANELS]);
        fenced_free(columns.data);
    }
    for (int t = 1; t < tiers->n; t++) {
        for (int layout = 0; layout < 2; layout++) {
            cpu_act got = kernel_encode(&tiers->table[t], c, kind, (cpu_act_layout)layout);
            size_t n_bytes = cpu_act_bytes(kind, (cpu_act_layout)layout, c->w.n_in, c->n_cols);
            const uint8_t *a = want[layout].data, *b = got.data;
            for (size_t i = 0; i < n_bytes; i++) {
                if (a[i] != b[i])
                    fail_msg("%s: kind %d, layout %d, n %d, %d columns: byte %d differs",
                             tiers->table[t].name, (int)kind, layout, (int)c->w.n_in,
                             (int)c->n_cols, (int)i);
            }
            fenced_free(got.data);
        }
    }
    for (int layout = 0; layout < 2; layout++) fenced_free(want[layout].data);
}

void kernel_test_encode_tiers(void **state) {
    (void)state;
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 12);
    kernel_tiers_load(&tiers);
    for (int kind = 0; kind < CPU_ACT_KIND_COUNT; kind++) {
        int64_t step = kind == CPU_ACT_Q8 || kind == CPU_ACT_Q8_BF16 ? CPU_ACT_GROUP : 1;
        for (int64_t n = step; n <= 70 * step; n += step == 1 || n < 300 ? step : 11 * step) {
            for (int evil = 0; evil <= 16; evil += 1 + 3 * evil) {
                kernel_case c;
                make_vectors(&c, n, 1 + (int64_t)(rng_u64(&r) % 40), evil, &r);
                compare_encoders(&tiers, &c, (cpu_act_kind)kind);
                fenced_free(c.x);
            }
        }
    }
}

/* Encoding a range of vectors writes only these vectors. */
void kernel_test_encode_ranges(void **state) {
    (void)state;
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 13);
    kernel_tiers_load(&tiers);
    kernel_case c;
    make_vectors(&c, 96, 37, 0, &r);
    for (int t = 0; t < tiers.n; t++) {
        const cpu_kernels *k = &tiers.table[t];
        for (int kind = 0; kind < CPU_ACT_KIND_COUNT; kind++) {
            for (int layout = 0; layout < 2; layout++) {
                cpu_act whole = kernel_encode(k, &c, (cpu_act_kind)kind, (cpu_act_layout)layout);
                size_t n_bytes = cpu_act_bytes(whole.kind, whole.layout, whole.n, whole.n_cols);
                cpu_act parts = whole;
                parts.data = kernel_aligned(n_bytes);
                memset(parts.data, 0x5a, n_bytes);
                k->act_encode(c.x, c.ldx, 16, 32, &parts);
                for (size_t i = 0; i < n_bytes / 37; i++) /* inside vector 0 or panel 0 */
                    assert_int_equal(((uint8_t *)parts.data)[i], 0x5a);
                assert_int_equal(((uint8_t *)parts.data)[n_bytes - 1], 0x5a);
                k->act_encode(c.x, c.ldx, 32, 37, &parts);
                k->act_encode(c.x, c.ldx, 0, 16, &parts);
                assert_memory_equal(whole.data, parts.data, n_bytes);
                fenced_free(whole.data);
                fenced_free(parts.data);
            }
        }
    }
    fenced_free(c.x);
}
