// format_q8_0.glsl: int8 q[n], then half d[n / 32]. A block in the file: d, 32 quants.
unit Q8_0_unit(uint64_t row, int n, int i) {
    unit u;
    uint64_t quants = part(row, 32 * i, 34 * i + 2);
    uvec4 a = load_quants(quants), b = load_quants(quants + 16ul);
    for (int k = 0; k < 4; k++) {
        u.q[k] = a[k];
        u.q[4 + k] = b[k];
    }
    u.s[0] = u.s[1] = half_float(load_short(part(row, n + 2 * i, 34 * i)));
    u.m[0] = u.m[1] = 0;
    return u;
}
