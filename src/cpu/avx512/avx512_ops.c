/* avx512_ops.c: the template kernels between matrix products, compiled for AVX-512 (F, BW, DQ, VL).
 */
#include "tier_attn.h"
#include "tier_gemm.h"
#include "tier_ops.h"
#include "tier_select.h"

void cpu_init_avx512_ops(cpu_kernels *k) {
    k->rms_norm = tier_rms_norm;
    k->layer_norm = tier_layer_norm;
    k->rope = tier_rope;
    k->activate = tier_activate;
    k->add = tier_add;
    k->select = tier_select;
    k->keep = tier_keep;
    k->sign_dot = tier_sign_dot;
    k->gemm_tile = tier_gemm_tile;
    k->kv_store = tier_kv_store;
    k->attention = tier_attention;
}
