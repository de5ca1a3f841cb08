/* avx512_low.c: products with the formats of three bits and less. */
#include <string.h>

#include "act.h"
#include "low_x86.h"

/* 16 elements of a row times 16 columns. The unit needs unsigned weights: they are raised by 128,
 * and the initial sums compensate this. */
SIMD_INLINE void low_panel_dot(const int8_t *w, const int8_t x[4][CPU_PANEL][4], const int32_t *sum,
                               __m512 out[1]) {
    __m512i dot = _mm512_sub_epi32(_mm512_setzero_si512(),
                                   _mm512_slli_epi32(_mm512_loadu_si512(sum), 7));
    for (int i = 0; i < 4; i++) {
        uint32_t four;
        memcpy(&four, w + 4 * i, sizeof four);
        dot = _mm512_dpbusd_epi32(dot, _mm512_set1_epi32((int32_t)(four ^ 0x80808080u)),
                                  _mm512_loadu_si512(x[i]));
    }
    out[0] = _mm512_cvtepi32_ps(dot);
}

#include "tier_low.h"

void cpu_init_avx512_low(cpu_kernels *k) {
    low_enter(k);
}
