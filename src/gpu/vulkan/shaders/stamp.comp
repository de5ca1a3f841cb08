// stamp.comp: the clock's ticks as nanoseconds, never 0.
#version 460
#include "vulkan.glsl"

PUSHED(vulkan_stamp_args)

void main() {
    if (gl_LocalInvocationID.x != 0) return;
    uint64_t ticks = a.period != 0 ? load_u64(a.ticks) : 0;
    uint64_t ns = (ticks >> 12) * a.period + ((ticks & 4095ul) * a.period >> 12);
    store_u64(a.ns, ns + 1ul);
}
