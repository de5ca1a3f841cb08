// format_nibbles.glsl: Q4_0, Q4_1, Q5_0, Q5_1. A row begins with 16 bytes per unit: byte k has
// elements k and k + 16. In Q5 a word per unit follows: bit k is the fifth bit of element k. At the
// end each unit has half d; in Q4_1 and Q5_1 half d and half m. A block in the file: the halves, the
// fifth bits, the nibbles.

// Spreads the four lowest bits: byte k is 1 if bit k is set.
uint spread_bits(uint bits) { return (bits & 15u) * 0x204081u & 0x01010101u; }

unit NIBBLES_unit(uint64_t row, int n, int i, bool fifth, bool affine) {
    unit u;
    int head = affine ? 4 : 2, nibbles = head + (fifth ? 4 : 0), block = (nibbles + 16) * i;
    uvec4 w = load_quants(part(row, 16 * i, block + nibbles));
    uint above = fifth ? load_bits(part(row, n / 2 + 4 * i, block + head)) : 0u;
    for (int k = 0; k < 4; k++) {
        u.q[k] = w[k] & 0x0f0f0f0fu | spread_bits(above >> (4 * k)) << 4;
        u.q[4 + k] = w[k] >> 4 & 0x0f0f0f0fu | spread_bits(above >> (16 + 4 * k)) << 4;
    }
    uint64_t scales = part(row, n / 2 + (fifth ? n / 8 : 0) + head * i, block);
    if (affine) {
        uint dm = load_bits(scales);
        u.s[0] = half_float(dm);
        u.m[0] = -half_float(dm >> 16);
    } else {
        u.s[0] = half_float(load_short(scales));
        u.m[0] = (fifth ? 16 : 8) * u.s[0];
    }
    u.s[1] = u.s[0];
    u.m[1] = u.m[0];
    return u;
}
