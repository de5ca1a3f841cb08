// dot.glsl: products of up to two rows with up to four columns by one subgroup: the inner loop of
// all matrix-vector shaders. Lanes read neighbouring units of a row, 16 bytes each. The columns are in
// device memory, unless the shader defines SHARED_COLUMNS and the first three functions below, for their
// int8 form, or SHARED_FLOATS and the fourth.

const int ROWS = 2; // of a subgroup at a time

#ifndef SHARED_COLUMNS
uvec4 column_quants(uint64_t column, int k) { return load16(column + uint64_t(k)); }
float column_d(uint64_t column, int n, int k) { return load_float(at4(q8_d(column, n), k / 32)); }
int column_sum(uint64_t column, int n, int k) { return load_int(at4(q8_sum(column, n), k / 16)); }
#endif
#ifndef SHARED_FLOATS
vec4 column_four(uint64_t column, int k, int n) { return load_four(column, k, n); }
#endif

struct sums {
    float of[ROWS * 4]; // row r, column c: of[4 * r + c]
};

// The sums over n elements, in all lanes, of rows row0 and row1 with columns [0, COLS); columns from
// n_cols on repeat the last one. Float weights read x, quantized ones q8 (columns q8_bytes(n) apart).
sums dot_rows(uint64_t row0, uint64_t row1, int n, uint64_t x, int ldx, uint64_t q8, int n_cols) {
    sums s;
    for (int i = 0; i < ROWS * 4; i++) s.of[i] = 0;
    if (IS_FLOAT) {
        for (int i = LANE; 8 * i < n; i += LANES) {
            vec4 low[ROWS], high[ROWS];
            load_floats(row0, i, low[0], high[0]);
            load_floats(row1, i, low[1], high[1]);
            if (8 * i + 4 >= n) high[0] = high[1] = vec4(0); // may be behind the matrix, also NaN
            [[unroll]] for (int c = 0; c < int(COLS); c++) {
                uint64_t column = at4(x, int64_t(min(c, n_cols - 1)) * ldx);
                vec4 v = column_four(column, 8 * i, n), w = column_four(column, 8 * i + 4, n);
                [[unroll]] for (int r = 0; r < ROWS; r++)
                    s.of[4 * r + c] += dot(low[r], v) + dot(high[r], w);
            }
        }
    } else {
        for (int i = LANE; 32 * i < n; i += LANES) {
            unit u[ROWS];
            u[0] = load_unit(row0, n, i);
            u[1] = load_unit(row1, n, i);
            [[unroll]] for (int c = 0; c < int(COLS); c++) {
                uint64_t column = q8 + uint64_t(min(c, n_cols - 1)) * q8_bytes(n);
                [[unroll]] for (int g = 0; g < 2; g++) {
                    int k = unit_first(i) + g * unit_distance();
                    uvec4 v = column_quants(column, k);
                    float d = column_d(column, n, k), total = float(column_sum(column, n, k));
                    [[unroll]] for (int r = 0; r < ROWS; r++) {
                        int p = 0;
                        [[unroll]] for (int e = 0; e < 4; e++)
                            p = dot4(u[r].q[4 * g + e], v[e], p);
                        s.of[4 * r + c] += d * (u[r].s[g] * float(p) - u[r].m[g] * total);
                    }
                }
            }
        }
    }
    [[unroll]] for (int r = 0; r < ROWS; r++)
        [[unroll]] for (int c = 0; c < int(COLS); c++)
            s.of[4 * r + c] = subgroupAdd(s.of[4 * r + c]);
    return s;
}
