/* avx2_low.c: products with the formats of three bits and less. */
#include <string.h>

#include "act.h"
#include "low_x86.h"

/* 16 elements of a row times 16 columns. */
SIMD_INLINE void low_panel_dot(const int8_t *w, const int8_t x[4][CPU_PANEL][4], const int32_t *sum,
                               __m256 out[2]) {
    (void)sum;
    for (int v = 0; v < 2; v++) {
        __m256i pairs[4];
        for (int i = 0; i < 4; i++) {
            const __m256i vx = _mm256_loadu_si256((const void *)x[i][8 * v]);
            int32_t four;
            memcpy(&four, w + 4 * i, sizeof four);
            const __m256i vw = _mm256_set1_epi32(four);
            pairs[i] = _mm256_maddubs_epi16(_mm256_abs_epi8(vw), _mm256_sign_epi8(vx, vw));
        }
        const __m256i one = _mm256_set1_epi16(1);
        const __m256i a = _mm256_madd_epi16(_mm256_add_epi16(pairs[0], pairs[1]), one);
        const __m256i b = _mm256_madd_epi16(_mm256_add_epi16(pairs[2], pairs[3]), one);
        out[v] = _mm256_cvtepi32_ps(_mm256_add_epi32(a, b));
    }
}

#include "tier_low.h"

void cpu_init_avx2_low(cpu_kernels *k) {
    low_enter(k);
}
