/* neon_i8mm_mat.c: matrix products of quantized types where products of 8-bit matrices are there.
 * These take and give the same as neon_matmul.c, twice as many products per instruction. */
#define MM_I8MM 1
#include "neon_matmul.h"

#define MM_DEFINE(type, format)                                                                    \
    void neon_i8mm_matmul_##format(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x, \
                                   float *y, int64_t ldy, void *scratch) {                         \
        mm_run(&format##_format, w, row0, row1, x, y, ldy, scratch);                               \
    }
TIER_Q_TYPES(MM_DEFINE)

#define ENTRY(type, format) k->mat[QUANT_##type].matmul = neon_i8mm_matmul_##format;

void cpu_init_neon_i8mm_mat(cpu_kernels *k) {
    TIER_Q_TYPES(ENTRY)
}
