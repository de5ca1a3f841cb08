// cache.glsl: types of the KV cache. A head is n elements; quantized types have the blocks of GGUF
// (src/cpu/kv_low.h), aligned to 2 bytes.

#define CACHE_F32    0
#define CACHE_F16    1
#define CACHE_Q4_0   2
#define CACHE_Q4_1   3
#define CACHE_Q5_0   6
#define CACHE_Q5_1   7
#define CACHE_Q8_0   8
#define CACHE_IQ4_NL 20
#define CACHE_BF16   30

// Blocks of 32: value = d * q + m, q from `least` to `most`; offsets of the parts, 0: absent.
struct cache_low {
    int bytes, m, qh, qs, least, most;
};

cache_low cache_low_of(int type) {
    bool q5 = type == CACHE_Q5_0 || type == CACHE_Q5_1;
    bool affine = type == CACHE_Q4_1 || type == CACHE_Q5_1;
    cache_low f;
    f.m = affine ? 2 : 0;
    f.qh = q5 ? 2 + f.m : 0;
    f.qs = 2 + f.m + (q5 ? 4 : 0);
    f.bytes = f.qs + (type == CACHE_Q8_0 ? 32 : 16);
    f.least = affine ? 0 : type == CACHE_Q4_0 ? -8 : type == CACHE_Q5_0 ? -16 : -127;
    f.most = type == CACHE_Q4_0 ? 7
             : type == CACHE_Q5_1 ? 31
             : affine || type == CACHE_Q5_0 ? 15
             : type == CACHE_IQ4_NL ? 113 : 127;
    return f;
}

int cache_head_bytes(int type, int n) {
    if (type == CACHE_F32) return 4 * n;
    if (type == CACHE_F16 || type == CACHE_BF16) return 2 * n;
    return n / 32 * cache_low_of(type).bytes;
}

const int iq4_values[16] = int[16](-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);

// Elements [8 * i, 8 * i + 8) of the head.
void cache_load(int type, uint64_t head, int i, out vec4 low, out vec4 high) {
    if (type == CACHE_F32) {
        low = load_vec4(head + uint64_t(32 * i));
        high = load_vec4(head + uint64_t(32 * i + 16));
        return;
    }
    if (type == CACHE_F16 || type == CACHE_BF16) {
        uvec4 u = load16(head + uint64_t(16 * i));
        if (type == CACHE_F16) {
            low = vec4(unpackHalf2x16(u.x), unpackHalf2x16(u.y));
            high = vec4(unpackHalf2x16(u.z), unpackHalf2x16(u.w));
        } else {
            low = uintBitsToFloat(uvec4(u.x << 16, u.x & 0xffff0000u, u.y << 16, u.y & 0xffff0000u));
            high = uintBitsToFloat(uvec4(u.z << 16, u.z & 0xffff0000u, u.w << 16, u.w & 0xffff0000u));
        }
        return;
    }
    cache_low f = cache_low_of(type);
    bool whole = type == CACHE_Q8_0;
    uint64_t block = head + uint64_t(i / 4 * f.bytes);
    uint64_t q = block + uint64_t(f.qs + 8 * (i % (whole ? 4 : 2)));
    uint fifth = f.qh != 0 ? load_byte(block + uint64_t(f.qh + i % 4)) : 0u;
    float d = half_float(load_short(block));
    float m = f.m != 0 ? half_float(load_short(block + uint64_t(f.m))) : d * float(f.least);
    if (whole || type == CACHE_IQ4_NL) m = 0;
    for (int k = 0; k < 4; k++) { // two elements each
        uint pair = load_short(q + uint64_t(2 * k));
        for (int j = 0; j < 2; j++) {
            int e = 2 * k + j;
            uint bits = pair >> (8 * j) & 0xffu;
            float value;
            if (whole) {
                value = float(int(bits << 24) >> 24);
            } else {
                bits = i % 4 < 2 ? bits & 15u : bits >> 4;
                if (f.qh != 0) bits |= (fifth >> e & 1u) << 4;
                value = type == CACHE_IQ4_NL ? float(iq4_values[bits]) : float(bits);
            }
            float v = d * value + m;
            if (e < 4) low[e] = v;
            else high[e - 4] = v;
        }
    }
}
