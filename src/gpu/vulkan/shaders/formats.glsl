// formats.glsl: readers of packed rows (gpu_mat), one include per type. TYPE selects one; the
// others vanish when a pipeline is created.
//
// Quantized types are read in units of 32 values: two groups of 16, the first at element
// unit_first(i) of the row, the second unit_distance() elements behind it. Each group has a scale s
// and a minimum m: value = s * q - m, q four signed bytes a word. So the group's part of a product
// with the int8 form is d * (s * sum(q * x) - m * sum(x)). A row of n elements has n / 32 units.
// Float types are read eight values at a time.
//
// An include format_NAME.glsl defines
//     unit NAME_unit(uint64_t row, int n, int i)
//     int NAME_first(int i);   const int NAME_DISTANCE
// and gets a line in each of the three functions at the end of this file.

#define TYPE_F32    0
#define TYPE_F16    1
#define TYPE_Q4_0   2
#define TYPE_Q8_0   8
#define TYPE_Q4_K   12
#define TYPE_Q5_K   13
#define TYPE_Q6_K   14
#define TYPE_IQ4_XS 23
#define TYPE_BF16   30
#define TYPE_MXFP4  39
#define IS_FLOAT    (TYPE == TYPE_F32 || TYPE == TYPE_F16 || TYPE == TYPE_BF16)

struct unit {
    uint q[8]; // group g: q[4 * g .. 4 * g + 3]
    float s[2], m[2];
};

#include "format_q8_0.glsl"
#include "format_q4_0.glsl"
#include "format_q45_k.glsl"
#include "format_q6_k.glsl"
#include "format_tables.glsl"

// Values [8 * i, 8 * i + 8) of a row of floats.
void load_floats(uint64_t row, int i, out vec4 low, out vec4 high) {
    if (TYPE == TYPE_F32) {
        low = load_vec4(row + uint64_t(32 * i));
        high = load_vec4(row + uint64_t(32 * i + 16));
        return;
    }
    uvec4 u = load16(row + uint64_t(16 * i));
    if (TYPE == TYPE_F16) {
        low = vec4(unpackHalf2x16(u.x), unpackHalf2x16(u.y));
        high = vec4(unpackHalf2x16(u.z), unpackHalf2x16(u.w));
    } else {
        low = uintBitsToFloat(uvec4(u.x << 16, u.x & 0xffff0000u, u.y << 16, u.y & 0xffff0000u));
        high = uintBitsToFloat(uvec4(u.z << 16, u.z & 0xffff0000u, u.w << 16, u.w & 0xffff0000u));
    }
}

unit load_unit(uint64_t row, int n, int i) {
    switch (TYPE) {
    case TYPE_Q4_0: return Q4_0_unit(row, n, i);
    case TYPE_Q4_K: return Q45_K_unit(row, n, i, false);
    case TYPE_Q5_K: return Q45_K_unit(row, n, i, true);
    case TYPE_Q6_K: return Q6_K_unit(row, n, i);
    case TYPE_IQ4_XS: return IQ4_XS_unit(row, n, i);
    case TYPE_MXFP4: return MXFP4_unit(row, n, i);
    default: return Q8_0_unit(row, n, i);
    }
}

int unit_first(int i) {
    switch (TYPE) {
    case TYPE_Q4_0: return Q4_0_first(i);
    case TYPE_Q4_K:
    case TYPE_Q5_K: return Q45_K_first(i);
    case TYPE_Q6_K: return Q6_K_first(i);
    case TYPE_IQ4_XS:
    case TYPE_MXFP4: return TABLE_first(i);
    default: return Q8_0_first(i);
    }
}

int unit_distance() {
    switch (TYPE) {
    case TYPE_Q4_0: return Q4_0_DISTANCE;
    case TYPE_Q4_K:
    case TYPE_Q5_K: return Q45_K_DISTANCE;
    case TYPE_Q6_K: return Q6_K_DISTANCE;
    case TYPE_IQ4_XS:
    case TYPE_MXFP4: return TABLE_DISTANCE;
    default: return Q8_0_DISTANCE;
    }
}
