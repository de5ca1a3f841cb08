/* avx2_vnni_mat.c: products of quantized rows with one or a few vectors where AVX-VNNI is there.
 * They take and give the same as those of avx2_matvec.c; the integers in between are the same, too.
 */
#include "avx2_matvec.h"
#include "tiers.h"

#define DEFINE(type, name) ROWS_DEFINE(static, avx2_vnni, name, mv_run)
TIER_Q_TYPES(DEFINE)

#define ENTRY(type, format)                                                                        \
    k->mat[QUANT_##type].matvec = avx2_vnni_matvec_##format;                                       \
    k->mat[QUANT_##type].matvec_rows = avx2_vnni_matvec_rows_##format;

void cpu_init_avx2_vnni_mat(cpu_kernels *k) {
    TIER_Q_TYPES(ENTRY)
}
