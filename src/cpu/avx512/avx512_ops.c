/* avx512_ops.c: the template kernels between matrix products, compiled for AVX-512 (F, BW, DQ, VL).
 */
#include "tier_all.h"

void cpu_init_avx512_ops(cpu_kernels *k) {
    tier_enter(k);
}
