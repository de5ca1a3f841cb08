// format_q8_0.glsl: int8 q[n], then half d[n / 32].
unit Q8_0_unit(uint64_t row, int n, int i) {
    unit u;
    uvec4 a = load16(row + uint64_t(32 * i)), b = load16(row + uint64_t(32 * i + 16));
    for (int k = 0; k < 4; k++) {
        u.q[k] = a[k];
        u.q[4 + k] = b[k];
    }
    u.s[0] = u.s[1] = half_float(load_short(row + uint64_t(n + 2 * i)));
    u.m[0] = u.m[1] = 0;
    return u;
}
