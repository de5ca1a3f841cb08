// vulkan.glsl: included first by every shader: extensions, specialization constants, loads and
// stores by address, subgroup helpers.
//
// Device memory is reached by 64-bit addresses (GL_EXT_buffer_reference), as in gpu_ops.h: an
// argument is an address, and load and store functions below take addresses. Everything is right
// for subgroups of 8 to 64 lanes: a group of the int8 form (32 values) is four values in each of
// eight neighbouring lanes.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_ballot : require

#include "args.h"

// Specialization constants of all shaders (vulkan_variant, vulkan.h). Shaders may define more, from
// number 4 on.
layout(local_size_x_id = 0) in;                // threads of a workgroup
layout(constant_id = 1) const uint WEIGHTS = 0; // their type, a quant_type, and WEIGHTS_IN_FILE
layout(constant_id = 2) const uint COLS = 1;    // columns at a time: 1, 2 or 4
layout(constant_id = 3) const uint WAY = 0;     // what else differs: see the shader

// Arguments: `PUSHED(struct)` for structs of at most PUSHED_BYTES, which are push constants;
// `STORED(struct)` for longer ones, which are in memory. Both define `a`. The push constants end
// with the address of the code books.
#define PUSHED(type)                                                                               \
    layout(push_constant, std430) uniform pushed_args {                                            \
        type a;                                                                                    \
        layout(offset = PUSHED_BYTES) uint64_t pushed_books;                                       \
    };                                                                                             \
    uint64_t code_books() { return pushed_books; }
#define STORED(type)                                                                               \
    layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer stored_args {    \
        type of;                                                                                   \
    };                                                                                             \
    layout(push_constant, std430) uniform pushed_address {                                         \
        stored_args stored;                                                                        \
        layout(offset = PUSHED_BYTES) uint64_t pushed_books;                                       \
    };                                                                                             \
    uint64_t code_books() { return pushed_books; }
#define a_stored stored.of

#define INF     uintBitsToFloat(0x7f800000u)
#define NOT_NUM uintBitsToFloat(0x7fc00000u)

// ---- memory

layout(buffer_reference, std430, buffer_reference_align = 16) buffer words16_at { uvec4 v; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer words8_at { uvec2 v; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer u64_at { uint64_t v; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer word_at { uint v; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer atomic_at { uint v; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer short_at { uint16_t v; };
layout(buffer_reference, std430, buffer_reference_align = 1) buffer byte_at { uint8_t v; };

uvec4 load16(uint64_t p) { return words16_at(p).v; } // p: aligned to 16 bytes
uvec2 load8(uint64_t p) { return words8_at(p).v; }
uint64_t load_u64(uint64_t p) { return u64_at(p).v; }
uint load_word(uint64_t p) { return word_at(p).v; }
int load_int(uint64_t p) { return int(word_at(p).v); }
uint load_short(uint64_t p) { return uint(short_at(p).v); }
uint load_byte(uint64_t p) { return uint(byte_at(p).v); }
float load_float(uint64_t p) { return uintBitsToFloat(word_at(p).v); }
vec4 load_vec4(uint64_t p) { return uintBitsToFloat(words16_at(p).v); }
void store16(uint64_t p, uvec4 v) { words16_at(p).v = v; }
void store_u64(uint64_t p, uint64_t v) { u64_at(p).v = v; }
void store_word(uint64_t p, uint v) { word_at(p).v = v; }
void store_short(uint64_t p, uint v) { short_at(p).v = uint16_t(v); }
void store_byte(uint64_t p, uint v) { byte_at(p).v = uint8_t(v); }
void store_float(uint64_t p, float v) { word_at(p).v = floatBitsToUint(v); }
void store_vec4(uint64_t p, vec4 v) { words16_at(p).v = floatBitsToUint(v); }
void count_at(uint64_t p, int n) { atomicAdd(atomic_at(p).v, uint(n)); }

// Address of element i of an array of floats (or other words).
uint64_t at4(uint64_t p, int64_t i) { return p + uint64_t(4 * i); }

// Two bytes' alignment is enough.
uint load_pair(uint64_t p) { return load_short(p) | load_short(p + 2ul) << 16; }

// 16 bytes at any address, by aligned words; up to three bytes behind them are also read.
uvec4 load_any16(uint64_t p) {
    uint64_t at = p & ~3ul;
    uint shift = 8u * (uint(p) & 3u);
    uvec4 w = uvec4(load_word(at), load_word(at + 4ul), load_word(at + 8ul), load_word(at + 12ul));
    if (shift == 0u) return w;
    return w >> shift | uvec4(w.yzw, load_word(at + 16ul)) << (32u - shift);
}

// Elements [i, i + 4) of a column of n floats at x, zeros behind its end; i is a multiple of 4.
vec4 load_four(uint64_t x, int i, int n) {
    if (i + 4 <= n) return load_vec4(at4(x, i));
    vec4 v = vec4(0);
    for (int k = 0; k < 4; k++)
        if (i + k < n) v[k] = load_float(at4(x, i + k));
    return v;
}

// Drivers may take small halves for zero, so these are made by hand.
float half_float(uint bits) {
    float small = float(bits & 0x3ffu) * 5.9604644775390625e-8; // 2^-24
    return (bits & 0x7c00u) != 0 ? unpackHalf2x16(bits & 0xffffu).x
                                 : (bits & 0x8000u) != 0 ? -small : small;
}

// Rounds to nearest even; too large is infinite, NaN stays NaN.
uint float_half(float x) {
    uint bits = floatBitsToUint(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return sign | 0x7e00u;
    if (size >= 0x477ff000u) return sign | 0x7c00u;
    if (size < 0x38800000u) return sign | uint(roundEven(abs(x) * 16777216.0)); // steps of 2^-24
    uint rounded = size + 0xfffu + (size >> 13 & 1u);
    return sign | (rounded - 0x38000000u) >> 13;
}

// x / y nearly correctly rounded, as the CPU divides: a quotient alone may be off by 2.5 units.
float divide(float x, float y) {
    precise float q = x / y;
    precise float rest = fma(-q, y, x);
    return q + rest / y;
}

// ---- lanes

#define LANE  int(gl_SubgroupInvocationID)
#define LANES int(gl_SubgroupSize)

// Sums and maximums of eight neighbouring lanes, in all of them.
float eight_add(float v) {
    v += subgroupShuffleXor(v, 1);
    v += subgroupShuffleXor(v, 2);
    return v + subgroupShuffleXor(v, 4);
}
int eight_add(int v) {
    v += subgroupShuffleXor(v, 1);
    v += subgroupShuffleXor(v, 2);
    return v + subgroupShuffleXor(v, 4);
}
float eight_max(float v) {
    v = max(v, subgroupShuffleXor(v, 1));
    v = max(v, subgroupShuffleXor(v, 2));
    return max(v, subgroupShuffleXor(v, 4));
}

// ---- the int8 form of a column (gpu_ops.h): int8 q[n] | float d[n / 32] | int sum[n / 16]

uint64_t q8_d(uint64_t q8, int n) { return q8 + uint64_t(n); }
uint64_t q8_sum(uint64_t q8, int n) { return q8 + uint64_t(n + (n / 8 + 15) / 16 * 16); }
uint64_t q8_bytes(int n) { return uint64_t(n + (n / 8 + 15) / 16 * 16 + (n / 4 + 15) / 16 * 16); }

// sum + d . e, of four signed bytes each. The build makes two modules of a shader that uses it: with
// INT_DOT it is one instruction (OpSDotKHR, of the packed format).
#ifdef INT_DOT
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018],
                  id = 4450)
int packed_dot(int d, int e, spirv_literal int packing);
int dot4(uint d, uint e, int sum) { return sum + packed_dot(int(d), int(e), 0); }
#else
int dot4(uint d, uint e, int sum) {
    ivec4 p = ivec4(unpack8(int(d))) * ivec4(unpack8(int(e)));
    return sum + p.x + p.y + p.z + p.w;
}
#endif

// Four values of a group of 32 in the int8 form, and the scale and sums of the group.
struct int8_four {
    uint q;
    float d;
    int low, high; // sums of the two halves
};

// The int8 form of this lane's elements [i, i + 4), v; i is a multiple of 4. Eight neighbouring
// lanes have the values of a group, in order. All lanes of the subgroup call it.
int8_four int8_of(vec4 v, int i) {
    int8_four to;
    vec4 size = abs(v);
    float most = 0;
    for (int k = 0; k < 4; k++) most = max(most, size[k] < INF ? size[k] : INF); // NaN: infinite
    most = eight_max(most);
    bool finite = most < INF;
    to.d = finite ? divide(most, 127.0) : NOT_NUM;
    ivec4 q = ivec4(0);
    for (int k = 0; k < 4 && finite && to.d != 0.0; k++)
        q[k] = clamp(int(roundEven(divide(v[k], to.d))), -127, 127);
    int sum = q.x + q.y + q.z + q.w;
    bool is_low = i % 32 < 16;
    to.q = uint(pack32(i8vec4(q)));
    to.low = eight_add(is_low ? sum : 0);
    to.high = eight_add(is_low ? 0 : sum);
    return to;
}

// Writes the group of 32 that contains elements [i, i + 4) (int8_of). `valid` is equal in the eight
// lanes of a group.
void quantize_group(vec4 v, int i, bool valid, int n, uint64_t q8) {
    int8_four to = int8_of(v, i);
    if (!valid) return;
    store_word(q8 + uint64_t(i), to.q);
    if (i % 32 != 0) return;
    store_float(at4(q8_d(q8, n), i / 32), to.d);
    store_word(at4(q8_sum(q8, n), i / 16), uint(to.low));
    store_word(at4(q8_sum(q8, n), i / 16 + 1), uint(to.high));
}

// ---- selected neurons

// bitmap 0: every neuron is selected.
bool is_selected(uint64_t bitmap, int n_words, int c, int i) {
    if (bitmap == 0) return true;
    return (load_word(at4(bitmap, int64_t(c) * n_words + i / 32)) >> (i % 32) & 1u) != 0;
}
