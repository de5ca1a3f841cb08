// softcap.comp: y = cap * tanh(y / cap).
#version 460
#include "vulkan.glsl"
#include "math.glsl"

PUSHED(vulkan_softcap_args)

void main() {
    int i = int(gl_GlobalInvocationID.x);
    for (int c = int(gl_WorkGroupID.y); c < a.n_cols && i < a.n; c += int(gl_NumWorkGroups.y)) {
        uint64_t y = at4(a.y, int64_t(c) * a.ldy + i);
        store_float(y, a.cap * tanh_of(load_float(y) / a.cap));
    }
}
