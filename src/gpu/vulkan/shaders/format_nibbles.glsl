// format_nibbles.glsl: Q4_0, Q4_1, Q5_0, Q5_1. A row begins with 16 bytes per unit: byte k has
// elements k and k + 16. In Q5 a word per unit follows: bit k is the fifth bit of element k. At the
// end each unit has half d; in Q4_1 and Q5_1 half d and half m.

// Spreads the four lowest bits: byte k is 1 if bit k is set.
uint spread_bits(uint bits) { return (bits & 15u) * 0x204081u & 0x01010101u; }

unit NIBBLES_unit(uint64_t row, int n, int i, bool fifth, bool affine) {
    unit u;
    uvec4 w = load16(row + uint64_t(16 * i));
    uint above = fifth ? load_word(row + uint64_t(n / 2 + 4 * i)) : 0u;
    for (int k = 0; k < 4; k++) {
        u.q[k] = w[k] & 0x0f0f0f0fu | spread_bits(above >> (4 * k)) << 4;
        u.q[4 + k] = w[k] >> 4 & 0x0f0f0f0fu | spread_bits(above >> (16 + 4 * k)) << 4;
    }
    uint64_t scales = row + uint64_t(n / 2 + (fifth ? n / 8 : 0));
    if (affine) {
        uint dm = load_word(scales + uint64_t(4 * i));
        u.s[0] = half_float(dm);
        u.m[0] = -half_float(dm >> 16);
    } else {
        u.s[0] = half_float(load_short(scales + uint64_t(2 * i)));
        u.m[0] = (fifth ? 16 : 8) * u.s[0];
    }
    u.s[1] = u.s[0];
    u.m[1] = u.m[0];
    return u;
}
