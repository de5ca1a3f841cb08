// matvec.comp: y = W x for few columns: every weight is read once for COLS columns. A subgroup
// computes two rows at a time; workgroups that are not enough for all rows loop.
#version 460
#include "vulkan.glsl"
#include "formats.glsl"
#include "dot.glsl"

PUSHED(vulkan_product_args)

void main() {
    int step = ROWS * int(gl_NumSubgroups * gl_NumWorkGroups.x);
    int first = ROWS * int(gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID);
    for (int r0 = first; r0 < a.n_out; r0 += step) {
        int r1 = min(r0 + 1, a.n_out - 1); // a last odd row is computed twice and stored once
        for (int c0 = 0; c0 < a.n_cols; c0 += int(COLS)) {
            sums s = dot_rows(a.w + uint64_t(r0) * a.row_bytes, a.w + uint64_t(r1) * a.row_bytes,
                              a.n_in, at4(a.x, int64_t(c0) * a.ldx), a.ldx,
                              a.q8 + uint64_t(c0) * q8_bytes(a.n_in), a.n_cols - c0);
            for (int r = 0; LANE == 0 && r0 + r <= r1; r++) {
                float bias = a.bias != 0 ? load_float(at4(a.bias, r0 + r)) : 0.0;
                for (int c = 0; c < int(COLS) && c0 + c < a.n_cols; c++) {
                    uint64_t y = at4(a.y, int64_t(c0 + c) * a.ldy + r0 + r);
                    float v = s.of[4 * r + c];
                    v = (a.flags & PRODUCT_SCALE_LAST) != 0 ? a.scale * (v + bias)
                                                            : a.scale * v + bias;
                    if ((a.flags & PRODUCT_ADD) != 0) v += load_float(y);
                    if ((a.flags & PRODUCT_RELU) != 0 && v < 0.0) v = 0.0;
                    store_float(y, v);
                }
            }
        }
    }
}
