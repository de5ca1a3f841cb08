// down.glsl: sums of rows with factors, for matrices with one row per neuron. A workgroup has four
// groups of 32 threads. A thread sums one unit of each row; a group takes every fourth item. The
// shader defines before it
//     int row_of(int item);                  the item's row
//     float factor_of(int item, int c);      of column c; rows whose factors are zero are not read
//     void put(int i, int c, float v);       element i of the sum
// and has in `a` w, row_bytes and n_in.

const int GROUPS = 4, SIDE = 32; // of a workgroup; threads of a group
const int ELEMS = IS_FLOAT ? 8 : 32;
const int AHEAD = COLS == 1 ? 4 : 2; // rows that a thread loads before it uses one

float sum[32 * COLS]; // column c: sum[32 * c + e]
shared float others[(GROUPS - 1) * 32 * SIDE * COLS];

void add_values(float h[2], float v, int e) {
    [[unroll]] for (int c = 0; c < int(COLS); c++) // a factor of 0 adds nothing, even to a NaN
        sum[32 * c + e] += h[c] != 0.0 ? h[c] * v : 0.0;
}

// Items first, first + step, .. below count, of columns [c0, c0 + COLS) below n_cols.
void sum_rows(int stretch, int first, int step, int count, int c0, int n_cols) {
    int t = int(gl_LocalInvocationID.x), group = t / SIDE, lane = t % SIDE;
    int n_units = (a.n_in + ELEMS - 1) / ELEMS, unit_at = stretch * SIDE + lane;
    int used = min(unit_at, n_units - 1);
    [[unroll]] for (int i = 0; i < 32 * int(COLS); i++) sum[i] = 0;
    for (int i = first + group * step; i < count; i += GROUPS * AHEAD * step) {
        float h[AHEAD][2];
        uint64_t row[AHEAD], any = 0;
        bool takes[AHEAD];
        [[unroll]] for (int j = 0; j < AHEAD; j++) {
            int item = i + j * GROUPS * step;
            takes[j] = false;
            [[unroll]] for (int c = 0; c < int(COLS); c++) {
                h[j][c] = item < count && c0 + c < n_cols ? factor_of(item, c0 + c) : 0.0;
                takes[j] = takes[j] || h[j][c] != 0.0;
            }
            row[j] = a.w + uint64_t(takes[j] ? row_of(item) : 0) * a.row_bytes;
            if (takes[j]) any = row[j];
        }
        if (any == 0) continue;
        [[unroll]] for (int j = 0; j < AHEAD; j++)
            if (!takes[j]) row[j] = any; // again a row that is read anyway: a cache hit
        if (IS_FLOAT) {
            vec4 low[AHEAD], high[AHEAD];
            [[unroll]] for (int j = 0; j < AHEAD; j++) load_floats(row[j], used, low[j], high[j]);
            [[unroll]] for (int j = 0; j < AHEAD; j++) {
                if (!takes[j]) continue;
                [[unroll]] for (int e = 0; e < 4; e++) {
                    add_values(h[j], low[j][e], e);
                    add_values(h[j], high[j][e], 4 + e);
                }
            }
        } else {
            unit u[AHEAD];
            [[unroll]] for (int j = 0; j < AHEAD; j++) u[j] = load_unit(row[j], a.n_in, used);
            [[unroll]] for (int j = 0; j < AHEAD; j++) {
                if (!takes[j]) continue;
                [[unroll]] for (int e = 0; e < 32; e++) {
                    int q = int(u[j].q[e / 4] << (24 - 8 * (e % 4))) >> 24;
                    add_values(h[j], u[j].s[e / 16] * float(q) - u[j].m[e / 16], e);
                }
            }
        }
    }
    barrier(); // earlier sums have been read
    [[unroll]] for (int c = 0; c < int(COLS); c++)
        [[unroll]] for (int e = 0; e < ELEMS; e++)
            if (group > 0)
                others[(((group - 1) * int(COLS) + c) * 32 + e) * SIDE + lane] = sum[32 * c + e];
    barrier();
    if (group > 0 || unit_at >= n_units) return;
    [[unroll]] for (int c = 0; c < int(COLS); c++) {
        [[unroll]] for (int e = 0; e < ELEMS; e++) {
            float v = sum[32 * c + e];
            for (int g = 0; g < GROUPS - 1; g++) v += others[((g * int(COLS) + c) * 32 + e) * SIDE + lane];
            int at = IS_FLOAT ? 8 * unit_at + e
                              : unit_first(unit_at) + (e < 16 ? e : unit_distance() + e - 16);
            if (c0 + c < n_cols && at < a.n_in) put(at, c0 + c, v);
        }
    }
}
