/* hip_mma.h: the interface of gpu_mma.h with AMD's matrix instructions. Everything except the
 * instruction is plain C++, so that the simulator runs it for each family.
 *
 * c += a b for 16 x 16 matrices of 16-bit floats, c of floats. What lane l has:
 *
 *   GPU_AMD_MMA      of a row l % 16, of b column l % 16      of c column l % 16
 *   9   MFMA, gfx9   terms from 4 (l / 16), four              rows from 4 (l / 16), four
 *   11  WMMA, gfx11  all terms, as lane l + 16 has them      rows l / 16, l / 16 + 2, ...
 *   12  WMMA, gfx12  terms from 4 (l / 16), and 8 behind      rows from 8 (l / 16), eight
 *
 * MFMA needs waves of 64 lanes, the only size of gfx9; WMMA here uses waves of 32, for which HIP
 * compiles gfx11 and gfx12. The order of terms may be permuted when both matrices agree: on gfx12 a
 * lane loads eight contiguous terms of both. Columns of x are the rows of a, and outputs are the
 * columns of b, so that neighbouring lanes store neighbouring outputs. With this layout the sums,
 * as halves, are a fragment of outputs x columns without any exchange, except on gfx11. */
#ifndef GPU_HIP_HIP_MMA_H
#define GPU_HIP_HIP_MMA_H

#if GPU_AMD_MMA == 9
enum { GPU_MMA_LANES = 64, GPU_MMA_WORDS = 2, GPU_MMA_SUMS = 4, GPU_MMA_OUTS = 1 };
#elif GPU_AMD_MMA == 11
enum { GPU_MMA_LANES = 32, GPU_MMA_WORDS = 8, GPU_MMA_SUMS = 8, GPU_MMA_OUTS = 1 };
#else
enum { GPU_MMA_LANES = 32, GPU_MMA_WORDS = 4, GPU_MMA_SUMS = 8, GPU_MMA_OUTS = 1 };
#endif

#define GPU_MMA_TURNS 1
/* gfx94x and gfx950 multiply 32 bytes per instruction; they lack the one for 16. */
#if defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__)
#define HIP_WIDE_S8 1
#else
#define HIP_WIDE_S8 0
#endif
/* On gfx11 lanes 16 apart hold equal fragments: each keeps half. */
enum { GPU_MMA_KEPT = GPU_AMD_MMA == 11 ? GPU_MMA_WORDS / 2 : GPU_MMA_WORDS };

/* ---- layout of fragments -------------------------------------------------------------------- */

static __device__ __forceinline__ int hip_lane() {
    return static_cast<int>(threadIdx.x) % GPU_MMA_LANES;
}
static __device__ __forceinline__ int hip_first_term() {
    return GPU_AMD_MMA == 11 ? 0 : hip_lane() / 16 * 2 * GPU_MMA_WORDS;
}

static __device__ __forceinline__ void gpu_load_fragment(uint32_t (&f)[GPU_MMA_WORDS],
                                                         const uint16_t *tile, int stride) {
    const uint16_t *from = tile + hip_lane() % 16 * stride + hip_first_term();
    __builtin_memcpy(f, __builtin_assume_aligned(from, GPU_MMA_WORDS < 4 ? 8 : 16), sizeof f);
}
static __device__ __forceinline__ void gpu_load_fragment_b(uint32_t (&f)[GPU_MMA_WORDS],
                                                           const uint16_t *tile, int stride) {
    gpu_load_fragment(f, tile, stride);
}
static __device__ __forceinline__ void gpu_load_fragment_t(uint32_t (&f)[GPU_MMA_WORDS],
                                                           const uint16_t *tile, int stride) {
    const uint16_t *from = tile + hip_first_term() * stride + hip_lane() % 16;
    GPU_UNROLL
    for (int i = 0; i < GPU_MMA_WORDS; i++, from += 2 * stride)
        f[i] = from[0] | static_cast<uint32_t>(from[stride]) << 16;
}

static __device__ __forceinline__ void gpu_sync_wave() {
#if defined(GPU_SIM) && GPU_AMD_MMA == 9
    sim_sync_wave();
#else
    gpu_sync_warp(); /* on HIP: of a wave */
#endif
}
static __device__ __forceinline__ int gpu_sum_at(int, int c) {
    return c;
}
static __device__ __forceinline__ int gpu_sum_output(int) {
    return hip_lane() % 16;
}
static __device__ __forceinline__ int gpu_sum_column(int c) {
    return GPU_AMD_MMA == 11 ? 2 * c + hip_lane() / 16 : hip_lane() / 16 * GPU_MMA_SUMS + c;
}

enum { GPU_MMA_COLUMNS = GPU_MMA_SUMS / GPU_MMA_OUTS };
static __device__ __forceinline__ void gpu_load_column_values(float (&v)[GPU_MMA_COLUMNS],
                                                              const float *values) {
#if GPU_AMD_MMA == 11
    GPU_UNROLL
    for (int c = 0; c < GPU_MMA_COLUMNS; c++) v[c] = values[gpu_sum_column(c)];
#else
    __builtin_memcpy(v, __builtin_assume_aligned(values + gpu_sum_column(0), 16), sizeof v);
#endif
}

/* v of the lane 16 away; hip_swap32: of the lane 32 away, in a wave of 64. */
static __device__ __forceinline__ uint32_t hip_swap16(uint32_t v) {
#if defined(GPU_SIM)
    return sim_swap(v, 16);
#elif GPU_AMD_MMA == 9
    return static_cast<uint32_t>(__shfl_xor(static_cast<int>(v), 16, 32));
#else
    return __builtin_amdgcn_permlanex16(v, v, 0x76543210u, 0xfedcba98u, false, false);
#endif
}
#if GPU_AMD_MMA == 9
static __device__ __forceinline__ uint32_t hip_swap32(uint32_t v) {
#if defined(GPU_SIM)
    return sim_swap(v, 32);
#else
    return static_cast<uint32_t>(__shfl_xor(static_cast<int>(v), 32, 64));
#endif
}
#endif
static __device__ __forceinline__ float gpu_output_max(float v) {
    v = fmaxf(v, gpu_bits_float(hip_swap16(gpu_float_bits(v))));
#if GPU_AMD_MMA == 9
    v = fmaxf(v, gpu_bits_float(hip_swap32(gpu_float_bits(v))));
#endif
    return v;
}
static __device__ __forceinline__ float gpu_output_sum(float v) {
    v += gpu_bits_float(hip_swap16(gpu_float_bits(v)));
#if GPU_AMD_MMA == 9
    v += gpu_bits_float(hip_swap32(gpu_float_bits(v)));
#endif
    return v;
}

/* The columns of a lane's sums are its terms of the fragment, in the order in which
 * gpu_load_fragment_b has the terms of the other matrix. On gfx11 one lane has the even columns,
 * and the lane 16 away the odd ones: they exchange halves. */
static __device__ __forceinline__ void gpu_sums_fragment(uint32_t (&f)[GPU_MMA_WORDS],
                                                         const float (&s)[GPU_MMA_SUMS]) {
#if GPU_AMD_MMA == 11
    const bool odd = hip_lane() >= 16;
    GPU_UNROLL
    for (int i = 0; i < GPU_MMA_SUMS; i += 2) { /* columns 2i and 2i + 2, or 2i + 1 and 2i + 3 */
        const uint32_t own = gpu_half_pair(s[i], s[i + 1]), other = hip_swap16(own);
        const uint32_t even = odd ? other : own, odds = odd ? own : other;
        f[i] = (even & 0xffffu) | odds << 16;
        f[i + 1] = even >> 16 | (odds & 0xffff0000u);
    }
#else
    GPU_UNROLL
    for (int i = 0; i < GPU_MMA_WORDS; i++) f[i] = gpu_half_pair(s[2 * i], s[2 * i + 1]);
#endif
}
static __device__ __forceinline__ void gpu_load_kept(uint32_t (&kept)[GPU_MMA_KEPT],
                                                     const uint16_t *tile, int stride) {
    const uint16_t *from = tile + hip_lane() % 16 * stride + hip_lane() / 16 * 2 * GPU_MMA_KEPT;
    __builtin_memcpy(kept, __builtin_assume_aligned(from, GPU_MMA_KEPT < 4 ? 8 : 16), sizeof kept);
}
static __device__ __forceinline__ void gpu_kept(uint32_t (&f)[GPU_MMA_WORDS],
                                                const uint32_t (&kept)[GPU_MMA_KEPT]) {
    GPU_UNROLL
    for (int i = 0; i < GPU_MMA_KEPT; i++) {
        f[i] = kept[i];
#if GPU_AMD_MMA == 11
        const uint32_t other = hip_swap16(kept[i]);
        const bool second = hip_lane() >= 16;
        f[i] = second ? other : kept[i];
        f[GPU_MMA_KEPT + i] = second ? kept[i] : other;
#endif
    }
}

/* Lines of 32 bytes: the first half of a lane's registers has its terms of the first 16, the second
 * those of the last 16: four (MFMA), all (gfx11) or eight (gfx12). */
static __device__ __forceinline__ void gpu_load_bytes(uint32_t (&f)[GPU_MMA_WORDS],
                                                      const uint8_t *tile, int stride) {
    enum { HALF = GPU_MMA_WORDS / 2 };
    const int first = GPU_AMD_MMA == 11 ? 0 : hip_lane() / 16 * 4 * HALF;
    const uint8_t *from = tile + hip_lane() % 16 * stride + first;
    GPU_UNROLL
    for (int half = 0; half < 2; half++)
        __builtin_memcpy(f + half * HALF, __builtin_assume_aligned(from + 16 * half, 4 * HALF),
                         4 * HALF);
}
static __device__ __forceinline__ void gpu_load_bytes_b(uint32_t (&f)[GPU_MMA_WORDS],
                                                        const uint8_t *tile, int stride) {
    gpu_load_bytes(f, tile, stride);
}

/* ---- instructions --------------------------------------------------------------------------- */

#if defined(GPU_SIM)
static inline void hip_multiply_f16(float (&c)[GPU_MMA_SUMS], const uint32_t (&a)[GPU_MMA_WORDS],
                                    const uint32_t (&b)[GPU_MMA_WORDS]) {
    sim_amd_mma(GPU_AMD_MMA, c, a, b, false);
}
static inline void hip_multiply_bf16(float (&c)[GPU_MMA_SUMS], const uint32_t (&a)[GPU_MMA_WORDS],
                                     const uint32_t (&b)[GPU_MMA_WORDS]) {
    sim_amd_mma(GPU_AMD_MMA, c, a, b, true);
}
/* Adds the products of 16 terms; a and b are their registers. */
static inline void hip_add_s8(int32_t (&c)[GPU_MMA_SUMS], const uint32_t *a, const uint32_t *b) {
    sim_amd_mma_s8(GPU_AMD_MMA, c, a, b);
}
#else

typedef _Float16 hip_halves __attribute__((ext_vector_type(2 * GPU_MMA_WORDS)));
typedef short hip_bf16s __attribute__((ext_vector_type(2 * GPU_MMA_WORDS)));
typedef short hip_bf16_pair __attribute__((ext_vector_type(2)));
typedef float hip_sums __attribute__((ext_vector_type(GPU_MMA_SUMS)));

template <class V, class T> static __device__ __forceinline__ V hip_as(const T &from) {
    V v;
    static_assert(sizeof v == sizeof from, "the same registers");
    __builtin_memcpy(&v, &from, sizeof v);
    return v;
}

static __device__ __forceinline__ void hip_multiply_f16(float (&c)[GPU_MMA_SUMS],
                                                        const uint32_t (&a)[GPU_MMA_WORDS],
                                                        const uint32_t (&b)[GPU_MMA_WORDS]) {
    const hip_halves x = hip_as<hip_halves>(a), y = hip_as<hip_halves>(b);
    hip_sums s = hip_as<hip_sums>(c);
#if GPU_AMD_MMA == 9
    s = __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, s, 0, 0, 0);
#elif GPU_AMD_MMA == 11
    s = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x, y, s);
#else
    s = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(x, y, s);
#endif
    __builtin_memcpy(c, &s, sizeof c);
}

static __device__ __forceinline__ void hip_multiply_bf16(float (&c)[GPU_MMA_SUMS],
                                                         const uint32_t (&a)[GPU_MMA_WORDS],
                                                         const uint32_t (&b)[GPU_MMA_WORDS]) {
    hip_sums s = hip_as<hip_sums>(c);
#if defined(__gfx908__) /* eight terms at a time; both matrices have an equal order */
    GPU_UNROLL
    for (int i = 0; i < GPU_MMA_WORDS; i++)
        s = __builtin_amdgcn_mfma_f32_16x16x8bf16(hip_as<hip_bf16_pair>(a[i]),
                                                  hip_as<hip_bf16_pair>(b[i]), s, 0, 0, 0);
#else
    const hip_bf16s x = hip_as<hip_bf16s>(a), y = hip_as<hip_bf16s>(b);
#if GPU_AMD_MMA == 9
    s = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, s, 0, 0, 0);
#elif GPU_AMD_MMA == 11
    s = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(x, y, s);
#else
    s = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(x, y, s);
#endif
#endif
    __builtin_memcpy(c, &s, sizeof c);
}

typedef int hip_products __attribute__((ext_vector_type(GPU_MMA_SUMS)));
typedef int hip_bytes __attribute__((ext_vector_type(GPU_MMA_WORDS / 2)));
static __device__ __forceinline__ void hip_add_s8(int32_t (&c)[GPU_MMA_SUMS], const uint32_t *a,
                                                  const uint32_t *b) {
    hip_products s = hip_as<hip_products>(c);
#if GPU_AMD_MMA == 9 && HIP_WIDE_S8 /* the other 16 of the instruction's 32 terms are zero */
    s = __builtin_amdgcn_mfma_i32_16x16x32_i8((long)*a, (long)*b, s, 0, 0, 0);
#elif GPU_AMD_MMA == 9
    s = __builtin_amdgcn_mfma_i32_16x16x16i8((int)*a, (int)*b, s, 0, 0, 0);
#else
    hip_bytes x, y;
    __builtin_memcpy(&x, a, sizeof x);
    __builtin_memcpy(&y, b, sizeof y);
#if GPU_AMD_MMA == 11
    s = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, x, true, y, s, false);
#else
    s = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, x, true, y, s, false);
#endif
#endif
    __builtin_memcpy(c, &s, sizeof c);
}
#endif

static __device__ __forceinline__ void gpu_multiply_s8_half(int32_t (&s)[GPU_MMA_SUMS],
                                                            const uint32_t (&w)[GPU_MMA_WORDS],
                                                            const uint32_t (&x)[GPU_MMA_WORDS],
                                                            int half, int32_t start) {
    GPU_UNROLL
    for (int i = 0; i < GPU_MMA_SUMS; i++) s[i] = start;
    hip_add_s8(s, x + half * GPU_MMA_WORDS / 2, w + half * GPU_MMA_WORDS / 2);
}
static __device__ __forceinline__ void gpu_multiply_s8(int32_t (&s)[GPU_MMA_SUMS],
                                                       const uint32_t (&w)[GPU_MMA_WORDS],
                                                       const uint32_t (&x)[GPU_MMA_WORDS],
                                                       int32_t start) {
#if HIP_WIDE_S8
    hip_products c = hip_products(start);
    c = __builtin_amdgcn_mfma_i32_16x16x32_i8(hip_as<long>(x), hip_as<long>(w), c, 0, 0, 0);
    __builtin_memcpy(s, &c, sizeof s);
#else
    gpu_multiply_s8_half(s, w, x, 0, start);
    hip_add_s8(s, x + GPU_MMA_WORDS / 2, w + GPU_MMA_WORDS / 2);
#endif
}

static __device__ __forceinline__ void gpu_multiply_f16(float (&s)[GPU_MMA_SUMS],
                                                        const uint32_t (&w)[GPU_MMA_WORDS],
                                                        const uint32_t (&x)[GPU_MMA_WORDS]) {
    hip_multiply_f16(s, x, w);
}
static __device__ __forceinline__ void gpu_multiply_bf16(float (&s)[GPU_MMA_SUMS],
                                                         const uint32_t (&w)[GPU_MMA_WORDS],
                                                         const uint32_t (&x)[GPU_MMA_WORDS]) {
    hip_multiply_bf16(s, x, w);
}

#endif
