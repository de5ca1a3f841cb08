// tile.glsl: a tile of a product with many columns: a workgroup of 256 threads computes 64 outputs of 64
// columns, a thread 4 outputs of 4 columns. Weights and inputs of 64 terms at a time are in shared memory,
// quantized ones as int8 with their scales, others as floats, 16 terms. The shader defines before it
//     uint64_t weights();                   address of row 0
//     int column_of(int line);              the input's column for a line of the tile; < 0: none
//     void put(int row, int line, float v); a sum
// and has in `a` row_bytes, n_in, n_out, x, ldx, q8.

const int SIDE = 64, UNITS = 2;                 // of a tile; units of 32 terms in a step
const int FLOATS = 16;                          // terms of a step of floats
const int WORDS = 8 * UNITS, STRIDE = WORDS + 1; // a stride that spreads banks

shared uint w_part[SIDE * STRIDE], x_part[SIDE * STRIDE]; // int8, four a word; or floats
shared vec2 w_scale[SIDE * UNITS], w_least[SIDE * UNITS]; // of the two groups of a unit
shared vec2 x_scale[SIDE * UNITS], x_sum[SIDE * UNITS];

void load_int8(int row0, int u0, int n_units) {
    int t = int(gl_LocalInvocationID.x);
    for (int k = t; k < SIDE * UNITS; k += 256) {
        int r = k / UNITS, i = u0 + k % UNITS;
        unit u;
        for (int e = 0; e < 8; e++) u.q[e] = 0u;
        u.s[0] = u.s[1] = u.m[0] = u.m[1] = 0;
        if (row0 + r < a.n_out && i < n_units)
            u = load_unit(weights() + uint64_t(row0 + r) * a.row_bytes, a.n_in, i);
        for (int e = 0; e < 8; e++) w_part[r * STRIDE + 8 * (k % UNITS) + e] = u.q[e];
        w_scale[k] = vec2(u.s[0], u.s[1]);
        w_least[k] = vec2(u.m[0], u.m[1]);
    }
    for (int k = t; k < SIDE * UNITS; k += 256) {
        int c = k / UNITS, i = u0 + k % UNITS;
        int source = column_of(c);
        bool there = source >= 0 && i < n_units;
        uint64_t column = a.q8 + uint64_t(max(source, 0)) * q8_bytes(a.n_in);
        for (int g = 0; g < 2; g++) {
            int at = unit_first(min(i, n_units - 1)) + g * unit_distance();
            uvec4 v = load16(column + uint64_t(at));
            for (int e = 0; e < 4; e++)
                x_part[c * STRIDE + 8 * (k % UNITS) + 4 * g + e] = there ? v[e] : 0u;
            x_scale[k][g] = there ? load_float(at4(q8_d(column, a.n_in), at / 32)) : 0.0;
            x_sum[k][g] = float(load_int(at4(q8_sum(column, a.n_in), at / 16)));
        }
    }
}

void load_float_tile(int row0, int k0) {
    int t = int(gl_LocalInvocationID.x);
    for (int k = t; k < SIDE * FLOATS / 8; k += 256) {
        int r = k / (FLOATS / 8), e = 8 * (k % (FLOATS / 8));
        vec4 low = vec4(0), high = vec4(0);
        if (row0 + r < a.n_out && k0 + e < a.n_in)
            load_floats(weights() + uint64_t(row0 + r) * a.row_bytes, (k0 + e) / 8, low, high);
        for (int i = 0; i < 4; i++) {
            w_part[r * STRIDE + e + i] = floatBitsToUint(k0 + e + i < a.n_in ? low[i] : 0.0);
            w_part[r * STRIDE + e + 4 + i] = floatBitsToUint(k0 + e + 4 + i < a.n_in ? high[i] : 0.0);
        }
    }
    for (int k = t; k < SIDE * FLOATS / 4; k += 256) {
        int c = k / (FLOATS / 4), e = 4 * (k % (FLOATS / 4));
        vec4 v = vec4(0);
        int source = column_of(c);
        if (source >= 0 && k0 + e < a.n_in)
            v = load_four(at4(a.x, int64_t(source) * a.ldx), k0 + e, a.n_in);
        for (int i = 0; i < 4; i++) x_part[c * STRIDE + e + i] = floatBitsToUint(v[i]);
    }
}

void run_tile(int row0) {
    // A thread's outputs and columns are 16 apart: neighbours read neighbouring columns.
    int t = int(gl_LocalInvocationID.x), mine_r = t / 16, mine_c = t % 16;
    float sum[16];
    [[unroll]] for (int i = 0; i < 16; i++) sum[i] = 0;
    if (IS_FLOAT) {
        for (int k0 = 0; k0 < a.n_in; k0 += FLOATS) {
            load_float_tile(row0, k0);
            barrier();
            for (int k = 0; k < FLOATS; k++) {
                vec4 w, x;
                [[unroll]] for (int i = 0; i < 4; i++) {
                    w[i] = uintBitsToFloat(w_part[(mine_r + 16 * i) * STRIDE + k]);
                    x[i] = uintBitsToFloat(x_part[(mine_c + 16 * i) * STRIDE + k]);
                }
                [[unroll]] for (int i = 0; i < 16; i++) sum[i] += w[i / 4] * x[i % 4];
            }
            barrier();
        }
    } else {
        int n_units = a.n_in / 32;
        for (int u0 = 0; u0 < n_units; u0 += UNITS) {
            load_int8(row0, u0, n_units);
            barrier();
            for (int j = 0; j < 2 * UNITS; j++) { // groups of 16 terms
                int u = j / 2, g = j % 2;
                ivec4 part[4];
                [[unroll]] for (int i = 0; i < 4; i++) part[i] = ivec4(0);
                [[unroll]] for (int e = 0; e < 4; e++) {
                    uvec4 w, x;
                    [[unroll]] for (int i = 0; i < 4; i++) {
                        w[i] = w_part[(mine_r + 16 * i) * STRIDE + 4 * j + e];
                        x[i] = x_part[(mine_c + 16 * i) * STRIDE + 4 * j + e];
                    }
                    [[unroll]] for (int i = 0; i < 16; i++)
                        part[i / 4][i % 4] = dot4(w[i / 4], x[i % 4], part[i / 4][i % 4]);
                }
                [[unroll]] for (int i = 0; i < 16; i++) {
                    int r = (mine_r + 16 * (i / 4)) * UNITS + u, c = (mine_c + 16 * (i % 4)) * UNITS + u;
                    sum[i] += x_scale[c][g] * (w_scale[r][g] * float(part[i / 4][i % 4]) -
                                               w_least[r][g] * x_sum[c][g]);
                }
            }
            barrier();
        }
    }
    for (int i = 0; i < 16; i++) {
        int r = row0 + mine_r + 16 * (i / 4), line = mine_c + 16 * (i % 4);
        if (r < a.n_out && column_of(line) >= 0) put(r, line, sum[i]);
    }
}
