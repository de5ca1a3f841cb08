// expert_sum.comp: a column's sum over its experts, and the shared expert.
#version 460
#include "vulkan.glsl"
#include "choice.glsl"

PUSHED(vulkan_expert_sum_args)

void main() {
    int i = int(gl_GlobalInvocationID.x);
    for (int c = int(gl_WorkGroupID.y); c < a.n_cols; c += int(gl_NumWorkGroups.y)) {
        float sum = 0;
        int own = 0;
        for (int k = 0; k < a.n_used; k++) {
            int64_t pair = int64_t(c) * a.n_used + k;
            if (expert_of(a.choices, pair) >= uint(a.n_own)) continue;
            float weight = (a.flags & SUM_WEIGHED) != 0 ? 1.0 : weight_of(a.choices, pair);
            if (i < a.n) sum += weight * load_float(at4(a.x, pair * a.ldx + i));
            own++;
        }
        if (i == 0 && a.used != 0 && own > 0) count_at(a.used, own);
        if (i >= a.n) continue;
        if (a.shared_x != 0) {
            float v = load_float(at4(a.shared_x, int64_t(c) * a.lds + i));
            if (a.shared_score != 0)
                v /= 1.0 + exp(-load_float(at4(a.shared_score, int64_t(c) * a.ld_score)));
            sum += v;
        }
        uint64_t y = at4(a.y, int64_t(c) * a.ldy + i);
        store_float(y, (a.flags & SUM_SET) != 0 ? a.scale * sum : load_float(y) + a.scale * sum);
    }
}
