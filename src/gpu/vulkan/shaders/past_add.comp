// past_add.comp: adds to the newest residual, or begins it: a thread computes one element.
#version 460
#include "vulkan.glsl"

PUSHED(vulkan_past_args)

void main() {
    int c = int(gl_WorkGroupID.y), i = int(gl_GlobalInvocationID.x);
    if (i >= a.n) return;
    uint64_t stream = at4(a.streams, int64_t(c) * a.lds + i);
    float x = load_float(at4(a.x, int64_t(c) * a.ldx + i));
    store_float(stream, a.begins != 0 ? x : load_float(stream) + x);
}
