// rope_store.comp: a workgroup has a head of a column: queries first, then keys, then values.
#version 460
#include "vulkan.glsl"
#include "block.glsl"
#include "column.glsl"
#include "cache.glsl"
#include "head.glsl"

STORED(vulkan_rope_args)
#define a a_stored

uint code_of(int type, cache_low f, float x, float d, float m) {
    float y = d < 0.0 || d > 0.0 ? divide(x - m, d) : 0.0;
    if (type != CACHE_IQ4_NL)
        return uint(int(roundEven(clamp(y, float(f.least), float(f.most)))) - f.least);
    uint code = 0;
    for (uint bit = 8; bit > 0; bit /= 2) {
        uint above = code | bit;
        if (y > 0.5 * float(iq4_values[above] + iq4_values[above - 1])) code = above;
    }
    return code;
}

// Blocks of 32 of a quantized type, one thread each.
void store_blocks(int type, uint64_t to, int n) {
    const float largest = 65504.0;
    cache_low f = cache_low_of(type);
    for (int b = THREAD; 32 * b < n; b += THREADS) {
        uint64_t block = to + uint64_t(b * f.bytes);
        float hi = -INF, lo = INF, size = 0;
        for (int k = 0; k < 32; k++) {
            float v = head[32 * b + k], s = abs(v);
            hi = max(hi, v);
            lo = min(lo, v);
            size = max(size, s < INF ? s : INF);
        }
        bool finite = size < INF;
        if (type == CACHE_Q8_0) {
            uint stored = float_half(finite ? min(divide(size, 127.0), largest) : NOT_NUM);
            float d = half_float(stored);
            store_short(block, stored);
            for (int k = 0; k < 32; k++) {
                float q = d > 0.0 ? clamp(divide(head[32 * b + k], d), -127.0, 127.0) : 0.0;
                store_byte(block + uint64_t(2 + k), uint(int(roundEven(q))) & 0xffu);
            }
            continue;
        }
        uint half_m = float_half(finite ? clamp(lo, -largest, largest) + 0.0 : 0.0);
        float m = f.m != 0 ? half_float(half_m) : 0.0;
        float scale = divide(hi > -lo ? hi : lo, float(f.least)) + 0.0;
        if (f.m != 0) scale = divide(hi - m, float(f.most));
        uint half_d = float_half(finite ? clamp(scale, -largest, largest) : NOT_NUM);
        float d = half_float(half_d);
        store_short(block, half_d);
        if (f.m != 0) store_short(block + uint64_t(f.m), half_m);
        uint fifth = 0;
        for (int k = 0; k < 16; k++) {
            uint low = code_of(type, f, head[32 * b + k], d, m);
            uint high = code_of(type, f, head[32 * b + 16 + k], d, m);
            store_byte(block + uint64_t(f.qs + k), (low & 15u) | (high & 15u) << 4);
            fifth |= low >> 4 << k | high >> 4 << (k + 16);
        }
        for (int k = 0; f.qh != 0 && k < 4; k++)
            store_byte(block + uint64_t(f.qh + k), fifth >> (8 * k) & 0xffu);
    }
}

void store_head(int type, uint64_t to, int n) {
    if (type != CACHE_F32 && type != CACHE_F16 && type != CACHE_BF16) {
        store_blocks(type, to, n);
        return;
    }
    for (int i = THREAD; i < n; i += THREADS) {
        uint bits = floatBitsToUint(head[i]);
        if (type == CACHE_F32) {
            store_word(at4(to, i), bits);
        } else if (type == CACHE_F16) {
            store_short(to + uint64_t(2 * i), float_half(head[i]));
        } else {
            bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
            uint rounded = nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);
            store_short(to + uint64_t(2 * i), rounded >> 16);
        }
    }
}

void main() {
    int c = int(gl_WorkGroupID.y), h = int(gl_WorkGroupID.x);
    bool is_q = h < a.n_head, is_k = !is_q && h < a.n_head + a.n_head_kv, is_v = !is_q && !is_k;
    int n = is_v ? a.v_dim : a.head_dim;
    uint64_t q = at4(a.q, int64_t(c) * a.ldq + h * (a.q_stride != 0 ? a.q_stride : n)), x = q;
    if (!is_q) {
        h -= is_k ? a.n_head : a.n_head + a.n_head_kv;
        x = is_k ? at4(a.k, int64_t(c) * a.ldk + h * n) : at4(a.v, int64_t(c) * a.ldv + h * n);
    }
    for (int i = THREAD; i < n; i += THREADS) head[i] = load_float(at4(x, i));
    barrier();
    clamp_head(n, a.clamp);
    if (!is_v) {
        uint64_t w = is_q ? a.q_norm : a.k_norm;
        bool norms = w != 0 || (a.flags & ROPE_NORM_BARE) != 0, centred = a.norm == NORM_LAYER;
        bool late = (a.flags & ROPE_NORM_LATE) != 0;
        if (w != 0) w = at4(w, h * a.norm_stride);
        if (norms && !late) norm_head(w, n, centred, a.eps);
        if (a.cs != 0)
            rotate_head(a.rot_at, at4(a.cs, int64_t(c) * a.n_rot), a.n_rot,
                        (a.flags & ROPE_NEOX) != 0);
        if (norms && late) norm_head(w, n, centred, a.eps);
        spread_head(n, a.k_hadamard);
    } else {
        if ((a.flags & ROPE_VALUE_NORM) != 0) norm_head(0, n, false, a.eps);
        spread_head(n, a.v_hadamard);
    }
    if (is_q) {
        for (int i = THREAD; i < n; i += THREADS) store_float(at4(q, i), head[i]);
        return;
    }
    int type = is_k ? a.type_k : a.type_v;
    uint64_t row = column_kv(a.cols, c) +
                   uint64_t(column_n_ctx(a.cols, c)) * (is_k ? a.k_offset : a.v_offset) +
                   uint64_t(column_pos(a.cols, c)) * (is_k ? a.k_row : a.v_row);
    store_head(type, row + uint64_t(h * cache_head_bytes(type, n)), n);
}
