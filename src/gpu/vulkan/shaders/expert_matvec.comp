// expert_matvec.comp: the product of every pair's column with the matrix of its expert; a subgroup computes
// two rows at a time.
#version 460
#include "vulkan.glsl"
#include "formats.glsl"
#include "dot.glsl"
#include "choice.glsl"

PUSHED(vulkan_expert_matvec_args)

void main() {
    int step = ROWS * int(gl_NumSubgroups * gl_NumWorkGroups.x);
    int first = ROWS * int(gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID);
    for (int pair = int(gl_WorkGroupID.y); pair < a.n_pairs; pair += int(gl_NumWorkGroups.y)) {
        uint expert = expert_of(a.choices, pair);
        bool own = expert < uint(a.n_own);
        uint64_t w = a.w + uint64_t(own ? expert : 0u) * uint64_t(a.n_out) * a.row_bytes;
        for (int r0 = first; r0 < a.n_out; r0 += step) {
            int r1 = min(r0 + 1, a.n_out - 1);
            sums s;
            if (own)
                s = dot_rows(w + uint64_t(r0) * a.row_bytes, w + uint64_t(r1) * a.row_bytes, a.n_in,
                             at4(a.x, int64_t(pair) * a.ldx), a.ldx,
                             a.q8 + uint64_t(pair) * q8_bytes(a.n_in), 1);
            for (int r = 0; LANE == 0 && r0 + r <= r1; r++) {
                int64_t at = int64_t(expert) * a.n_out + r0 + r;
                float v = own ? scaled(s.of[4 * r], a.scales, a.bias, 1.0, int(expert), at) : 0.0;
                store_float(at4(a.y, int64_t(pair) * a.ldy + r0 + r), v);
            }
        }
    }
}
