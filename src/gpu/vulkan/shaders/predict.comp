// predict.comp: a predictor: a workgroup computes the scores of 32 neurons. They give one word of
// each column's bitmap; the workgroup also writes it to a message. WAY 0: rows of weights;
// quantized ones are multiplied with the int8 form of the columns, which the workgroup makes in
// shared memory. PREDICT_SIGNS: rows of signs.
#version 460
#include "vulkan.glsl"
#include "formats.glsl"

PUSHED(vulkan_predict_args)

// Words of one column of GPU_MAX_RANK elements, or of COLS shorter ones.
const int MOST = (8192 + 8192 / 32 * 4 + 8192 / 16 * 4) / 4;
#include "columns.glsl"
#include "dot.glsl"

const bool SIGNS = (WAY & PREDICT_SIGNS) != 0;

shared uint words[4]; // one per column

void quantize_columns(int c0) {
    for (int c = 0; c < int(COLS) && c0 + c < a.n_cols; c++) {
        for (int base = 0; base < a.n_in; base += 4 * int(gl_WorkGroupSize.x)) {
            int i = base + 4 * int(gl_LocalInvocationID.x);
            vec4 v = vec4(0);
            if (i < a.n_in) v = load_vec4(at4(a.x, int64_t(c0 + c) * a.ldx + i));
            put_group(v, i, a.n_in, c);
        }
    }
}

// Twice the sum of x where the bit is set, minus the sum of x.
sums sign_rows(uint64_t row0, uint64_t row1, int c0) {
    sums s;
    for (int i = 0; i < ROWS * 4; i++) s.of[i] = 0;
    for (int i = LANE; 32 * i < a.n_in; i += LANES) {
        uint bits[ROWS] = uint[ROWS](load_word(at4(row0, i)), load_word(at4(row1, i)));
        [[unroll]] for (int c = 0; c < int(COLS); c++) {
            uint64_t column = a.q8 + uint64_t(min(c0 + c, a.n_cols - 1)) * q8_bytes(a.n_in);
            uint64_t sum = q8_sum(column, a.n_in);
            uvec4 low = load16(column + uint64_t(32 * i)), high = load16(column + uint64_t(32 * i + 16));
            float d = load_float(at4(q8_d(column, a.n_in), i));
            int total = load_int(at4(sum, 2 * i)) + load_int(at4(sum, 2 * i + 1));
            [[unroll]] for (int r = 0; r < ROWS; r++) {
                int part = 0;
                [[unroll]] for (int e = 0; e < 4; e++) {
                    part = dot4(spread_bits(bits[r] >> (4 * e)), low[e], part);
                    part = dot4(spread_bits(bits[r] >> (16 + 4 * e)), high[e], part);
                }
                s.of[4 * r + c] += d * float(2 * part - total);
            }
        }
    }
    for (int i = 0; i < ROWS * 4; i++) s.of[i] = subgroupAdd(s.of[i]);
    return s;
}

sums rows_of(int r0, int r1, int c0) {
    uint64_t row0 = a.w + uint64_t(r0) * a.row_bytes, row1 = a.w + uint64_t(r1) * a.row_bytes;
    if (SIGNS) return sign_rows(row0, row1, c0);
    return dot_rows(row0, row1, a.n_in, at4(a.x, int64_t(c0) * a.ldx), a.ldx, 0ul, a.n_cols - c0);
}

void main() {
    int t = int(gl_LocalInvocationID.x), first = 32 * int(gl_WorkGroupID.x);
    int n_words = (a.n_out + 31) / 32;
    bool sends = a.epoch != 0 && load_u64(a.epoch) != 0;
    for (int c0 = 0; c0 < a.n_cols; c0 += int(COLS)) {
        barrier(); // the previous columns have been read
        if (t < 4) words[t] = 0;
        if (!SIGNS && !IS_FLOAT) quantize_columns(c0);
        barrier();
        for (int r = ROWS * int(gl_SubgroupID); r < 32 && first + r < a.n_out;
             r += ROWS * int(gl_NumSubgroups)) {
            sums s = rows_of(first + r, min(first + r + 1, a.n_out - 1), c0);
            for (int k = 0; k < ROWS && first + r + k < a.n_out && LANE == 0; k++) {
                float bias = a.bias != 0 ? load_float(at4(a.bias, first + r + k)) : 0.0;
                for (int c = 0; c < int(COLS); c++) // NaN is selected
                    if (!(a.scale * s.of[4 * k + c] + bias < a.cut))
                        atomicOr(words[c], 1u << (r + k));
            }
        }
        barrier();
        if (t >= int(COLS) || c0 + t >= a.n_cols) continue;
        int64_t at = int64_t(c0 + t) * n_words + int64_t(gl_WorkGroupID.x);
        store_word(at4(a.bitmap, at), words[t]);
        if (sends) store_word(at4(a.host_bits, at), words[t]);
    }
}
