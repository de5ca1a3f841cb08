/* ops_bench.c: compares the speed of attention with the limits of the machine. Decode: bytes of K
 * and V per second against a plain read of the same buffer in the same run, one thread, a buffer
 * far larger than the caches. Prefill: useful floating-point operations per second against
 * independent FMAs. Each figure is the best of a few short runs that alternate with the baseline,
 * because machines are shared. The benchmark never fails because of a time. */
#include "ops_bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "cpu.h"
#include "mem.h"
#include "rng.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { CONTEXT = 4096, ROUNDS = 5, PROMPT_CONTEXT = 1024, PROMPT_QUERIES = 128, MAX_QUERIES = 128 };
static const size_t cache_bytes = (size_t)256 << 20; /* K and V together; beyond any L3 here */

typedef struct bench_state {
    char *kv;
    float *q, *m, *l, *acc;
    void *scratch;
    int32_t first[MAX_QUERIES], limit[MAX_QUERIES];
} bench_state;

static void bench_reset(bench_state *b, cpu_attn *a) {
    for (int i = 0; i < a->n_q; i++) b->m[i] = -INFINITY, b->l[i] = 0;
    memset(b->acc, 0, (size_t)a->n_q * (size_t)a->head_dim * sizeof(float));
}

/* Returns the sum of the 64-bit words. */
static uint64_t plain_read(const void *p, size_t n_bytes) {
    const uint64_t *x = p;
    uint64_t sum = 0;
    for (size_t i = 0; i < n_bytes / sizeof *x; i++) sum += x[i];
    return sum;
}

/* The cache holds the keys first, then the values; `row` bytes each. */
static cpu_attn attn_of(const bench_state *b, quant_type type, size_t row, int head_dim, int n_q,
                        int n_keys) {
    return (cpu_attn){.q = b->q,
                      .n_q = n_q,
                      .head_dim = head_dim,
                      .k = b->kv,
                      .v = b->kv + (size_t)n_keys * row,
                      .k_stride = row,
                      .v_stride = row,
                      .type_k = type,
                      .type_v = type,
                      .k1 = n_keys,
                      .first = b->first,
                      .limit = b->limit,
                      .m = b->m,
                      .l = b->l,
                      .acc = b->acc,
                      .scratch = b->scratch};
}

static void bench_decode(const cpu_kernels *k, bench_state *b, quant_type type, int head_dim,
                         int n_q) {
    size_t row;
    if (!quant_row_bytes(type, (uint64_t)head_dim, &row)) return;
    size_t head = row * CONTEXT, pairs = cache_bytes / (2 * head), bytes = pairs * 2 * head;
    double best = 0, read = 0;
    uint64_t sink = 0;
    cpu_attn a = attn_of(b, type, row, head_dim, n_q, CONTEXT);
    for (int i = 0; i < n_q; i++) b->first[i] = 0, b->limit[i] = CONTEXT;
    for (int round = 0; round < ROUNDS; round++) {
        double t = clock_seconds();
        sink += plain_read(b->kv, bytes / 64 * 64);
        double gbps = (double)bytes / (clock_seconds() - t) * 1e-9;
        if (gbps > read) read = gbps;
        t = clock_seconds();
        for (size_t p = 0; p < pairs; p++) {
            bench_reset(b, &a);
            a.k = b->kv + p * 2 * head;
            a.v = b->kv + (p * 2 + 1) * head;
            k->attention(&a);
        }
        gbps = (double)bytes / (clock_seconds() - t) * 1e-9;
        if (gbps > best) best = gbps;
    }
    printf("%-8s decode %-6s head_dim %3d queries %d: %6.2f GB/s, read %6.2f GB/s, ratio %.2f, "
           "%5.1f ns per position%s\n",
           k->name, quant_find((uint32_t)type)->name, head_dim, n_q, best, read, best / read,
           2 * (double)row / best, sink == 1 ? "." : "");
}

#if defined(__GNUC__) && defined(__x86_64__)
/* Independent multiply-adds in registers: 12 chains cover latency 4 at two or three per cycle. */
enum { PEAK_CHAINS = 12, PEAK_STEPS = 1 << 20 };

__attribute__((target("avx2,fma"))) static double peak_avx2(void) {
    __m256 a[PEAK_CHAINS], sum = _mm256_setzero_ps(), x = _mm256_set1_ps(0.5f);
    for (int c = 0; c < PEAK_CHAINS; c++) a[c] = _mm256_setzero_ps();
    double t = clock_seconds();
    for (int s = 0; s < PEAK_STEPS; s++)
        for (int c = 0; c < PEAK_CHAINS; c++) a[c] = _mm256_fmadd_ps(a[c], x, x);
    for (int c = 0; c < PEAK_CHAINS; c++) sum = _mm256_add_ps(sum, a[c]);
    float first = _mm256_cvtss_f32(sum);
    t = clock_seconds() - t;
    return first > 0 ? 2.0 * PEAK_CHAINS * PEAK_STEPS * 8 / t * 1e-9 : 0;
}

__attribute__((target("avx512f"))) static double peak_avx512(void) {
    __m512 a[PEAK_CHAINS], sum = _mm512_setzero_ps(), x = _mm512_set1_ps(0.5f);
    for (int c = 0; c < PEAK_CHAINS; c++) a[c] = _mm512_setzero_ps();
    double t = clock_seconds();
    for (int s = 0; s < PEAK_STEPS; s++)
        for (int c = 0; c < PEAK_CHAINS; c++) a[c] = _mm512_fmadd_ps(a[c], x, x);
    for (int c = 0; c < PEAK_CHAINS; c++) sum = _mm512_add_ps(sum, a[c]);
    float first = _mm512_cvtss_f32(sum);
    t = clock_seconds() - t;
    return first > 0 ? 2.0 * PEAK_CHAINS * PEAK_STEPS * 16 / t * 1e-9 : 0;
}

static double bench_peak(cpu_tier tier) {
    return tier == CPU_TIER_AVX512 ? peak_avx512() : tier == CPU_TIER_AVX2 ? peak_avx2() : 0;
}
#else
static double bench_peak(cpu_tier tier) {
    (void)tier;
    return 0;
}
#endif

static void bench_prompt(const cpu_kernels *k, bench_state *b, int head_dim) {
    size_t row = (size_t)head_dim * sizeof(uint16_t);
    cpu_attn a = attn_of(b, QUANT_F16, row, head_dim, PROMPT_QUERIES, PROMPT_CONTEXT);
    double flops = 0, best = 0, peak = 0;
    for (int i = 0; i < PROMPT_QUERIES; i++) { /* causal, the last queries of the context */
        b->first[i] = 0;
        b->limit[i] = PROMPT_CONTEXT - PROMPT_QUERIES + i + 1;
        flops += 4.0 * head_dim * b->limit[i];
    }
    for (int round = 0; round < 4 * ROUNDS; round++) {
        double rate = bench_peak(k->tier);
        if (rate > peak) peak = rate;
        bench_reset(b, &a);
        double t = clock_seconds();
        k->attention(&a);
        rate = flops / (clock_seconds() - t) * 1e-9;
        if (rate > best) best = rate;
    }
    printf("%-8s prompt f16   head_dim %3d queries %d: %6.1f GFLOP/s, FMA peak %6.1f, ratio %.2f\n",
           k->name, head_dim, PROMPT_QUERIES, best, peak, peak > 0 ? best / peak : 0);
}

int ops_bench_run(void) {
    static const int shapes[][2] = {{128, 1}, {128, 4}, {128, 8}, {64, 1}, {64, 8}, {256, 1}};
    static const quant_type types[] = {QUANT_F16,  QUANT_Q8_0, QUANT_F32,  QUANT_BF16,  QUANT_Q4_0,
                                       QUANT_Q4_1, QUANT_Q5_0, QUANT_Q5_1, QUANT_IQ4_NL};
    bench_state b;
    size_t states = MAX_QUERIES * 256 * sizeof(float);
    b.kv = mem_map(cache_bytes);
    b.q = mem_map(states);
    b.acc = mem_map(states);
    b.m = mem_map(states);
    b.l = mem_map(states);
    b.scratch = mem_map(cpu_attn_scratch_bytes(MAX_QUERIES, 256));
    if (!b.kv || !b.q || !b.acc || !b.m || !b.l || !b.scratch) return 1;
    rng r;
    rng_seed(&r, 1);
    for (int i = 0; i < MAX_QUERIES * 256; i++) b.q[i] = rng_normal(&r) * 0.05f;
    memset(b.kv, 0x2c, cache_bytes); /* small positive numbers in every type */
    for (int tier = CPU_TIER_AVX2; tier < CPU_TIER_COUNT; tier++) {
        cpu_kernels k;
        if (!cpu_kernels_get((cpu_tier)tier, &k)) continue;
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                if (types[t] != QUANT_F32 || shapes[s][0] == 128)
                    bench_decode(&k, &b, types[t], shapes[s][0], shapes[s][1]);
        bench_prompt(&k, &b, 64);
        bench_prompt(&k, &b, 128);
    }
    mem_unmap(b.kv, cache_bytes);
    mem_unmap(b.q, states);
    mem_unmap(b.acc, states);
    mem_unmap(b.m, states);
    mem_unmap(b.l, states);
    mem_unmap(b.scratch, cpu_attn_scratch_bytes(MAX_QUERIES, 256));
    return 0;
}
