/* cpu_kernels.c: assembles the kernel table of a tier, and detects the tiers of this CPU.
 *
 * No state: a table depends on constants and CPUID only; any thread. The fast tiers start from
 * CPU_TIER_REFERENCE, which has their arithmetic (int8, bf16), so that a type without a fast kernel
 * gives equal results in all tiers. */
#include "cpu.h"

#include <string.h>

#include "act.h"
#include "cpu_features.h"
#include "tiers.h"

const char *cpu_tier_name(cpu_tier tier) {
    static const char *const names[CPU_TIER_COUNT] = {
        [CPU_TIER_AUTO] = "auto", [CPU_TIER_SCALAR] = "scalar", [CPU_TIER_REFERENCE] = "reference",
        [CPU_TIER_AVX2] = "avx2", [CPU_TIER_AVX512] = "avx512", [CPU_TIER_NEON] = "neon",
    };
    return (unsigned)tier < CPU_TIER_COUNT ? names[tier] : "unknown";
}

size_t cpu_act_bytes(cpu_act_kind kind, cpu_act_layout layout, int64_t n, int64_t n_cols) {
    if (layout == CPU_ACT_COLUMNS) return (size_t)n_cols * act_column_bytes(kind, n);
    size_t panels = ((size_t)n_cols + CPU_PANEL - 1) / CPU_PANEL;
    return panels * act_panel_bytes(act_form(kind, layout, n_cols), n);
}

/* Whether the tier was compiled in and this CPU has its instructions. */
static bool tier_is_there(cpu_tier tier) {
    const cpu_features *f = cpu_features_get();
    bool compiled = false;
    switch (tier) {
    case CPU_TIER_SCALAR:
    case CPU_TIER_REFERENCE:
        return true;
    case CPU_TIER_AVX2:
#if defined(CPU_HAVE_AVX2_MAT) || defined(CPU_HAVE_AVX2_OPS)
        compiled = true;
#endif
        return compiled && f->avx2 && f->fma && f->f16c && f->bmi2;
    case CPU_TIER_AVX512:
#if defined(CPU_HAVE_AVX512_MAT) || defined(CPU_HAVE_AVX512_OPS)
        compiled = true;
#endif
        return compiled && f->avx2 && f->fma && f->f16c && f->bmi2 && f->avx512 && f->avx512_vnni;
    case CPU_TIER_NEON:
#if defined(CPU_HAVE_NEON_MAT) || defined(CPU_HAVE_NEON_OPS)
        compiled = true;
#endif
        return compiled && f->neon && f->dotprod;
    default:
        return false;
    }
}

static void init_avx2(cpu_kernels *k) {
#ifdef CPU_HAVE_AVX2_MAT
    cpu_init_avx2_mat(k);
#endif
#ifdef CPU_HAVE_AVX2_VNNI_MAT
    if (cpu_features_get()->avx_vnni) cpu_init_avx2_vnni_mat(k);
#endif
#ifdef CPU_HAVE_AVX2_MAT_T
    cpu_init_avx2_mat_t(k);
#endif
#ifdef CPU_HAVE_AVX2_OPS
    cpu_init_avx2_ops(k);
#endif
#ifdef CPU_HAVE_AVX2_LOW
    cpu_init_avx2_low(k);
#endif
    (void)k;
}

static void init_avx512(cpu_kernels *k) {
    init_avx2(k);
#ifdef CPU_HAVE_AVX512_MAT
    cpu_init_avx512_mat(k);
#endif
#ifdef CPU_HAVE_AVX512_BF16_MAT
    if (cpu_features_get()->avx512_bf16) cpu_init_avx512_bf16_mat(k);
#endif
#ifdef CPU_HAVE_AVX512_AMX_MAT
    if (cpu_features_get()->amx_bf16) cpu_init_avx512_amx_mat(k);
#endif
#ifdef CPU_HAVE_AVX512_MAT_T
    cpu_init_avx512_mat_t(k);
#endif
#ifdef CPU_HAVE_AVX512_BF16_MAT_T
    if (cpu_features_get()->avx512_bf16) cpu_init_avx512_bf16_mat_t(k);
#endif
#ifdef CPU_HAVE_AVX512_AMX_MAT_T
    if (cpu_features_get()->amx_bf16) cpu_init_avx512_amx_mat_t(k);
#endif
#ifdef CPU_HAVE_AVX512_OPS
    cpu_init_avx512_ops(k);
#endif
#ifdef CPU_HAVE_AVX512_LOW
    cpu_init_avx512_low(k);
#endif
}

static void init_neon(cpu_kernels *k) {
#ifdef CPU_HAVE_NEON_MAT
    cpu_init_neon_mat(k);
#endif
#ifdef CPU_HAVE_NEON_I8MM_MAT
    if (cpu_features_get()->i8mm) cpu_init_neon_i8mm_mat(k);
#endif
#ifdef CPU_HAVE_NEON_MAT_T
    cpu_init_neon_mat_t(k);
#endif
#ifdef CPU_HAVE_NEON_OPS
    cpu_init_neon_ops(k);
#endif
#ifdef CPU_HAVE_NEON_LOW
    cpu_init_neon_low(k);
#endif
    (void)k;
}

static cpu_tier best_tier(void) {
    static const cpu_tier fastest_first[] = {CPU_TIER_AVX512, CPU_TIER_AVX2, CPU_TIER_NEON};
    for (size_t i = 0; i < sizeof fastest_first / sizeof *fastest_first; i++) {
        if (tier_is_there(fastest_first[i])) return fastest_first[i];
    }
    return CPU_TIER_REFERENCE;
}

bool cpu_kernels_get(cpu_tier tier, cpu_kernels *out) {
    if (tier == CPU_TIER_AUTO) tier = best_tier();
    if (!tier_is_there(tier)) return false;
    memset(out, 0, sizeof *out);
    cpu_init_scalar_mat(out);
    cpu_init_scalar_mat_t(out);
#ifdef CPU_HAVE_SCALAR_OPS
    cpu_init_scalar_ops(out);
#endif
    if (tier != CPU_TIER_SCALAR) cpu_init_reference_mat(out);
    if (tier == CPU_TIER_AVX2) init_avx2(out);
    if (tier == CPU_TIER_AVX512) init_avx512(out);
    if (tier == CPU_TIER_NEON) init_neon(out);
    out->tier = tier;
    out->name = cpu_tier_name(tier);
    return true;
}
