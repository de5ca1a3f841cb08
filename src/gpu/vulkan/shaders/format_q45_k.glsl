// format_q45_k.glsl: Q4_K and, with a fifth bit, Q5_K. 32 bytes hold sub-blocks 2 * j (low nibbles) and
// 2 * j + 1 (high nibbles); a unit is half of these bytes. Then of Q5_K 32 bytes per block: bit j of
// byte l belongs to value l of sub-block j. Then 16 bytes per block: d, dmin, and twelve bytes of scales
// and minimums of six bits. A block in the file: these 16 bytes, the fifth bits, the nibbles; its size is
// a multiple of 16.
const int Q45_K_DISTANCE = 32;
int Q45_K_first(int i) { return 256 * (i / 8) + 64 * (i % 8 / 2) + 16 * (i % 2); }

// Scale and minimum of sub-block j. j < 4: the low six bits of bytes j and j + 4; others: the nibbles of
// byte j + 4, with their upper two bits in the upper two bits of bytes j - 4 and j.
vec2 Q45_K_scale(uvec4 head, int j) {
    int at = 8 * (j % 4);
    uint a = head.y >> at, b = head.z >> at, c = head.w >> at;
    uint scale = j < 4 ? a & 63u : (c & 15u) | (a >> 6 & 3u) << 4;
    uint least = j < 4 ? b & 63u : (c >> 4 & 15u) | (b >> 6 & 3u) << 4;
    return vec2(half_float(head.x) * float(scale), half_float(head.x >> 16) * float(least));
}

unit Q45_K_unit(uint64_t row, int n, int i, bool fifth) {
    unit u;
    int pair = i % 8 / 2;
    int nibbles = fifth ? 48 : 16, block = (nibbles + 128) * (i / 8);
    uvec4 w = load_quants(part(row, 16 * i, block + nibbles + 16 * (i % 8)));
    uvec4 head = load16(part(row, n / 2 + (fifth ? n / 8 : 0) + 16 * (i / 8), block));
    for (int k = 0; k < 4; k++) {
        u.q[k] = w[k] & 0x0f0f0f0fu;
        u.q[4 + k] = w[k] >> 4 & 0x0f0f0f0fu;
    }
    if (fifth) {
        int of_half = 16 * (i % 2);
        uvec4 h = load16(part(row, n / 2 + 32 * (i / 8) + of_half, block + 16 + of_half));
        for (int k = 0; k < 4; k++) {
            u.q[k] |= (h[k] >> (2 * pair) & 0x01010101u) << 4;
            u.q[4 + k] |= (h[k] >> (2 * pair + 1) & 0x01010101u) << 4;
        }
    }
    for (int g = 0; g < 2; g++) {
        vec2 v = Q45_K_scale(head, 2 * pair + g);
        u.s[g] = v.x;
        u.m[g] = v.y;
    }
    return u;
}
