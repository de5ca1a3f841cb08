// format_q23_k.glsl: Q2_K and, with a third bit, Q3_K. Half a block is 128 values: byte l of its 32
// bytes has values l, l + 32, l + 64, l + 96. Two units share 16 bytes: one has values l and
// l + 32, the other l + 64 and l + 96. In Q2_K two parts follow: a byte per 16 values, with scale
// and minimum in its nibbles, and half d and dmin per block. In Q3_K two parts follow: 32 bytes per
// block, where bit j of byte l belongs to value 32 * j + l, and 14 bytes per block: 16 scales of
// six bits and half d. A block in the file has 84 bytes (scales, values, d, dmin) or 110 bytes (third
// bits, values, scales and d).
const int Q23_K_DISTANCE = 32;
int Q23_K_first(int i) { return 128 * (i / 4) + 64 * (i % 2) + 16 * (i / 2 % 2); }

// Scale j of a block of Q3_K. Byte j % 8 has its lower four bits, in the low nibble for scales 0 to
// 7 and in the high nibble for scales 8 to 15. Its upper two bits begin at bit j / 4 * 2 of byte
// 8 + j % 4.
float Q3_K_scale(uint64_t scales, int j) {
    uint low = load_byte(scales + uint64_t(j % 8)) >> (j / 8 * 4) & 15u;
    uint high = load_byte(scales + uint64_t(8 + j % 4)) >> (j / 4 * 2) & 3u;
    return float(int(low | high << 4) - 32);
}

unit Q23_K_unit(uint64_t row, int n, int i, bool third) {
    unit u;
    int shift = 4 * (i % 2), block = i / 8, j = Q23_K_first(i) / 16;
    int at = third ? 110 * block : 84 * block; // in the file
    uvec4 w = load_quants(part(row, 16 * (i / 2), at + (third ? 32 : 16) + 16 * (i % 8 / 2)));
    for (int k = 0; k < 4; k++) {
        u.q[k] = w[k] >> shift & 0x03030303u;
        u.q[4 + k] = w[k] >> (shift + 2) & 0x03030303u;
    }
    if (third) {
        int of_half = 16 * (i / 2 % 2);
        uvec4 h = load_quants(part(row, n / 4 + 32 * block + of_half, at + of_half));
        uint64_t scales = part(row, n / 4 + n / 8 + 14 * block, at + 96);
        int bit = 4 * (i / 4 % 2) + 2 * (i % 2);
        float d = half_float(load_short(scales + 12ul));
        for (int k = 0; k < 4; k++) {
            u.q[k] |= (h[k] >> bit & 0x01010101u) << 2;
            u.q[4 + k] |= (h[k] >> (bit + 1) & 0x01010101u) << 2;
        }
        for (int g = 0; g < 2; g++) {
            u.s[g] = d * Q3_K_scale(scales, (j + 2 * g) % 16);
            u.m[g] = 4 * u.s[g];
        }
    } else {
        uint d = load_word(part(row, n / 4 + n / 16 + 4 * block, at + 80));
        for (int g = 0; g < 2; g++) {
            uint scale = load_byte(part(row, n / 4 + j + 2 * g, at + j % 16 + 2 * g));
            u.s[g] = half_float(d) * float(scale & 15u);
            u.m[g] = half_float(d >> 16) * float(scale >> 4);
        }
    }
    return u;
}
