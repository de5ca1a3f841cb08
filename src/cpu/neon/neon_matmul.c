/* neon_matmul.c: matrix products of quantized types with the dot product instructions. */
#define MM_I8MM 0
#include "neon_matmul.h"

#define MM_DEFINE(type, format)                                                                    \
    void neon_matmul_##format(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,      \
                              float *y, int64_t ldy, void *scratch) {                              \
        mm_run(&format##_format, w, row0, row1, x, y, ldy, scratch);                               \
    }
TIER_Q_TYPES(MM_DEFINE)
