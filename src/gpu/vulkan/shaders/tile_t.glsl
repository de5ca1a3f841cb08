// tile_t.glsl: a tile of a product over rows, y[c][j] = sum over r of x[c][r] W[r][j], for many
// columns: a workgroup of 256 threads computes 64 outputs of 64 columns, a thread 4 outputs of 4
// columns. Shared memory holds 32 rows at a time, as floats, because the scales of their terms
// differ. A tile's outputs are the values of two units, or 64 floats. The shader defines before it
//     uint64_t weights();                   address of row 0
//     int column_of(int line);              the input's column for a line of the tile; < 0: none
//     void put(int j, int line, float v);   a sum
// and has in `a` row_bytes, n_in (outputs), n_out (rows), x and ldx.

const int SIDE = 64, TERMS = 32, STRIDE = SIDE + 3;
const int ELEMS = IS_FLOAT ? 8 : 32, UNITS = SIDE / ELEMS; // of a unit; of a row in a tile

shared float w_part[TERMS * STRIDE], x_part[TERMS * STRIDE]; // [term][output], [term][column]

int spread(int o) { return o + o / 32; } // puts the second unit into other banks

void load_rows(int u0, int r0) {
    int t = int(gl_LocalInvocationID.x), n_units = (a.n_in + ELEMS - 1) / ELEMS;
    for (int k = t; k < TERMS * UNITS; k += 256) {
        int r = k / UNITS, i = u0 + k % UNITS, at = r * STRIDE + spread(k % UNITS * ELEMS);
        bool there = r0 + r < a.n_out && i < n_units;
        uint64_t row = weights() + uint64_t(there ? r0 + r : 0) * a.row_bytes;
        if (IS_FLOAT) {
            vec4 low, high;
            load_floats(row, there ? i : 0, low, high);
            [[unroll]] for (int e = 0; e < 4; e++) {
                w_part[at + e] = there && 8 * i + e < a.n_in ? low[e] : 0.0;
                w_part[at + 4 + e] = there && 8 * i + 4 + e < a.n_in ? high[e] : 0.0;
            }
        } else {
            unit u = load_unit(row, a.n_in, there ? i : 0);
            [[unroll]] for (int e = 0; e < 32; e++) {
                int q = int(u.q[e / 4] << (24 - 8 * (e % 4))) >> 24;
                w_part[at + e] = there ? u.s[e / 16] * float(q) - u.m[e / 16] : 0.0;
            }
        }
    }
    for (int k = t; k < SIDE * TERMS / 4; k += 256) {
        int c = k / (TERMS / 4), e = 4 * (k % (TERMS / 4)), source = column_of(c);
        vec4 v = vec4(0);
        if (source >= 0 && r0 + e < a.n_out)
            v = load_four(at4(a.x, int64_t(source) * a.ldx), r0 + e, a.n_out);
        [[unroll]] for (int i = 0; i < 4; i++) x_part[(e + i) * STRIDE + c] = v[i];
    }
}

void run_tile(int tile) {
    int t = int(gl_LocalInvocationID.x), mine_o = t / 16, mine_c = t % 16, u0 = tile * UNITS;
    float sum[16];
    [[unroll]] for (int i = 0; i < 16; i++) sum[i] = 0;
    for (int r0 = 0; r0 < a.n_out; r0 += TERMS) {
        load_rows(u0, r0);
        barrier();
        for (int k = 0; k < TERMS; k++) {
            vec4 w, x;
            [[unroll]] for (int i = 0; i < 4; i++) {
                w[i] = w_part[k * STRIDE + spread(mine_o + 16 * i)];
                x[i] = x_part[k * STRIDE + mine_c + 16 * i];
            }
            [[unroll]] for (int i = 0; i < 16; i++) sum[i] += w[i / 4] * x[i % 4];
        }
        barrier();
    }
    for (int i = 0; i < 16; i++) {
        int o = mine_o + 16 * (i / 4), line = mine_c + 16 * (i % 4), u = u0 + o / ELEMS, e = o % ELEMS;
        int at = IS_FLOAT ? 8 * u + e : unit_first(u) + (e < 16 ? e : unit_distance() + e - 16);
        if (u * ELEMS < a.n_in && at < a.n_in && column_of(line) >= 0) put(at, line, sum[i]);
    }
}
