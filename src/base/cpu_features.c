/* cpu_features.c: instruction sets, detected once. On x86 an instruction set counts only when the
 * operating system also saves its registers (XCR0). */
#include "cpu_features.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#include "os_cpu.h"
#include "os_thread.h"

static os_once detect_once;
static cpu_features detected, features; /* features: detected minus what a test masked */
static char model_name[128];

static bool bit(uint32_t word, int i) {
    return (word >> i) & 1u;
}

#if defined(__x86_64__) || defined(__i386__)

/* Register sets that the system saves on a context switch: bit 1 SSE, 2 AVX, 5..7 AVX-512, 17 and
 * 18 AMX. */
static uint32_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Bit numbers: Intel SDM volume 2A, CPUID. */
static void detect_features(cpu_features *f) {
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27)) return; /* OSXSAVE: XCR0 can be read */
    uint32_t xcr0 = read_xcr0();
    bool save_avx = (xcr0 & 0x6) == 0x6;
    bool save_avx512 = (xcr0 & 0xe6) == 0xe6;
    if (!save_avx || !bit(c, 28)) return;
    f->fma = bit(c, 12);
    f->f16c = bit(c, 29);

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    uint32_t max_subleaf = a;
    bool amx_bf16 = bit(d, 22) && bit(d, 24);
    f->avx2 = bit(b, 5);
    f->bmi2 = bit(b, 8);
    f->avx512 = save_avx512 && bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31);
    f->avx512_vnni = f->avx512 && bit(c, 11);
    if (max_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        f->avx_vnni = f->avx2 && bit(a, 4);
        f->avx512_bf16 = f->avx512 && bit(a, 5);
        f->amx_bf16 = f->avx512_bf16 && amx_bf16 && (xcr0 & 0x60000) == 0x60000 &&
                      os_cpu_allow_tiles();
    }
}

/* The brand string: 48 bytes in three leaves of four registers. */
static void detect_name(char *name, size_t n_name) {
    uint32_t words[12] = {0};
    uint32_t first = 0x80000002u;
    if (__get_cpuid_max(0x80000000u, NULL) >= first + 2) {
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t *w = words + (size_t)4 * i;
            __get_cpuid(first + i, w, w + 1, w + 2, w + 3);
        }
    }
    snprintf(name, n_name, "%.48s", (const char *)words);
    if (!name[strspn(name, " ")]) os_cpu_name(name, n_name);
}

#elif defined(__aarch64__)

/* Bit numbers: Documentation/arch/arm64/elf_hwcaps.rst of Linux; written out because older headers
 * lack the newer names. */
static void detect_features(cpu_features *f) {
    uint32_t words[2];
    os_cpu_features(words);
    f->neon = bit(words[0], 1);
    f->dotprod = bit(words[0], 20);
    f->i8mm = bit(words[1], 13);
}

static void detect_name(char *name, size_t n_name) {
    os_cpu_name(name, n_name);
}

#else

static void detect_features(cpu_features *f) {
    (void)f;
}

static void detect_name(char *name, size_t n_name) {
    os_cpu_name(name, n_name);
}

#endif

/* Drops control characters and repeated spaces: vendors pad the name on both sides. */
static void tidy_name(char *name) {
    char *out = name;
    for (const char *p = name; *p; p++) {
        bool space = (unsigned char)*p <= ' ' || *p == 0x7f;
        if (!space) {
            *out++ = *p;
        } else if (out > name && out[-1] != ' ') {
            *out++ = ' ';
        }
    }
    while (out > name && out[-1] == ' ') out--;
    *out = '\0';
}

static void detect(void) {
    detect_features(&detected);
    features = detected;
    detect_name(model_name, sizeof model_name);
    tidy_name(model_name);
    if (!model_name[0]) snprintf(model_name, sizeof model_name, "unknown CPU");
}

const cpu_features *cpu_features_get(void) {
    os_once_run(&detect_once, detect);
    return &features;
}

void cpu_features_limit(const cpu_features *allowed) {
    os_once_run(&detect_once, detect);
    features = detected;
    if (!allowed) return;
    features.avx2 &= allowed->avx2;
    features.fma &= allowed->fma;
    features.f16c &= allowed->f16c;
    features.bmi2 &= allowed->bmi2;
    features.avx_vnni &= allowed->avx_vnni;
    features.avx512 &= allowed->avx512;
    features.avx512_vnni &= allowed->avx512_vnni;
    features.avx512_bf16 &= allowed->avx512_bf16;
    features.amx_bf16 &= allowed->amx_bf16 && features.avx512_bf16;
    features.neon &= allowed->neon;
    features.dotprod &= allowed->dotprod;
    features.i8mm &= allowed->i8mm;
}

const char *cpu_model_name(void) {
    os_once_run(&detect_once, detect);
    return model_name;
}
