/* ptx_alu.c: operations between registers: functions and table from ptx_alu_list.h. */
#include <math.h>
#include <string.h>

#include "ptx_inside.h"

/* Lanes of registers, which may be written as one type and read as another. */
typedef uint32_t u32 __attribute__((may_alias));
typedef int32_t s32 __attribute__((may_alias));
typedef uint64_t u64 __attribute__((may_alias));
typedef int64_t s64 __attribute__((may_alias));
typedef float f32 __attribute__((may_alias));
typedef double f64 __attribute__((may_alias));

/* ---- helpers --------------------------------------------------------------------------------- */

static int64_t divide(int64_t a, int64_t b) {
    if (b == 0) return -1;
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static uint32_t reverse(uint32_t a) {
    uint32_t r = 0;
    for (int i = 0; i < 32; i++) r |= (a >> i & 1) << (31 - i);
    return r;
}

/* prmt: bytes of (b, a); the upper bit of a selector's nibble replicates the byte's sign
 * instead. */
static uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t all = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t nibble = selector >> 4 * i & 15;
        uint32_t byte = all >> 8 * (nibble & 7) & 0xff;
        if (nibble & 8) byte = byte >> 7 ? 0xff : 0;
        r |= byte << 8 * i;
    }
    return r;
}

static uint32_t dot4(uint32_t a, uint32_t b, uint32_t c) {
    for (int i = 0; i < 4; i++) c += (uint32_t)((int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i));
    return c;
}

/* lop3: each bit from a table of eight; the bit of a is the upper bit of the index. */
static uint32_t lookup(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t r = 0;
    for (int i = 0; i < 8; i++) {
        if (table >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    }
    return r;
}

/* bfi: b, with `n` bits from bit `at` on replaced by the lowest n bits of a. */
static uint64_t insert(uint64_t a, uint64_t b, uint32_t at, uint32_t n, uint32_t width) {
    at &= 0xff, n &= 0xff;
    if (at >= width || n == 0) return b;
    if (n > width - at) n = width - at;
    const uint64_t field = (n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0) << at;
    return (b & ~field) | (a << at & field);
}

static uint64_t extract(uint64_t a, uint32_t at, uint32_t n, uint32_t width) {
    at &= 0xff, n &= 0xff;
    if (at >= width || n == 0) return 0;
    return n < 64 ? a >> at & ((UINT64_C(1) << n) - 1) : a >> at;
}

/* Extended by the field's highest bit, of the bits that there are. */
static uint64_t extract_signed(uint64_t a, uint32_t at, uint32_t n, uint32_t width) {
    at &= 0xff, n &= 0xff;
    if (n == 0) return 0;
    const uint32_t last = at + n - 1 < width ? at + n - 1 : width - 1;
    const uint64_t v = extract(a, at, n, width), sign = a >> last & 1;
    const uint32_t known = at < width ? last + 1 - at : 0;
    return sign && known < 64 ? v | ~UINT64_C(0) << known : v;
}

static float flush(float v) {
    return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v;
}

/* a + b rounded toward zero: the sum in double and its rounding error (Knuth's TwoSum). */
static float add_down(float a, float b) {
    const double sum = (double)a + b, of_b = sum - a, off = (a - (sum - of_b)) + (b - of_b);
    const float near = (float)sum;
    if (!isfinite(sum)) return near;
    const double over = fabs((double)near) - fabs(sum);
    const bool beyond = over > 0 || (over == 0 && off != 0 && (off < 0) == (sum > 0));
    return beyond ? nextafterf(near, 0.0f) : near;
}

/* Rounded down. The product is exact in double; TwoSum (Knuth) gives the rounding error of the
 * sum. */
static float fma_down(float a, float b, float c) {
    const double p = (double)a * b, sum = p + c, back = sum - p;
    const double error = (p - (sum - back)) + (c - back);
    const float nearest = (float)sum;
    if (!isfinite(sum) || !isfinite(nearest)) return nearest;
    return (double)nearest - sum > error ? nextafterf(nearest, -INFINITY) : nearest;
}

/* Saturating; NaN gives 0. */
static int32_t to_int(double v) {
    if (v != v) return 0;
    if (v >= 0x1p31) return INT32_MAX;
    return v <= -0x1p31 ? INT32_MIN : (int32_t)v;
}

float ptx_half_float(uint32_t bits) {
    const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    float v;
    if (exponent == 31)
        v = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        v = (float)mantissa * 0x1p-24f;
    else
        v = ldexpf((float)(mantissa | 0x400), (int)exponent - 25);
    return bits & 0x8000 ? -v : v;
}

/* Rounds to nearest, ties to even: adding 1.5 * 2^52 units in double rounds to whole units. */
uint32_t ptx_float_half(float v) {
    const uint32_t sign = signbit(v) ? 0x8000 : 0;
    const float size = fabsf(v);
    if (v != v) return 0x7fff;
    if (size >= 65520.0f) return sign | 0x7c00;
    int exponent = -14;
    if (size >= 0x1p-14f) {
        frexpf(size, &exponent);
        exponent--;
    }
    const double units = rint(ldexp((double)size, 10 - exponent)); /* units of 2^(exponent - 10) */
    return sign | ((uint32_t)(exponent + 14) * 1024 + (uint32_t)units);
}

uint32_t ptx_float_bfloat(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (v != v) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* ---- functions ------------------------------------------------------------------------------- */

/* Registers are equal or do not overlap, so lanes are independent. */
#define LANES(body)                                                                                \
    if (mask == (uint32_t)ALL_LANES) {                                                             \
        _Pragma("GCC ivdep") for (int l = 0; l < WARP; l++) {                                      \
            body;                                                                                  \
        }                                                                                          \
    } else {                                                                                       \
        for (uint32_t m = mask; m; m &= m - 1) {                                                   \
            const int l = __builtin_ctz(m);                                                        \
            body;                                                                                  \
        }                                                                                          \
    }
#define HEAD(id)     static void run_##id(ptx_warp *w, const ptx_insn *i, uint32_t mask)
#define REG(type, k) ((type *)(void *)(w->registers + i->r[k]))

#define OP1(id, name, T, TA, value)                                                                \
    HEAD(id) {                                                                                     \
        T *d_ = REG(T, 0);                                                                         \
        const TA *a_ = REG(TA, 1);                                                                 \
        LANES(const TA a = a_[l]; d_[l] = (T)(value))                                              \
    }
#define OP2(id, name, T, TA, TB, value)                                                            \
    HEAD(id) {                                                                                     \
        T *d_ = REG(T, 0);                                                                         \
        const TA *a_ = REG(TA, 1);                                                                 \
        const TB *b_ = REG(TB, 2);                                                                 \
        LANES(const TA a = a_[l]; const TB b = b_[l]; d_[l] = (T)(value))                          \
    }
#define OP3(id, name, T, TA, TB, TC, value)                                                        \
    HEAD(id) {                                                                                     \
        T *d_ = REG(T, 0);                                                                         \
        const TA *a_ = REG(TA, 1);                                                                 \
        const TB *b_ = REG(TB, 2);                                                                 \
        const TC *c_ = REG(TC, 3);                                                                 \
        LANES(const TA a = a_[l]; const TB b = b_[l]; const TC c = c_[l]; d_[l] = (T)(value))      \
    }
#define OP4(id, name, T, TA, TB, TC, TE, value)                                                    \
    HEAD(id) {                                                                                     \
        T *d_ = REG(T, 0);                                                                         \
        const TA *a_ = REG(TA, 1);                                                                 \
        const TB *b_ = REG(TB, 2);                                                                 \
        const TC *c_ = REG(TC, 3);                                                                 \
        const TE *e_ = REG(TE, 4);                                                                 \
        LANES(const TA a = a_[l]; const TB b = b_[l]; const TC c = c_[l]; const TE e = e_[l];      \
              d_[l] = (T)(value))                                                                  \
    }
#define SELECT(id, name, T)                                                                        \
    HEAD(id) {                                                                                     \
        T *d_ = REG(T, 0);                                                                         \
        const T *a_ = REG(T, 1), *b_ = REG(T, 2);                                                  \
        const uint32_t p = *REG(u32, 3);                                                           \
        LANES(const T a = a_[l]; const T b = b_[l]; d_[l] = p >> l & 1 ? a : b)                    \
    }
#define MASK(id, name, operands, value)                                                            \
    HEAD(id) {                                                                                     \
        const uint32_t A = *REG(u32, 1), B = *REG(u32, 2);                                         \
        (void)B;                                                                                   \
        *REG(u32, 0) = (*REG(u32, 0) & ~mask) | ((value)&mask);                                    \
    }
#define TEST(id, name, T, value)                                                                   \
    HEAD(id) {                                                                                     \
        const T *a_ = REG(T, 1), *b_ = REG(T, 2);                                                  \
        uint32_t p = 0;                                                                            \
        LANES(const T a = a_[l]; const T b = b_[l]; p |= (uint32_t)(value) << l)                   \
        *REG(u32, 0) = (*REG(u32, 0) & ~mask) | p;                                                 \
    }
#define CARRY(id, name, operands, value, sets)                                                     \
    HEAD(id) {                                                                                     \
        u32 *d_ = REG(u32, 0);                                                                     \
        const u32 *a_ = REG(u32, 1), *b_ = REG(u32, 2), *c_ = REG(u32, 3);                         \
        for (uint32_t m = mask; m; m &= m - 1) {                                                   \
            const int l = __builtin_ctz(m);                                                        \
            const u32 a = a_[l], b = b_[l], c = c_[l], carry = w->carry >> l & 1;                  \
            (void)c, (void)carry;                                                                  \
            const uint64_t v = (value);                                                            \
            d_[l] = (u32)v;                                                                        \
            if (sets) w->carry = (w->carry & ~(1u << l)) | (uint32_t)(v >> 32 & 1) << l;           \
        }                                                                                          \
    }
#include "ptx_alu_list.h"

/* fma is half of all arithmetic, and is a call per lane where the compiler may not use the CPU's
 * instruction. */
static inline __attribute__((always_inline)) void fma_lanes(ptx_warp *w, const ptx_insn *i,
                                                            uint32_t mask) {
    f32 *d_ = REG(f32, 0);
    const f32 *a_ = REG(f32, 1), *b_ = REG(f32, 2), *c_ = REG(f32, 3);
    LANES(d_[l] = fmaf(a_[l], b_[l], c_[l]))
}
#if defined(__x86_64__)
__attribute__((target("fma"))) static void fma_by_cpu(ptx_warp *w, const ptx_insn *i,
                                                      uint32_t mask) {
    fma_lanes(w, i, mask);
}
HEAD(fma_rn_f32) {
    if (__builtin_cpu_supports("fma"))
        fma_by_cpu(w, i, mask);
    else
        fma_lanes(w, i, mask);
}
#else
HEAD(fma_rn_f32) {
    fma_lanes(w, i, mask);
}
#endif

/* mov of two registers to one of twice the size, and back. r: the large register, low, high. */
HEAD(pack_32) {
    u32 *d = REG(u32, 0);
    const u32 *a = REG(u32, 1), *b = REG(u32, 2);
    LANES(const u32 low = a[l]; d[l] = (low & 0xffff) | b[l] << 16)
}
HEAD(pack_64) {
    u64 *d = REG(u64, 0);
    const u32 *a = REG(u32, 1), *b = REG(u32, 2);
    LANES(d[l] = a[l] | (u64)b[l] << 32)
}
HEAD(unpack_32) {
    const u32 *d = REG(u32, 0);
    u32 *a = REG(u32, 1), *b = REG(u32, 2);
    LANES(const u32 v = d[l]; a[l] = v & 0xffff; b[l] = v >> 16)
}
HEAD(unpack_64) {
    const u64 *d = REG(u64, 0);
    u32 *a = REG(u32, 1), *b = REG(u32, 2);
    LANES(a[l] = (u32)d[l]; b[l] = (u32)(d[l] >> 32))
}

/* ---- the table ------------------------------------------------------------------------------- */

#undef OP1
#undef OP2
#undef OP3
#undef OP4
#undef SELECT
#undef MASK
#undef TEST
#undef CARRY
#undef TEST_INT
#undef TEST_FLOAT
#define CLASS_u32                       "w"
#define CLASS_s32                       "w"
#define CLASS_f32                       "w"
#define CLASS_u64                       "d"
#define CLASS_s64                       "d"
#define CLASS_f64                       "d"
#define OP1(id, name, T, TA, value)     {name, CLASS_##T CLASS_##TA, run_##id},
#define OP2(id, name, T, TA, TB, value) {name, CLASS_##T CLASS_##TA CLASS_##TB, run_##id},
#define OP3(id, name, T, TA, TB, TC, value)                                                        \
    {name, CLASS_##T CLASS_##TA CLASS_##TB CLASS_##TC, run_##id},
#define OP4(id, name, T, TA, TB, TC, TE, value)                                                    \
    {name, CLASS_##T CLASS_##TA CLASS_##TB CLASS_##TC CLASS_##TE, run_##id},
#define SELECT(id, name, T)                    {name, CLASS_##T CLASS_##T CLASS_##T "p", run_##id},
#define MASK(id, name, operands, value)        {name, operands, run_##id},
#define TEST(id, name, T, value)               {name, "p" CLASS_##T CLASS_##T, run_##id},
#define CARRY(id, name, operands, value, sets) {name, operands, run_##id},
const ptx_operation ptx_alu[] = {
#include "ptx_alu_list.h"
    {"fma.rn.f32", "wwww", run_fma_rn_f32}, {"pack.32", "www", run_pack_32},
    {"pack.64", "dww", run_pack_64},        {"unpack.32", "www", run_unpack_32},
    {"unpack.64", "dww", run_unpack_64},
};
const size_t ptx_n_alu = sizeof ptx_alu / sizeof ptx_alu[0];
