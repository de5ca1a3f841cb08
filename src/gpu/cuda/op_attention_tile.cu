/* op_attention_tile.cu: prefill attention on tensor cores (Dao 2023, FlashAttention-2;
 * arXiv 2307.08691), for all types of caches.
 *
 * A thread block computes 64 queries of one KV head: token by token, the heads that share it. So
 * it reads a tile of keys and values once for 64 queries; blocks of four queries would read it 16
 * times. A warp has 16 queries (a wave of 64 lanes 32). Scores, weights and results stay in
 * registers, because the sums of one product have the fragment layout of the next product
 * (gpu_mma.h). Heads of more than 128 elements use twice as many warps: two warps have equal
 * queries, and each has half of the elements of the values.
 *
 * One buffer holds the keys of a tile, another one its values. Each is copied while the other is
 * multiplied:
 *
 *   copy V(i) | scores of K(i), softmax | copy K(i+1) | sums of V(i) | ...
 *
 * F16 caches are copied asynchronously. Other types are loaded to registers, and decoded to halves
 * behind the product, when they are stored in shared memory: there a tile has at most 32 keys.
 *
 * On sm_80, for heads of 64, 128 and 256 elements in F16, a block uses 19, 35 and 34 KiB of shared
 * memory and 168, 240 and 224 registers in each of 128, 128 and 256 threads: three, two and one
 * blocks fit a multiprocessor. Per tile of 64 keys of 128 elements it copies 32 KiB for
 * 2 * 64 * 64 * 128 products of each kind, 64 per byte; 120 per byte of a Q8_0 cache.
 *
 * Heads of more than 256 elements would need too much shared memory: there a block has 32 queries
 * and tiles of 16 keys, 41 KiB. Four warps have equal queries, and each has a quarter of the
 * elements of queries, keys and values: it sums a quarter of every score, and shared memory adds
 * the quarters.
 *
 * Compressed attention (MLA) has one KV head, whose rows are keys and values. The form is that of
 * large heads; one buffer has the tile, and the next tile is copied to the other buffer meanwhile.
 * A block first attends to the compressed keys of a session, if there are any. Lists of sparse
 * attention belong to one token: a block attends to them token by token, so it should not have more
 * than one, which 32 heads give.
 *
 * On AMD a tile has 32 keys: 10, 19 or 37 KiB of the 64 KiB of a gfx9 compute unit (49 and 55 KiB
 * with 16 keys for the largest heads and for MLA), so that registers limit the number of blocks.
 * There values are transposed when they are copied to shared memory: then fragment loads are 8 or
 * 16 bytes, as for keys, instead of one load per value.
 *
 * Queries are scaled by a power of two each and rounded to half; keys and values of other types
 * than F16 are rounded to half, the largest ones to 65504; weights (0 to 2^14) are rounded to half;
 * sums are float. A block processes its columns session by session and masks the columns of other
 * sessions.
 *
 * F32 caches of heads of up to 256 elements: every factor is the sum of two halves, and a product
 * of two factors is three products of halves (the fourth is below the rounding of floats):
 *
 *   k = khi + klo / 2^11, likewise v; hi is never subnormal: below 2^-14 it is zero
 *   q = qhi + qlo, its largest element scaled to [2^14, 2^15); likewise p, at most 2^14
 *   q k = qhi khi + qlo khi + (qhi klo) / 2^11, in two sums
 *   p v = phi vhi + plo vhi + (phi / 2^11) vlo, in one sum
 *
 * Where MFMA flushes subnormal lo, errors are at most 2^-25 of k and v, 2^-28 of the largest q and
 * p. A tile has 32 keys (AMD: 16 for heads of more than 64 elements); heads of more than 128
 * elements use the form of large heads. On sm_80 blocks for heads of 64, 128 and 256 elements use
 * 19, 35 and 42 KiB of shared memory, 182, 254 and 160 registers; on AMD 20, 38 and 49 KiB. */
#include <assert.h>

#include "gpu_attention.h"
#include "gpu_cache.h"
#include "gpu_mma.h"
#include "op_table.h"

#if GPU_MMA

enum { MMA = 16, CHUNK = 8 /* halves in 16 bytes */ };

/* Launch parameters, for caches of types K and V and heads of up to DIM elements. LATENT: MLA. */
template <class K_, class V_, int DIM_, bool LATENT = false> struct tile_block {
    typedef K_ K;
    typedef V_ V;
    static const int DIM = DIM_;
    static const bool latent = LATENT;
    static const bool slopes = !LATENT && DIM_ <= GPU_MAX_ALIBI;
    static const bool split = gpu_same<K, gpu_cache_f32>::value; /* two halves per element */
    /* a part sums only its elements' part of the scores */
    static const bool shares = DIM > (split ? 128 : 256);
    static const int rows = shares ? 32 : 64;
    /* parts of the values' elements, one wave each */
    static const int parts = shares ? 4 : DIM > 128 ? 2 : 1;
    static const int threads = rows / MMA * GPU_WARP * parts;
    /* per multiprocessor, at least; decoding takes registers */
    static const int blocks = DIM > 128                                                ? 1
                              : DIM > 64 || split || gpu_same<K, gpu_cache_any>::value ? 2
                                                                                       : 3;
};

#if GPU_MMA_HERE

/* Queries of a wave: 16 per warp, so 32 where a wave is two warps. */
enum { WAVE_ROWS = MMA * GPU_MMA_LANES / GPU_WARP, TIMES = WAVE_ROWS / MMA };

/* Sizes of a block B. Lines are padded, so that eight rows of 16 bytes are in different banks. */
template <class B> struct tile_shape : B {
    static const bool half = gpu_same<typename B::K, gpu_cache_f16>::value;
    /* keys per tile */
    static const int keys = B::shares || (B::split && GPU_MMA_TURNS && B::DIM > 64) ? 16
                            : B::DIM > 128 || GPU_MMA_TURNS || !half                ? 32
                                                                                    : 64;
    static const int out = B::DIM / B::parts;               /* elements of a result per wave */
    static const int terms = B::shares ? out : B::DIM;      /* terms of a score per wave */
    static const int sums = B::shares ? B::rows * keys : 0; /* exchanged scores per part */
    static const int halves = B::split ? 2 : 1;             /* per element of queries and caches */
    static const int weights = B::split ? 3 : 1;            /* forms of a weight, see above */
    static const int line = B::DIM + CHUNK;
    static const int value_line = keys + CHUNK; /* transposed values: line of one element */
    static const int chunks = keys * B::DIM / CHUNK;
    static const int copies = (chunks + B::threads - 1) / B::threads; /* chunks of a thread */
    /* MLA: two tiles in turn, which are keys and values; AMD: a tile, and its transposed values */
    static const int values = GPU_MMA_TURNS ? B::DIM * value_line : B::latent ? 0 : keys * line;
    static const int tiles = (B::latent && !GPU_MMA_TURNS ? 2 : 1) * keys * line + values;
    static const int kv = halves * (B::rows * line > tiles ? B::rows * line : tiles);
};
/* Weights as fragments; of split ones hi, lo, hi / 2^11. */
template <class B> struct tile_weights {
    uint32_t f[tile_shape<B>::weights][TIMES][tile_shape<B>::keys / MMA][GPU_MMA_WORDS];
};

/* The buffer of queries is reused for keys and values. The second halves of queries, keys or values
 * follow their first halves. */
template <class B> struct tile_shared {
    typedef tile_shape<B> shape;
    alignas(16) uint16_t kv[shape::kv];
    float sums[shape::parts * shape::sums + 1];    /* [part][sum of a thread][thread of the part] */
    float scale[shape::rows];                      /* factor of a query's scores */
    float slope[shape::rows];                      /* ALiBi's, of a query's head, if any */
    int32_t first[shape::rows], last[shape::rows]; /* range of positions of a query */
};

/* Work of a block. Row r is head first_head + r % heads of column first_col + r / heads. */
struct tile_task {
    int kv_head, first_head, heads, first_col, n_cols;
};

template <int ROWS> static __device__ __forceinline__ tile_task task_of(const gpu_attention &a) {
    tile_task t;
    const int group = a.n_head / a.kv.n_head_kv, most = group < ROWS ? group : ROWS;
    const int chunks = (group + most - 1) / most, chunk = (int)blockIdx.x % chunks;
    const int per_tile = ROWS / most;
    t.kv_head = (int)blockIdx.x / chunks;
    t.first_head = t.kv_head * group + chunk * most;
    t.heads = group - chunk * most < most ? group - chunk * most : most;
    /* Later columns attend to more positions: their blocks start first. */
    t.first_col = (int)(gridDim.y - 1 - blockIdx.y) * per_tile;
    t.n_cols = a.n_cols - t.first_col < per_tile ? a.n_cols - t.first_col : per_tile;
    return t;
}

/* A thread's part of its wave's queries, 16 at a time. In a product, queries are outputs; keys, or
 * elements of values, are columns. */
template <class B> struct tile_state {
    uint32_t q[tile_shape<B>::halves][TIMES][tile_shape<B>::terms / MMA][GPU_MMA_KEPT];
    float out[TIMES][tile_shape<B>::out / MMA][GPU_MMA_SUMS];
    float m[TIMES][GPU_MMA_OUTS];
    float l[TIMES][GPU_MMA_OUTS]; /* over this thread's columns of scores only */
};

template <class B> static __device__ __forceinline__ int wave_row() {
    return (int)threadIdx.x / GPU_MMA_LANES % (B::rows / WAVE_ROWS) * WAVE_ROWS;
}
template <class B> static __device__ __forceinline__ int wave_part() {
    return (int)threadIdx.x / GPU_MMA_LANES / (B::rows / WAVE_ROWS);
}
/* The first of the terms of scores that this wave sums. */
template <class B> static __device__ __forceinline__ int wave_term() {
    return B::shares ? wave_part<B>() * tile_shape<B>::terms : 0;
}

/* Weights are e^(score - m), m this much below the largest score: up to 2^14, so that halves
 * represent weights down to 2^-28 of the largest. MFMA takes halves below 2^-14 as zero. */
#define WEIGHT_LOG 9.70406053f

/* The power of two that scales `largest` to [1, 2); 1 when there is none. */
static __device__ __forceinline__ float scale_for(float largest) {
    const uint32_t exponent = gpu_float_bits(largest) >> 23;
    if (!(largest < INFINITY) || exponent == 0 || exponent == 254) return 1.0f;
    return gpu_bits_float((254 - exponent) << 23);
}

#define SPLIT_LOW   2048.0f  /* factor of the second halves of keys and values */
#define SPLIT_QUERY 16384.0f /* factor of split queries */

/* What half precision leaves of x. */
static __device__ __forceinline__ float half_rest(float x) {
    return x - gpu_half_float(gpu_float_half(x));
}

/* MLA: multiplies a query by the Hadamard matrix of the cache, in the shared memory for scores. */
template <class B>
static __device__ __forceinline__ const float *turn_query(const gpu_attention &a, const float *q,
                                                          tile_shared<B> &shared) {
    gpu_sync();
    for (int i = (int)threadIdx.x; i < a.kv.head_dim; i += B::threads) shared.sums[i] = q[i];
    gpu_sync();
    gpu_hadamard(shared.sums, a.kv.head_dim, a.kv.k_hadamard, (int)threadIdx.x, B::threads);
    return shared.sums;
}

/* Converts queries to fragments of halves, through shared memory. A warp converts every n-th
 * row. */
template <class B>
static __device__ __forceinline__ void load_queries(const gpu_attention &a, const tile_task &t,
                                                    tile_shared<B> &shared, tile_state<B> &s) {
    typedef tile_shape<B> shape;
    const int dim = a.kv.head_dim, per_lane = B::DIM / GPU_WARP;
    const int n_warps = shape::threads / GPU_WARP;
    const bool turns = B::latent && a.kv.k_hadamard > 0; /* all warps turn each query */
    for (int r = turns ? 0 : gpu_warp(); r < shape::rows; r += turns ? 1 : n_warps) {
        const int column = r / t.heads;
        const bool there = column < t.n_cols;
        const int64_t c = t.first_col + (there ? column : 0);
        const float *q = attn_query(a, c, t.first_head + r % t.heads);
        float v[per_lane], largest = 0.0f;
        if (turns) q = turn_query<B>(a, q, shared);
        if (turns && r % n_warps != gpu_warp()) continue;
        GPU_UNROLL
        for (int i = 0; i < per_lane; i++) {
            const int d = gpu_lane() * per_lane + i;
            v[i] = there && d < dim ? q[d] : 0.0f;
            largest = fmaxf(largest, fabsf(v[i]));
        }
        const float scale = scale_for(gpu_warp_max(largest));
        uint32_t *to = (uint32_t *)(shared.kv + r * shape::line) + gpu_lane() * per_lane / 2;
        GPU_UNROLL
        for (int i = 0; i < per_lane; i += 2) {
            const float more = B::split ? SPLIT_QUERY : 1.0f;
            const float x = v[i] * scale * more, y = v[i + 1] * scale * more;
            to[i / 2] = gpu_half_pair(x, y);
            if constexpr (B::split)
                to[shape::rows * shape::line / 2 + i / 2] = gpu_half_pair(half_rest(x),
                                                                          half_rest(y));
        }
        if (gpu_lane() == 0)
            shared.scale[r] = attn_scale_at(a, a.cols[c].pos) / scale *
                              (B::split ? 1.0f / SPLIT_QUERY : 1.0f);
    }
    gpu_sync();
    GPU_UNROLL
    for (int i = 0; i < shape::halves * TIMES; i++) {
        const int half = i / TIMES, row = half * shape::rows + wave_row<B>() + MMA * (i % TIMES);
        const uint16_t *rows = shared.kv + row * shape::line + wave_term<B>();
        GPU_UNROLL
        for (int k = 0; k < shape::terms / MMA; k++)
            gpu_load_kept(s.q[half][i % TIMES][k], rows + MMA * k, shape::line);
    }
    gpu_sync();
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Where a tile is in the cache: n positions of `row` bytes each; a head's `dim` elements are
 * read. Threads beyond the last position or element read existing ones again: their scores are
 * masked, their queries or weights are zero, or their results are not stored. */
struct tile_source {
    const uint8_t *at;
    const int32_t *list; /* MLA: of rows behind `at`; NULL: contiguous rows */
    size_t row;
    uint32_t n;
    int dim;
    quant_type type;

    __device__ __forceinline__ const uint8_t *existing(uint32_t key) const {
        return at + (size_t)(list ? (uint32_t)list[key] : key) * row;
    }
    __device__ __forceinline__ const uint8_t *head(int key) const {
        return existing((uint32_t)key < n ? (uint32_t)key : n - 1);
    }
    __device__ __forceinline__ int eight(int i) const { return i < dim / CHUNK ? i : 0; }
};

/* The type of a cache. gpu_cache_any: opaque to the compiler, which else computes values from the
 * type once, and keeps them in registers in all of the loop over tiles. */
template <class C> static __device__ __forceinline__ quant_type type_of(const tile_source &from) {
    uint32_t type = from.type;
#ifdef __CUDA_ARCH__
    if constexpr (gpu_same<C, gpu_cache_any>::value) asm volatile("" : "+r"(type));
#endif
    return (quant_type)type;
}

/* Eight elements as halves, F32 as two halves each. `head` and `i` as in gpu_cache.h. */
template <class C, int HALVES>
static __device__ __forceinline__ void to_halves(quant_type type, const uint8_t *head, int i,
                                                 typename C::raw &raw, uint4 (&to)[HALVES]) {
    const float largest = 65504.0f, least = 6.103515625e-5f; /* the least normal half */
    if constexpr (gpu_same<C, gpu_cache_f16>::value) {
        to[0] = raw;
    } else {
        float v[CHUNK];
        uint32_t w[CHUNK / 2];
        C::prepare(type, i, raw);
        C::decode(type, raw, head, i, v);
        GPU_UNROLL
        for (int e = 0; e < CHUNK; e++) /* NaN stays NaN */
            v[e] = v[e] > largest ? largest : v[e] < -largest ? -largest : v[e];
        if constexpr (HALVES > 1) {
            GPU_UNROLL
            for (int e = 0; e < CHUNK; e += 2)
                w[e / 2] = gpu_half_pair(fabsf(v[e]) < least ? 0.0f : v[e],
                                         fabsf(v[e + 1]) < least ? 0.0f : v[e + 1]);
            to[0] = {w[0], w[1], w[2], w[3]};
            GPU_UNROLL
            for (int e = 0; e < CHUNK; e++)
                v[e] = (v[e] - gpu_half_float(w[e / 2] >> 16 * (e % 2) & 0xffffu)) * SPLIT_LOW;
        }
        GPU_UNROLL
        for (int e = 0; e < CHUNK; e += 2) w[e / 2] = gpu_half_pair(v[e], v[e + 1]);
        to[HALVES - 1] = {w[0], w[1], w[2], w[3]};
    }
}

/* Copies a tile to shared memory, one key per line: asynchronously for F16, else through
 * registers. */
template <class B, class C> struct tile_lines {
    typedef tile_shape<B> shape;
    typename C::raw raw[shape::copies];

    static __device__ __forceinline__ int chunk(int i) {
#if defined(GPU_HIP)
        return gpu_here((int)threadIdx.x) + i * shape::threads;
#else
        return (int)threadIdx.x + i * shape::threads;
#endif
    }
    __device__ __forceinline__ void begin(const tile_source &from, uint16_t *) {
        GPU_UNROLL
        for (int i = 0; i < shape::copies; i++) {
            const int line = chunk(i) / (B::DIM / CHUNK), at = chunk(i) % (B::DIM / CHUNK);
            C::load(type_of<C>(from), from.head(line), from.eight(at), raw[i]);
        }
    }
    __device__ __forceinline__ void end(const tile_source &from, uint16_t *to) {
        GPU_UNROLL
        for (int i = 0; i < shape::copies; i++) {
            const int line = chunk(i) / (B::DIM / CHUNK), at = chunk(i) % (B::DIM / CHUNK);
            if (line >= shape::keys) continue;
            uint4 v[shape::halves];
            to_halves<C>(type_of<C>(from), from.head(line), from.eight(at), raw[i], v);
            GPU_UNROLL
            for (int half = 0; half < shape::halves; half++) {
                const int row = half * shape::keys + line;
                *(uint4 *)__builtin_assume_aligned(to + row * shape::line + at * CHUNK,
                                                   16) = v[half];
            }
        }
    }
};
template <class B> struct tile_lines<B, gpu_cache_f16> {
    typedef tile_shape<B> shape;
    static const int per_line = B::DIM / CHUNK;
    static_assert(shape::threads % per_line != 0 || shape::chunks % shape::threads == 0, "whole");
    gpu_copy16 copy[shape::copies];

    /* Zeros follow the positions, and the elements of a head. */
    __device__ __forceinline__ void begin(const tile_source &from, uint16_t *to) {
        GPU_UNROLL
        for (int i = 0; i < shape::copies; i++) {
            const int n = (int)threadIdx.x + i * shape::threads;
            int line = n / per_line, at = n % per_line * CHUNK;
            if constexpr (shape::threads % per_line == 0) { /* one `at`: fewer registers */
                line = (int)threadIdx.x / per_line + i * (shape::threads / per_line);
                at = (int)threadIdx.x % per_line * CHUNK;
            } else if (n >= shape::chunks) { /* repeats the thread's copy */
                line = (n - shape::threads) / per_line;
                at = (n - shape::threads) % per_line * CHUNK;
            }
            const bool there = (uint32_t)line < from.n && at < from.dim;
            const uint8_t *source = from.existing(there ? (uint32_t)line : 0) +
                                    2 * (there ? at : 0);
            gpu_copy16_begin(copy[i], to + line * shape::line + at, source, there);
        }
    }
    __device__ __forceinline__ void end(const tile_source &, uint16_t *) { gpu_copy16_end(copy); }
};

#if GPU_MMA_TURNS
/* Transposes eight elements of N keys, and stores them in lines of elements. half: of each. */
template <int N, int HALVES>
static __device__ __forceinline__ void turn(const uint4 (&v)[N][HALVES], int half, uint16_t *to,
                                            int line) {
    uint32_t w[N][CHUNK / 2], turned[N / 2];
    GPU_UNROLL
    for (int i = 0; i < N; i++)
        w[i][0] = v[i][half].x, w[i][1] = v[i][half].y, w[i][2] = v[i][half].z,
        w[i][3] = v[i][half].w;
    GPU_UNROLL
    for (int e = 0; e < CHUNK; e++, to += line) {
        GPU_UNROLL
        for (int i = 0; i < N; i += 2)
            turned[i / 2] = e % 2 ? w[i][e / 2] >> 16 | (w[i + 1][e / 2] & 0xffff0000u)
                                  : (w[i][e / 2] & 0xffffu) | w[i + 1][e / 2] << 16;
        __builtin_memcpy(__builtin_assume_aligned(to, sizeof turned), turned, sizeof turned);
    }
}

/* Transposes a tile of rows in shared memory. */
template <class B>
static __device__ __forceinline__ void turn_rows(const uint16_t *rows, uint16_t *to) {
    typedef tile_shape<B> shape;
    const int at_once = 4, blocks = shape::keys / at_once; /* keys of a thread */
    for (int i = (int)threadIdx.x; i < blocks * B::DIM / CHUNK; i += shape::threads) {
        const int key = i % blocks * at_once, at = i / blocks * CHUNK;
        uint4 v[at_once][1];
        GPU_UNROLL
        for (int j = 0; j < at_once; j++)
            v[j][0] = *(const uint4 *)__builtin_assume_aligned(rows + (key + j) * shape::line + at,
                                                               16);
        turn(v, 0, to + at * shape::value_line + key, shape::value_line);
    }
}

/* Copies and transposes values: a thread has some elements of `copies` positions. */
template <class B, class C> struct tile_values {
    typedef tile_shape<B> shape;
    static const int blocks = shape::keys / shape::copies; /* blocks of `copies` keys */
    static_assert(shape::copies % 2 == 0, "keys go in pairs");
    typename C::raw raw[shape::copies];

    static __device__ __forceinline__ int key() {
        return (int)threadIdx.x % blocks * shape::copies;
    }
    static __device__ __forceinline__ int eight() { return (int)threadIdx.x / blocks; }
    __device__ __forceinline__ void begin(const tile_source &from, uint16_t *) {
        GPU_UNROLL
        for (int i = 0; i < shape::copies; i++)
            C::load(from.type, from.head(key() + i), from.eight(eight()), raw[i]);
    }
    __device__ __forceinline__ void end(const tile_source &from, uint16_t *to) {
        uint4 v[shape::copies][shape::halves];
        GPU_UNROLL
        for (int i = 0; i < shape::copies; i++)
            to_halves<C>(from.type, from.head(key() + i), from.eight(eight()), raw[i], v[i]);
        GPU_UNROLL
        for (int half = 0; half < shape::halves; half++) {
            const int row = half * B::DIM + eight() * CHUNK;
            turn(v, half, to + row * shape::value_line + key(), shape::value_line);
        }
    }
};
#else
template <class B, class C> struct tile_values : tile_lines<B, C> {};
#endif

/* ---- products -------------------------------------------------------------------------------- */

template <int N>
static __device__ __forceinline__ void cap_scores(float (&w)[N][GPU_MMA_SUMS], int o, float cap) {
    GPU_UNROLL
    for (int j = 0; j < N; j++) {
        GPU_UNROLL
        for (int c = 0; c < GPU_MMA_SUMS / GPU_MMA_OUTS; c++) {
            float &score = w[j][gpu_sum_at(o, c)];
            score = cap * tanhf(score / cap);
        }
    }
}

/* Adds the parts of the scores, in the order of the parts; all parts' waves get the sums. The
 * barriers of the loop over tiles separate it from the next call. */
template <class B, int N>
static __device__ __forceinline__ void share_scores(tile_shared<B> &shared,
                                                    float (&w)[TIMES][N][GPU_MMA_SUMS]) {
    typedef tile_shape<B> shape;
    const int n = shape::threads / shape::parts, per_thread = TIMES * N * GPU_MMA_SUMS;
    const int at = (int)threadIdx.x % n;
    static_assert(per_thread * n == shape::sums, "a float for every score");
    float *own = shared.sums + wave_part<B>() * shape::sums + at;
    GPU_UNROLL
    for (int i = 0; i < per_thread; i++)
        own[i * n] = w[i / (N * GPU_MMA_SUMS)][i / GPU_MMA_SUMS % N][i % GPU_MMA_SUMS];
    gpu_sync();
    GPU_UNROLL
    for (int i = 0; i < per_thread; i++) {
        float sum = 0.0f;
        GPU_UNROLL
        for (int part = 0; part < shape::parts; part++)
            sum += shared.sums[part * shape::sums + i * n + at];
        w[i / (N * GPU_MMA_SUMS)][i / GPU_MMA_SUMS % N][i % GPU_MMA_SUMS] = sum;
    }
}

/* Converts the scores of a tile's keys, from position `first` on, to weights: 0 for positions that
 * a row does not attend to. Rescales earlier results. */
template <class B>
static __device__ __forceinline__ void weigh_tile(const gpu_attention &a, tile_shared<B> &shared,
                                                  const uint16_t *keys, uint32_t first,
                                                  tile_state<B> &s, tile_weights<B> &p) {
    typedef tile_shape<B> shape;
    const int n_times = shape::keys / MMA, columns = GPU_MMA_SUMS / GPU_MMA_OUTS;
    float w[TIMES][shape::keys / MMA][GPU_MMA_SUMS];
    float low[TIMES][shape::keys / MMA][GPU_MMA_SUMS]; /* split: products of klo */
    GPU_UNROLL
    for (int t = 0; t < TIMES; t++) {
        GPU_UNROLL
        for (int j = 0; j < n_times; j++) {
            GPU_UNROLL
            for (int i = 0; i < GPU_MMA_SUMS; i++) w[t][j][i] = low[t][j][i] = 0.0f;
        }
    }
    GPU_UNROLL
    for (int k = 0; k < shape::terms / MMA; k++) {
        uint32_t q[shape::halves][TIMES][GPU_MMA_WORDS];
        GPU_UNROLL
        for (int i = 0; i < shape::halves * TIMES; i++)
            gpu_kept(q[i / TIMES][i % TIMES], s.q[i / TIMES][i % TIMES][k]);
        GPU_UNROLL
        for (int j = 0; j < n_times; j++) {
            const uint16_t *at = keys + j * MMA * shape::line + wave_term<B>() + MMA * k;
            uint32_t b[GPU_MMA_WORDS];
            gpu_load_fragment_b(b, at, shape::line);
            GPU_UNROLL
            for (int i = 0; i < shape::halves * TIMES; i++)
                gpu_multiply_f16(w[i % TIMES][j], q[i / TIMES][i % TIMES], b);
            if constexpr (B::split) {
                gpu_load_fragment_b(b, at + shape::keys * shape::line, shape::line);
                GPU_UNROLL
                for (int t = 0; t < TIMES; t++) gpu_multiply_f16(low[t][j], q[0][t], b);
            }
        }
    }
    GPU_UNROLL
    for (int i = 0; B::split && i < TIMES * n_times * GPU_MMA_SUMS; i++) {
        const int t = i / GPU_MMA_SUMS / n_times, j = i / GPU_MMA_SUMS % n_times;
        w[t][j][i % GPU_MMA_SUMS] += low[t][j][i % GPU_MMA_SUMS] * (1.0f / SPLIT_LOW);
    }
    if constexpr (shape::shares) share_scores<B>(shared, w);
    GPU_UNROLL
    for (int t = 0; t < TIMES; t++) {
        GPU_UNROLL
        for (int o = 0; o < GPU_MMA_OUTS; o++) {
            const int r = wave_row<B>() + MMA * t + gpu_sum_output(o);
            const float scale = shared.scale[r];
            const int32_t from = shared.first[r], to = shared.last[r];
            float top = s.m[t][o];
            GPU_UNROLL
            for (int j = 0; j < n_times; j++) {
                GPU_UNROLL
                for (int c = 0; c < columns; c++) w[t][j][gpu_sum_at(o, c)] *= scale;
            }
            if (a.softcap > 0.0f) cap_scores(w[t], o, a.softcap);
            GPU_UNROLL
            for (int j = 0; j < n_times; j++) {
                GPU_UNROLL
                for (int c = 0; c < columns; c++) {
                    const int32_t at = (int32_t)first + MMA * j + gpu_sum_column(c);
                    float &score = w[t][j][gpu_sum_at(o, c)];
                    if (B::slopes && a.slopes) score += shared.slope[r] * (float)(at - to);
                    if (at < from || at > to) score = -INFINITY;
                    top = fmaxf(top, score);
                }
            }
            top = gpu_output_max(top);
            const float base = top > -INFINITY ? top : 0.0f; /* no position so far */
            const float shrink = expf(s.m[t][o] - base);
            s.m[t][o] = top;
            s.l[t][o] *= shrink;
            GPU_UNROLL
            for (int j = 0; j < n_times; j++) {
                GPU_UNROLL
                for (int c = 0; c < columns; c++) {
                    float &score = w[t][j][gpu_sum_at(o, c)];
                    score = expf(score - (base - WEIGHT_LOG));
                    s.l[t][o] += score;
                }
            }
            GPU_UNROLL
            for (int j = 0; j < shape::out / MMA; j++) {
                GPU_UNROLL
                for (int c = 0; c < columns; c++) s.out[t][j][gpu_sum_at(o, c)] *= shrink;
            }
        }
        GPU_UNROLL
        for (int j = 0; j < n_times; j++) {
            gpu_sums_fragment(p.f[0][t][j], w[t][j]);
            if constexpr (B::split) {
                float rest[GPU_MMA_SUMS];
                GPU_UNROLL
                for (int i = 0; i < GPU_MMA_SUMS; i++) rest[i] = half_rest(w[t][j][i]);
                gpu_sums_fragment(p.f[1][t][j], rest);
                GPU_UNROLL
                for (int i = 0; i < GPU_MMA_SUMS; i++) w[t][j][i] *= 1.0f / SPLIT_LOW;
                gpu_sums_fragment(p.f[2][t][j], w[t][j]);
            }
#if defined(GPU_HIP)
            /* else clang would keep w to convert it later */
            GPU_UNROLL
            for (int i = 0; i < shape::weights; i++) gpu_hold(p.f[i][t][j]);
#endif
        }
    }
}

/* out += p times the tile's values. */
template <class B>
static __device__ __forceinline__ void sum_tile(const uint16_t *values, const tile_weights<B> &p,
                                                tile_state<B> &s) {
    typedef tile_shape<B> shape;
    const int first = wave_part<B>() * shape::out;
    GPU_UNROLL
    for (int k = 0; k < shape::keys / MMA; k++) {
        GPU_UNROLL
        for (int j = 0; j < shape::out / MMA; j++) {
            GPU_UNROLL
            for (int half = 0; half < shape::halves; half++) {
                const uint16_t *at = values + half * shape::values;
                uint32_t b[GPU_MMA_WORDS];
#if GPU_MMA_TURNS
                gpu_load_fragment_b(b, at + (first + MMA * j) * shape::value_line + MMA * k,
                                    shape::value_line);
#else
                gpu_load_fragment_tb(b, at + MMA * k * shape::line + first + MMA * j, shape::line);
#endif
                GPU_UNROLL
                for (int t = 0; t < TIMES; t++) {
                    gpu_multiply_f16(s.out[t][j], p.f[2 * half][t][k], b);
                    if constexpr (B::split)
                        if (half == 0) gpu_multiply_f16(s.out[t][j], p.f[1][t][k], b);
                }
            }
        }
    }
#if defined(GPU_HIP)
    /* else clang would load all fragments here, and multiply them behind the copy's branches */
    GPU_UNROLL
    for (int i = 0; i < TIMES * (shape::out / MMA); i++)
        gpu_hold(s.out[i / (shape::out / MMA)][i % (shape::out / MMA)]);
#endif
}

/* The n-th KV head, from position `first` on; at most `n` positions. */
template <class C>
static __device__ __forceinline__ tile_source source_of(const gpu_column &col, size_t offset,
                                                        size_t row, quant_type type, int head,
                                                        int dim) {
    const uint8_t *cache = (const uint8_t *)gpu_global(col.kv) + (size_t)col.n_ctx * offset;
    return {cache + (size_t)head * C::head_bytes(type, dim), nullptr, row, 0, dim, type};
}
static __device__ __forceinline__ tile_source tile_at(const tile_source &head, uint32_t first,
                                                      uint32_t n) {
    if (head.list) return {head.at, head.list + first, head.row, n, head.dim, head.type};
    return {head.at + (size_t)first * head.row, nullptr, head.row, n, head.dim, head.type};
}

/* MLA: positions [from, to) of the rows that are keys and values. While a tile is multiplied, the
 * next one is copied to the other buffer. On AMD, where copies go through registers, there is one
 * buffer: behind the barrier of weigh_tile only the transposed values are read. */
template <class B>
static __device__ __forceinline__ void attend_latent(const gpu_attention &a, const tile_source &k,
                                                     uint32_t from, uint32_t to,
                                                     tile_shared<B> &shared, tile_state<B> &s) {
    typedef tile_shape<B> shape;
    const int size = shape::keys * shape::line;
    tile_lines<B, typename B::K> copy;
    tile_weights<B> p;
    tile_source tile = tile_at(k, from, to - from);
    copy.begin(tile, shared.kv);
    copy.end(tile, shared.kv);
    gpu_sync();
    int turn = 0;
    for (uint32_t at = from; at < to; at += shape::keys, turn ^= 1) {
#if GPU_MMA_TURNS
        uint16_t *rows = shared.kv, *other = rows, *values = rows + size;
#else
        uint16_t *rows = shared.kv + turn * size, *other = shared.kv + (turn ^ 1) * size;
        uint16_t *values = rows;
#endif
        /* The fetch after the last tile repeats that tile, unused. */
        const uint32_t next = to - at > (uint32_t)shape::keys ? at + shape::keys : at;
        tile = tile_at(k, next, to - next);
        copy.begin(tile, other);
#if GPU_MMA_TURNS
        turn_rows<B>(rows, values);
#endif
        weigh_tile<B>(a, shared, rows, at, s, p); /* has a barrier */
        sum_tile<B>(values, p, s);
        copy.end(tile, other);
        gpu_sync();
    }
}

/* Positions [from, to) of heads. */
template <class B>
static __device__ __forceinline__ void
attend_heads(const gpu_attention &a, const tile_source &k, const tile_source &v, uint32_t from,
             uint32_t to, tile_shared<B> &shared, tile_state<B> &s) {
    typedef tile_shape<B> shape;
    uint16_t *keys = shared.kv, *values = keys + shape::halves * shape::keys * shape::line;
    tile_lines<B, typename B::K> next_keys;
    tile_values<B, typename B::V> on_way;
    tile_weights<B> p;
    tile_source tile = tile_at(k, from, to - from);
    next_keys.begin(tile, keys);
    next_keys.end(tile, keys);
    gpu_sync();
    for (uint32_t at = from; at < to; at += shape::keys) {
        const tile_source here = tile_at(v, at, to - at);
        on_way.begin(here, values);
        weigh_tile<B>(a, shared, keys, at, s, p);
        on_way.end(here, values);
        gpu_sync();
        /* The fetch after the last tile repeats that tile, unused. */
        const uint32_t next = to - at > (uint32_t)shape::keys ? at + shape::keys : at;
        tile = tile_at(k, next, to - next);
        next_keys.begin(tile, keys);
        sum_tile<B>(values, p, s);
        next_keys.end(tile, keys);
        gpu_sync();
    }
}

/* Rows [begin, end) of a cache, or entries of a list of rows. */
struct tile_rows {
    size_t offset; /* as gpu_kv_layout.k_offset */
    const int32_t *list;
    uint32_t begin, end;
};

/* The block's part of the rows. */
template <class B>
static __device__ __forceinline__ void attend(const gpu_attention &a, const tile_task &t,
                                              const gpu_column &col, const tile_rows &rows,
                                              tile_shared<B> &shared, tile_state<B> &s) {
    typedef tile_shape<B> shape;
    const uint32_t begin = rows.begin, end = rows.end;
    const uint32_t tiles = (end - begin + shape::keys - 1) / shape::keys;
    const uint32_t part = (tiles + gridDim.z - 1) / gridDim.z * shape::keys;
    const uint32_t from = begin + blockIdx.z * part;
    const uint32_t to = end - begin < (blockIdx.z + 1) * part ? end : from + part;
    if (from >= end) return;
    tile_source k = source_of<typename B::K>(col, rows.offset, a.kv.k_row, a.kv.type_k, t.kv_head,
                                             a.kv.head_dim);
    if constexpr (B::latent) {
        k.list = rows.list;
        attend_latent<B>(a, k, from, to, shared, s);
    } else {
        const tile_source v = source_of<typename B::V>(col, a.kv.v_offset, a.kv.v_row, a.kv.type_v,
                                                       t.kv_head, a.kv.v_dim);
        attend_heads<B>(a, k, v, from, to, shared, s);
    }
}

/* ---- results --------------------------------------------------------------------------------- */

template <class B>
static __device__ __forceinline__ void store(const gpu_attention &a, const tile_task &task,
                                             const tile_state<B> &s) {
    typedef tile_shape<B> shape;
    const int dim = a.kv.v_dim, first = wave_part<B>() * shape::out;
    GPU_UNROLL
    for (int t = 0; t < TIMES; t++) {
        GPU_UNROLL
        for (int o = 0; o < GPU_MMA_OUTS; o++) {
            const int r = wave_row<B>() + MMA * t + gpu_sum_output(o);
            const float l = gpu_output_sum(s.l[t][o]), m = s.m[t][o] - WEIGHT_LOG;
            if (r / task.heads >= task.n_cols) continue;
            const int64_t c = task.first_col + r / task.heads,
                          head = task.first_head + r % task.heads;
            const bool whole = a.n_splits == 1;
            const float share = whole ? attn_share(a, head, m, l) : 1.0f;
            float *to = whole ? a.out + c * a.ldo + head * dim
                              : attn_sums(a, c, head, (int)blockIdx.z);
            GPU_UNROLL
            for (int j = 0; j < shape::out / MMA; j++) {
                GPU_UNROLL
                for (int i = 0; i < GPU_MMA_SUMS / GPU_MMA_OUTS; i++) {
                    const int d = first + MMA * j + gpu_sum_column(i);
                    if (d >= dim) continue;
                    const float x = s.out[t][j][gpu_sum_at(o, i)] * share;
                    to[d] = whole ? x * attn_gate_at(a, c, head, d) : x;
                }
            }
            if (whole || first + gpu_sum_column(0) > 0) continue;
            float *state = attn_state(a, c, head, (int)blockIdx.z);
            state[0] = m;
            state[1] = l;
        }
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <class B> static __device__ __forceinline__ void run_block(const gpu_attention &a) {
    typedef tile_shared<B> shared_type;
    GPU_SHARED(shared_type, shared);
    const tile_task t = task_of<B::rows>(a);
    tile_state<B> s;
    GPU_UNROLL
    for (int n = 0; n < TIMES; n++) {
        GPU_UNROLL
        for (int o = 0; o < GPU_MMA_OUTS; o++) s.m[n][o] = -INFINITY, s.l[n][o] = 0.0f;
        GPU_UNROLL
        for (int j = 0; j < tile_shape<B>::out / MMA; j++) {
            GPU_UNROLL
            for (int i = 0; i < GPU_MMA_SUMS; i++) s.out[n][j][i] = 0.0f;
        }
    }
    load_queries<B>(a, t, shared, s);
    const gpu_column *cols = a.cols + t.first_col;
    const bool sparse = B::latent && a.sparse.size > 0; /* columns have separate lists */
    const int compressed = B::latent && a.ratio > 0;
    for (int keys = compressed; keys >= 0; keys--) {   /* the compressed keys, then the window */
        for (int c0 = 0, c1; c0 < t.n_cols; c0 = c1) { /* columns of one session */
            tile_rows rows = {keys ? a.compressed : a.kv.k_offset, nullptr,
                              attn_first_seen(a, (uint32_t)cols[c0].pos), 0};
            for (c1 = c0; c1 < t.n_cols && cols[c1].kv == cols[c0].kv && (c1 == c0 || !sparse);
                 c1++) {
                const uint32_t pos = (uint32_t)cols[c1].pos, first = attn_first_seen(a, pos);
                rows.begin = first < rows.begin ? first : rows.begin;
                rows.end = pos + 1 > rows.end ? pos + 1 : rows.end;
            }
            if (keys) rows.begin = 0, rows.end /= (uint32_t)a.ratio;
            if (sparse && keys == compressed && !attn_sees_all(a.sparse, cols[c0].pos)) {
                rows.list = attn_list_of(a.sparse, cols[c0]);
                rows.begin = 0, rows.end = (uint32_t)a.sparse.top;
            }
            for (int r = (int)threadIdx.x; r < B::rows; r += B::threads) {
                const int column = r / t.heads;
                const bool sees = column >= c0 && column < c1, all = keys || rows.list;
                const int32_t pos = sees ? cols[column].pos : -1;
                shared.first[r] = sees && !all ? (int32_t)attn_first_seen(a, (uint32_t)pos) : 0;
                shared.last[r] = !sees       ? -1
                                 : rows.list ? a.sparse.top - 1
                                 : keys      ? (pos + 1) / a.ratio - 1
                                             : pos;
                if (B::slopes && a.slopes) shared.slope[r] = a.slopes[t.first_head + r % t.heads];
            }
            attend<B>(a, t, cols[c0], rows, shared, s);
            gpu_sync();
        }
    }
    store<B>(a, t, s);
}
#endif

template <class B>
static __global__ void GPU_BOUNDS(B::threads, B::blocks) tile_kernel(gpu_attention a) {
    gpu_begin();
#if GPU_MMA_HERE /* HIP: not in families without matrix units */
    run_block<B>(a);
#endif
}

template <class B> static void launch(gpu_stream *s, const gpu_attention &a) {
    const int rows = B::rows, group = a.n_head / a.kv.n_head_kv;
    const int most = group < rows ? group : rows;
    const gpu_grid grid = {(unsigned)a.kv.n_head_kv * gpu_blocks(group, most),
                           gpu_blocks(a.n_cols, rows / most), (unsigned)a.n_splits, B::threads};
    gpu_launch<tile_kernel<B>>(s, grid, a);
}

template <class K, class V> static void launch_types(gpu_stream *s, const gpu_attention &a) {
    if (a.kv.head_dim <= 64)
        launch<tile_block<K, V, 64>>(s, a);
    else if (a.kv.head_dim <= 128)
        launch<tile_block<K, V, 128>>(s, a);
    else if (a.kv.head_dim <= 256)
        launch<tile_block<K, V, 256>>(s, a);
    else
        launch<tile_block<K, V, GPU_MAX_HEAD>>(s, a);
}

/* Larger heads would take 66 KiB of shared memory. */
static void launch_split(gpu_stream *s, const gpu_attention &a) {
    assert(a.kv.head_dim <= 256);
    if (a.kv.head_dim <= 64)
        launch<tile_block<gpu_cache_f32, gpu_cache_f32, 64>>(s, a);
    else if (a.kv.head_dim <= 128)
        launch<tile_block<gpu_cache_f32, gpu_cache_f32, 128>>(s, a);
    else
        launch<tile_block<gpu_cache_f32, gpu_cache_f32, 256>>(s, a);
}

/* Elements from head_dim on are zero in queries, and are not stored. */
static void launch_latent(gpu_stream *s, const gpu_attention &a) {
    assert(a.kv.n_head_kv == 1 && a.kv.v_dim == a.kv.head_dim && !a.gate);
    if (a.kv.type_k == QUANT_F16)
        launch<tile_block<gpu_cache_f16, gpu_cache_f16, GPU_MAX_LATENT, true>>(s, a);
    else if (a.kv.type_k == QUANT_Q8_0)
        launch<tile_block<gpu_cache_q8_0, gpu_cache_q8_0, GPU_MAX_LATENT, true>>(s, a);
    else
        launch<tile_block<gpu_cache_any, gpu_cache_any, GPU_MAX_LATENT, true>>(s, a);
}

bool gpu_attention_tiled(gpu_stream *s, const gpu_attention &a) {
    const bool latent = a.kv.v_row == 0;
    const quant_type k = a.kv.type_k, v = latent ? k : a.kv.type_v;
    if (a.precise || a.n_cols <= GPU_MAX_COLS || !gpu_stream_tensor_cores(s)) return false;
    const bool f32 = k == QUANT_F32 || v == QUANT_F32;
    if (f32 && (latent || k != v || a.kv.head_dim > 256)) return false;
    if (f32)
        launch_split(s, a);
    else if (latent)
        launch_latent(s, a);
    else if (k == v && k == QUANT_F16)
        launch_types<gpu_cache_f16, gpu_cache_f16>(s, a);
    else if (k == v && k == QUANT_Q8_0)
        launch_types<gpu_cache_q8_0, gpu_cache_q8_0>(s, a);
    else
        launch_types<gpu_cache_any, gpu_cache_any>(s, a);
    return true;
}

#else

bool gpu_attention_tiled(gpu_stream *, const gpu_attention &) {
    return false;
}

#endif
