/* cpu_features.h: the instruction sets that this CPU and its operating system support. */
#ifndef BASE_CPU_FEATURES_H
#define BASE_CPU_FEATURES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cpu_features {
    bool avx2, fma, f16c, bmi2, avx_vnni;
    bool avx512; /* F, BW, DQ, VL together */
    bool avx512_vnni, avx512_bf16;
    bool amx_bf16; /* with avx512_bf16; the system lets this process use tiles */
    bool neon, dotprod, i8mm;
} cpu_features;

/* Detected once (CPUID and XCR0 on x86, HWCAP on ARM); thread-safe. */
const cpu_features *cpu_features_get(void);
/* For tests: hides features that are not in `allowed` from later callers; NULL: no limit. Kernels
 * that were selected earlier stay selected. Not while other threads call cpu_features_get. */
void cpu_features_limit(const cpu_features *allowed);
/* "AMD EPYC 9B45", from CPUID or /proc/cpuinfo; never NULL. */
const char *cpu_model_name(void);

#endif
