// format_q4_0.glsl: 16 bytes per unit: byte k has elements k and k + 16; then half d[n / 32].
const int Q4_0_DISTANCE = 16;
int Q4_0_first(int i) { return 32 * i; }

unit Q4_0_unit(uint64_t row, int n, int i) {
    unit u;
    uvec4 w = load16(row + uint64_t(16 * i));
    for (int k = 0; k < 4; k++) {
        u.q[k] = w[k] & 0x0f0f0f0fu;
        u.q[4 + k] = w[k] >> 4 & 0x0f0f0f0fu;
    }
    float d = half_float(load_short(row + uint64_t(n / 2 + 2 * i)));
    u.s[0] = u.s[1] = d;
    u.m[0] = u.m[1] = 8 * d;
    return u;
}
