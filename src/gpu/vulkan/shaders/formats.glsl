// formats.glsl: readers of rows (gpu_mat), one include per type. TYPE selects one; the others vanish
// when a pipeline is created. Packed rows have all quants before all scales; with IN_FILE, rows have
// the blocks of the file, which the device reads in place.
//
// Quantized types are read in units of 32 values: two groups of 16, the first at element
// unit_first(i) of the row, the second unit_distance() elements behind it. Each group has a scale s
// and a minimum m: value = s * q - m, q four signed bytes a word. So the group's part of a product
// with the int8 form is d * (s * sum(q * x) - m * sum(x)). A row of n elements has n / 32 units.
// Float types are read eight values at a time.
//
// An include format_NAME.glsl defines
//     unit NAME_unit(uint64_t row, int n, int i)
// and, where a unit's values are not 32 neighbours, int NAME_first(int i) and const int NAME_DISTANCE.
// It gets a line in the functions at the end of this file.

#define TYPE_F32     0
#define TYPE_F16     1
#define TYPE_Q4_0    2
#define TYPE_Q4_1    3
#define TYPE_Q5_0    6
#define TYPE_Q5_1    7
#define TYPE_Q8_0    8
#define TYPE_Q2_K    10
#define TYPE_Q3_K    11
#define TYPE_Q4_K    12
#define TYPE_Q5_K    13
#define TYPE_Q6_K    14
#define TYPE_IQ2_XXS 16
#define TYPE_IQ2_XS  17
#define TYPE_IQ3_XXS 18
#define TYPE_IQ1_S   19
#define TYPE_IQ4_NL  20
#define TYPE_IQ3_S   21
#define TYPE_IQ2_S   22
#define TYPE_IQ4_XS  23
#define TYPE_IQ1_M   29
#define TYPE_BF16    30
#define TYPE_TQ1_0   34
#define TYPE_TQ2_0   35
#define TYPE_MXFP4   39
#define TYPE_NVFP4   40
#define TYPE_Q1_0    41
#define TYPE_Q2_0    42
const uint TYPE = WEIGHTS & 0xffu;
const bool IN_FILE = (WEIGHTS & WEIGHTS_IN_FILE) != 0;
#define IS_FLOAT     (TYPE == TYPE_F32 || TYPE == TYPE_F16 || TYPE == TYPE_BF16)

struct unit {
    uint q[8]; // group g: q[4 * g .. 4 * g + 3]
    float s[2], m[2];
};

uint64_t code_books(); // by PUSHED and STORED

// Where a part of a row begins: byte `packed` of a packed row, byte `in_file` of a row of the file.
uint64_t part(uint64_t row, int packed, int in_file) {
    return row + uint64_t(IN_FILE ? in_file : packed);
}

// 16 bytes of quants. In a packed row they are aligned, in a row of the file only as far as the
// size of the type's blocks allows.
uvec4 load_quants(uint64_t p) {
    if (!IN_FILE) return load16(p);
    switch (TYPE) {
    case TYPE_Q4_K:
    case TYPE_Q5_K: return load16(p);
    case TYPE_Q5_1:
    case TYPE_IQ4_XS: return uvec4(load8(p), load8(p + 8ul));
    case TYPE_Q4_1:
    case TYPE_Q2_K:
    case TYPE_NVFP4:
        return uvec4(load_word(p), load_word(p + 4ul), load_word(p + 8ul), load_word(p + 12ul));
    default: return load_any16(p);
    }
}

// Four bytes, which the file aligns to two.
uint load_bits(uint64_t p) { return IN_FILE ? load_pair(p) : load_word(p); }

#include "format_q8_0.glsl"
#include "format_nibbles.glsl"
#include "format_q23_k.glsl"
#include "format_q45_k.glsl"
#include "format_q6_k.glsl"
#include "format_tables.glsl"
#include "format_low.glsl"

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

// The block of a format of three bits and less with unit i, for blocks of n_units.
uint64_t low_block(uint64_t row, int i, int n_units, int n_bytes) {
    return row + uint64_t(n_bytes * (i / n_units));
}

unit load_unit(uint64_t row, int n, int i) {
    switch (TYPE) {
    case TYPE_Q4_0: return NIBBLES_unit(row, n, i, false, false);
    case TYPE_Q4_1: return NIBBLES_unit(row, n, i, false, true);
    case TYPE_Q5_0: return NIBBLES_unit(row, n, i, true, false);
    case TYPE_Q5_1: return NIBBLES_unit(row, n, i, true, true);
    case TYPE_Q2_K: return Q23_K_unit(row, n, i, false);
    case TYPE_Q3_K: return Q23_K_unit(row, n, i, true);
    case TYPE_Q4_K: return Q45_K_unit(row, n, i, false);
    case TYPE_Q5_K: return Q45_K_unit(row, n, i, true);
    case TYPE_Q6_K: return Q6_K_unit(row, n, i);
    case TYPE_IQ4_NL: return IQ4_NL_unit(row, n, i);
    case TYPE_IQ4_XS: return IQ4_XS_unit(row, n, i);
    case TYPE_MXFP4: return MXFP4_unit(row, n, i);
    case TYPE_NVFP4: return NVFP4_unit(row, n, i);
    case TYPE_IQ2_XXS: return IQ2_XXS_unit(low_block(row, i, 8, 66), i % 8);
    case TYPE_IQ2_XS: return IQ2_XS_unit(low_block(row, i, 8, 74), i % 8);
    case TYPE_IQ2_S: return IQ2_S_unit(low_block(row, i, 8, 82), i % 8);
    case TYPE_IQ3_XXS: return IQ3_XXS_unit(low_block(row, i, 8, 98), i % 8);
    case TYPE_IQ3_S: return IQ3_S_unit(low_block(row, i, 8, 110), i % 8);
    case TYPE_IQ1_S: return IQ1_S_unit(low_block(row, i, 8, 50), i % 8);
    case TYPE_IQ1_M: return IQ1_M_unit(low_block(row, i, 8, 56), i % 8);
    case TYPE_TQ1_0: return TQ1_0_unit(low_block(row, i, 8, 54), i % 8);
    case TYPE_TQ2_0: return TQ2_0_unit(low_block(row, i, 8, 66), i % 8);
    case TYPE_Q1_0: return Q1_0_unit(low_block(row, i, 4, 18), i % 4);
    case TYPE_Q2_0: return Q2_0_unit(low_block(row, i, 2, 18), i % 2);
    default: return Q8_0_unit(row, n, i);
    }
}

int unit_first(int i) {
    switch (TYPE) {
    case TYPE_Q2_K:
    case TYPE_Q3_K: return Q23_K_first(i);
    case TYPE_Q4_K:
    case TYPE_Q5_K: return Q45_K_first(i);
    case TYPE_Q6_K: return Q6_K_first(i);
    default: return 32 * i;
    }
}

int unit_distance() {
    switch (TYPE) {
    case TYPE_Q2_K:
    case TYPE_Q3_K: return Q23_K_DISTANCE;
    case TYPE_Q4_K:
    case TYPE_Q5_K: return Q45_K_DISTANCE;
    case TYPE_Q6_K: return Q6_K_DISTANCE;
    default: return 16;
    }
}
