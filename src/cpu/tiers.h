/* tiers.h: assembles a table of kernels. Private to src/cpu.
 *
 * Every tier has one function per part of the table, which overwrites the entries that the tier
 * implements; so a tier may be incomplete. cpu_kernels_get calls the functions in the order of
 * these declarations. An entry of `mat` is always set completely (act and kernels), because its
 * kernels share one form of activations; so are act and matmul_t of `mat_t`.
 *
 * A part is compiled when its folder has the file of the function's name (avx2/avx2_mat.c for
 * cpu_init_avx2_mat; see CMakeLists.txt, which defines CPU_HAVE_... and sets the instruction set
 * per folder). No code outside the folder is compiled with these instructions, so that the library
 * starts on any CPU. */
#ifndef CPU_TIERS_H
#define CPU_TIERS_H

#include "cpu.h"

void cpu_init_scalar_mat(cpu_kernels *k);    /* mat, tiled, act_encode */
void cpu_init_scalar_mat_t(cpu_kernels *k);  /* mat_t */
void cpu_init_scalar_ops(cpu_kernels *k);    /* norms, rope, activate, add, kv_store, attention */
void cpu_init_reference_mat(cpu_kernels *k); /* mat, tiled */

void cpu_init_avx2_mat(cpu_kernels *k);
void cpu_init_avx2_vnni_mat(cpu_kernels *k); /* after avx2_mat; needs AVX-VNNI */
void cpu_init_avx2_mat_t(cpu_kernels *k);
void cpu_init_avx2_ops(cpu_kernels *k);
void cpu_init_avx2_low(cpu_kernels *k); /* mat and mat_t of QUANT_LOW */

void cpu_init_avx512_mat(cpu_kernels *k);
void cpu_init_avx512_bf16_mat(cpu_kernels *k); /* after avx512_mat; needs AVX512-BF16 */
void cpu_init_avx512_amx_mat(cpu_kernels *k);  /* after avx512_bf16_mat; needs AMX-BF16 */
void cpu_init_avx512_mat_t(cpu_kernels *k);
void cpu_init_avx512_bf16_mat_t(cpu_kernels *k); /* after avx512_mat_t; needs AVX512-BF16 */
void cpu_init_avx512_amx_mat_t(cpu_kernels *k);  /* after avx512_bf16_mat_t; needs AMX-BF16 */
void cpu_init_avx512_ops(cpu_kernels *k);
void cpu_init_avx512_low(cpu_kernels *k); /* mat and mat_t of QUANT_LOW */

void cpu_init_neon_mat(cpu_kernels *k);
void cpu_init_neon_i8mm_mat(cpu_kernels *k); /* after neon_mat; needs I8MM */
void cpu_init_neon_mat_t(cpu_kernels *k);
void cpu_init_neon_ops(cpu_kernels *k);
void cpu_init_neon_low(cpu_kernels *k); /* mat and mat_t of QUANT_LOW */

#endif
