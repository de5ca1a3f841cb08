// store.glsl: writes a head (head.glsl) to the cache.

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
