/* avx512_mat.h: what the files of this tier offer to each other. */
#ifndef CPU_AVX512_MAT_H
#define CPU_AVX512_MAT_H

#include "cpu.h"

#define AVX512_MAT_DECLARE(name)                                                                   \
    void avx512_matvec_##name(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,      \
                              float *y, int64_t ldy);                                              \
    void avx512_matmul_##name(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,      \
                              float *y, int64_t ldy, void *scratch);

AVX512_MAT_DECLARE(f32)
AVX512_MAT_DECLARE(f16)
AVX512_MAT_DECLARE(bf16_wide) /* without the bf16 unit */
AVX512_MAT_DECLARE(bf16)
AVX512_MAT_DECLARE(q4_0)
AVX512_MAT_DECLARE(q8_0)
AVX512_MAT_DECLARE(q4_K)
AVX512_MAT_DECLARE(q6_K)

void avx512_act_encode(const float *x, int64_t ldx, int64_t col0, int64_t col1, cpu_act *out);
uint64_t avx512_stream_read(const void *p, size_t n_bytes);

#endif
