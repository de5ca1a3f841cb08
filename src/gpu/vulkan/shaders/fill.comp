// fill.comp: the bytes of a fill before the first whole word and behind the last one.
#version 460
#include "vulkan.glsl"

PUSHED(vulkan_fill_args)

void main() {
    uint i = gl_LocalInvocationID.x;
    for (int k = 0; k < 2; k++)
        if (i < a.n[k]) store_byte(a.at[k] + i, a.value);
}
