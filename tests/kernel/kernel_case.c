/* kernel_case.c: see kernel_case.h. */
#include "kernel_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "act.h"
#include "cpu_features.h"

static void load_variant(kernel_tiers *tiers, cpu_tier tier, const cpu_features *without,
                         const char *name) {
    cpu_kernels *k = &tiers->table[tiers->n];
    cpu_features_limit(without);
    bool there = cpu_kernels_get(tier, k);
    cpu_features_limit(NULL);
    assert_true(there);
    k->name = name;
    tiers->n++;
}

void kernel_tiers_load(kernel_tiers *tiers) {
    tiers->n = 0;
    for (int tier = CPU_TIER_SCALAR; tier < CPU_TIER_COUNT; tier++) {
        if (cpu_kernels_get((cpu_tier)tier, &tiers->table[tiers->n])) tiers->n++;
    }
    cpu_kernels k;
    cpu_features without = *cpu_features_get();
#ifndef TEST_SANITIZED /* built without AVX-VNNI (src/cpu/CMakeLists.txt) */
    if (without.avx_vnni && cpu_kernels_get(CPU_TIER_AVX2, &k)) {
        without.avx_vnni = false;
        load_variant(tiers, CPU_TIER_AVX2, &without, "avx2 without vnni");
    }
#endif
    without = *cpu_features_get();
    if (without.avx512_bf16 && cpu_kernels_get(CPU_TIER_AVX512, &k)) {
        without.avx512_bf16 = false;
        load_variant(tiers, CPU_TIER_AVX512, &without, "avx512 without bf16");
    }
    without = *cpu_features_get();
    if (without.amx_bf16 && cpu_kernels_get(CPU_TIER_AVX512, &k)) {
        without.amx_bf16 = false;
        load_variant(tiers, CPU_TIER_AVX512, &without, "avx512 without amx");
    }
    without = *cpu_features_get();
    if (without.i8mm && cpu_kernels_get(CPU_TIER_NEON, &k)) {
        without.i8mm = false;
        load_variant(tiers, CPU_TIER_NEON, &without, "neon without i8mm");
    }
}

void *kernel_aligned(size_t n_bytes) {
    assert_int_equal(n_bytes % 64, 0);
    return fenced_alloc(n_bytes);
}

/* Reads four streams, far apart, so that several hardware prefetchers work at once. Each stream
 * also prefetches lines some way ahead, across page borders, where hardware prefetchers stop. */
uint64_t kernel_stream_read(const void *p, size_t n_bytes) {
    enum { STREAMS = 4, LINE = 64, WORDS = LINE / 8, AHEAD = 4096 };
    const char *base = p;
    size_t part = n_bytes / LINE / STREAMS * LINE;
    uint64_t sum[WORDS] = {0}, total = 0;
    for (size_t i = 0; i < part; i += LINE)
        for (int s = 0; s < STREAMS; s++) {
            const uint64_t *line = (const void *)(base + (size_t)s * part + i);
            __builtin_prefetch((const char *)line + AHEAD);
            for (int w = 0; w < WORDS; w++) sum[w] += line[w];
        }
    for (size_t i = part * STREAMS; i < n_bytes; i += 8)
        total += *(const uint64_t *)(const void *)(base + i);
    for (int w = 0; w < WORDS; w++) total += sum[w];
    return total;
}

void kernel_fill_weights(const cpu_mat *w, kernel_fill fill, rng *r) {
    const quant_traits *t = quant_find((uint32_t)w->type);
    size_t n_bytes = (size_t)t->block_bytes;
    size_t n_blocks = w->row_bytes / n_bytes * (size_t)w->n_out;
    uint8_t *p = (uint8_t *)(uintptr_t)w->data;
    for (size_t b = 0; b < n_blocks; b++, p += n_bytes) {
        if (fill == KERNEL_NORMAL) {
            float x[256];
            for (int i = 0; i < t->block_elems; i++) x[i] = rng_normal(r);
            /* Formats need even addresses; blocks of odd size would not have them. */
            t->quantize(x, p, t->block_elems, NULL);
            continue;
        }
        do {
            for (size_t i = 0; i < n_bytes; i++) p[i] = (uint8_t)(rng_u64(r) >> 32);
            /* exponents within 2^-33..2^30: sums of the largest values would overflow float */
            if (w->type == QUANT_MXFP4) p[0] = (uint8_t)(95 + p[0] % 64);
        } while (quant_has_nonfinite(w->type, p, t->block_elems));
    }
}

void kernel_case_make(kernel_case *c, const kernel_shape *shape, kernel_fill fill, rng *r) {
    size_t row_bytes;
    assert_true(quant_row_bytes(shape->type, (uint64_t)shape->n_in, &row_bytes));
    *c = (kernel_case){.n_cols = shape->n_cols, .ldy = shape->ldy, .ldx = shape->n_in + 3};
    size_t w_bytes = row_bytes * (size_t)shape->n_out;
    c->w_base = fenced_alloc(w_bytes + 2);
    c->w = (cpu_mat){c->w_base + 2, row_bytes, shape->n_in, shape->n_out, shape->type};
    kernel_fill_weights(&c->w, fill, r);
    size_t n_x = (size_t)(shape->n_cols - 1) * (size_t)c->ldx + (size_t)shape->n_in;
    c->x = fenced_alloc(n_x * sizeof *c->x);
    for (size_t i = 0; i < n_x; i++) c->x[i] = rng_normal(r);
    c->n_y = (size_t)(shape->n_cols - 1) * (size_t)shape->ldy + (size_t)shape->n_out;
    c->y = fenced_alloc(c->n_y * sizeof *c->y);
    size_t scratch_bytes = CPU_SCRATCH_BYTES;
    c->scratch = kernel_aligned(scratch_bytes);
    memset(c->scratch, 0xff, scratch_bytes); /* NaN shows reads of unwritten memory */
    kernel_clear(c);
}

void kernel_case_free(kernel_case *c) {
    fenced_free(c->w_base);
    fenced_free(c->x);
    fenced_free(c->y);
    fenced_free(c->scratch);
}

void kernel_clear(kernel_case *c) {
    for (size_t i = 0; i < c->n_y; i++) c->y[i] = KERNEL_GUARD;
}

cpu_act kernel_encode(const cpu_kernels *k, const kernel_case *c, cpu_act_kind kind,
                      cpu_act_layout layout) {
    size_t n_bytes = cpu_act_bytes(kind, layout, c->w.n_in, c->n_cols);
    cpu_act a = {kind, layout, c->w.n_in, c->n_cols, kernel_aligned(n_bytes)};
    memset(a.data, 0xa5, n_bytes);
    k->act_encode(c->x, c->ldx, 0, c->n_cols, &a);
    return a;
}

double kernel_act_value(const cpu_act *a, int64_t col, int64_t i) {
    const void *column = act_column(a, col);
    switch (a->kind) {
    case CPU_ACT_F32:
    case CPU_ACT_F32_SPLIT:
        return (double)((const float *)column)[i];
    case CPU_ACT_BF16:
        return (double)quant_bf16_to_f32(((const uint16_t *)column)[i]);
    default:
        return (double)act_q8_d(column, a->n)[i / CPU_ACT_GROUP] * (double)act_q8_q(column)[i];
    }
}

void kernel_product(const cpu_kernels *k, kernel_case *c, bool matmul, int64_t row0, int64_t row1) {
    const cpu_mat_kernels *m = &k->mat[c->w.type];
    cpu_act a = kernel_encode(k, c, m->act, matmul ? CPU_ACT_PANELS : CPU_ACT_COLUMNS);
    if (matmul)
        m->matmul(&c->w, row0, row1, &a, c->y, c->ldy, c->scratch);
    else
        m->matvec(&c->w, row0, row1, &a, c->y, c->ldy);
    fenced_free(a.data);
}
