// format_q6_k.glsl: half a block is 128 values: 64 bytes with the low four bits of values l and l + 64 in
// byte l; then, behind all of them, 32 bytes per half with the high two bits of values l, l + 32, l + 64
// and l + 96 in byte l; then an int8 scale per 16 values; then half d per block. value = d * scale * (q -
// 32). A block in the file has the same parts.
const int Q6_K_DISTANCE = 64;
int Q6_K_first(int i) { return 128 * (i / 4) + 16 * (i % 4); }

unit Q6_K_unit(uint64_t row, int n, int i) {
    unit u;
    int quarter = i % 4, shift = 2 * (quarter / 2); // of the 64 bytes
    int block = 210 * (i / 8), scale = Q6_K_first(i) / 16; // in the file; in the row
    int above = 32 * (i / 4) + 16 * (quarter % 2);
    uvec4 w = load_quants(part(row, 16 * i, block + 16 * (i % 8)));
    uvec4 h = load_quants(part(row, n / 2 + above, block + 128 + above % 64));
    uint64_t scales = part(row, n / 2 + n / 4 + scale, block + 192 + scale % 16);
    float d = half_float(load_short(part(row, n / 2 + n / 4 + n / 16 + 2 * (i / 8), block + 208)));
    for (int k = 0; k < 4; k++) {
        u.q[k] = w[k] & 0x0f0f0f0fu | (h[k] >> shift & 0x03030303u) << 4;
        u.q[4 + k] = w[k] >> 4 & 0x0f0f0f0fu | (h[k] >> (shift + 4) & 0x03030303u) << 4;
    }
    for (int g = 0; g < 2; g++) {
        uint bits = load_byte(scales + uint64_t(g * Q6_K_DISTANCE / 16));
        u.s[g] = d * float(int(bits << 24) >> 24);
        u.m[g] = 32 * u.s[g];
    }
    return u;
}
