// heads.comp: products with one matrix per head (MLA). The input of a head is short, and not aligned:
// a workgroup copies it to shared memory, as floats or in the int8 form. A subgroup computes two rows
// at a time.
#version 460
#include "vulkan.glsl"
#include "formats.glsl"

PUSHED(vulkan_heads_args)

const int LONGEST = 576; // GPU_MAX_LATENT
const int MOST = 200 * int(COLS); // q8_bytes(LONGEST) / 4
#include "columns.glsl"

shared float x_words[LONGEST * COLS];

#define SHARED_FLOATS
vec4 column_four(uint64_t column, int k, int n) { // n: zeros from there on
    int i = int(column) / 4 + k;
    vec4 v = vec4(0);
    for (int e = 0; e < 4; e++)
        if (k + e < n) v[e] = x_words[i + e];
    return v;
}
#include "dot.glsl"

void copy_columns(int head, int c0) {
    for (int c = 0; c < int(COLS) && c0 + c < a.n_cols; c++) {
        uint64_t x = at4(a.x, int64_t(c0 + c) * a.ldx + head * a.x_stride);
        for (int base = 0; base < a.n_in; base += 4 * int(gl_WorkGroupSize.x)) {
            int i = base + 4 * int(gl_LocalInvocationID.x);
            vec4 v = vec4(0);
            for (int e = 0; e < 4; e++)
                if (i + e < a.n_in) v[e] = load_float(at4(x, i + e));
            if (IS_FLOAT) {
                for (int e = 0; e < 4; e++)
                    if (i + e < a.n_in) x_words[LONGEST * c + i + e] = v[e];
            } else {
                put_group(v, i, a.n_in, c);
            }
        }
    }
}

void main() {
    int step = ROWS * int(gl_NumSubgroups * gl_NumWorkGroups.x), head = int(gl_WorkGroupID.y);
    int first = ROWS * int(gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID);
    uint64_t w = a.w + uint64_t(head) * uint64_t(a.n_rows) * a.row_bytes;
    for (int c0 = 0; c0 < a.n_cols; c0 += int(COLS)) {
        barrier(); // the previous columns have been read
        copy_columns(head, c0);
        barrier();
        for (int r0 = first; r0 < a.n_rows; r0 += step) {
            int r1 = min(r0 + 1, a.n_rows - 1);
            sums s = dot_rows(w + uint64_t(r0) * a.row_bytes, w + uint64_t(r1) * a.row_bytes, a.n_in,
                              0ul, LONGEST, 0ul, a.n_cols - c0);
            for (int r = 0; LANE == 0 && r0 + r <= r1; r++)
                for (int c = 0; c < int(COLS) && c0 + c < a.n_cols; c++)
                    store_float(at4(a.y, int64_t(c0 + c) * a.ldy + head * a.y_stride + r0 + r),
                                a.scale * s.of[4 * r + c]);
        }
    }
}
