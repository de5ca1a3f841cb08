/* avx2_vnni_mat.c: products of quantized rows with vectors on CPUs with AVX-VNNI. They have the
 * inputs and results of avx2_matvec.c and avx2_matmul.c; integer sums are also identical. */
#include "avx2_columns.h"
#include "avx2_matvec.h"
#include "tiers.h"

#define DEFINE(type, name, ...)                                                                    \
    ROWS_DEFINE(static, avx2_vnni, name, mv_run)                                                   \
    TIER_MATMUL_DEFINE(static, avx2_vnni, name, mc_matmul)
QUANT_BLOCKS(DEFINE)

#define ENTRY(type, name, ...) TIER_MAT_ENTRY(avx2_vnni, Q8, type, name)

void cpu_init_avx2_vnni_mat(cpu_kernels *k) {
    QUANT_BLOCKS(ENTRY)
}
