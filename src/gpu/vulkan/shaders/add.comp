// add.comp: y += x, and to the vectors after y.
#version 460
#include "vulkan.glsl"

PUSHED(vulkan_add_args)

void main() {
    int i = int(gl_GlobalInvocationID.x);
    for (int c = int(gl_WorkGroupID.y); c < a.n_cols && i < a.n; c += int(gl_NumWorkGroups.y)) {
        float x = load_float(at4(a.x, int64_t(c) * a.ldx + i));
        for (int k = 0; k <= a.n_more; k++) {
            uint64_t y = at4(a.y, int64_t(c) * a.ldy + int64_t(k) * a.step + i);
            store_float(y, load_float(y) + x);
        }
    }
}
