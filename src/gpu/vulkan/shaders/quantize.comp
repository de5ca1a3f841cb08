// quantize.comp: the int8 form of columns; a thread has four elements.
#version 460
#include "vulkan.glsl"

PUSHED(vulkan_quantize_args)

void main() {
    int n_cols = a.list != 0 ? load_int(a.n_listed) : a.n_cols;
    for (int j = int(gl_WorkGroupID.y); j < n_cols; j += int(gl_NumWorkGroups.y)) {
        int64_t c = a.list != 0 ? load_int(at4(a.list, j)) : j;
        int i = 4 * int(gl_GlobalInvocationID.x);
        vec4 v = i < a.n ? load_vec4(at4(a.x, c * a.ldx + i)) : vec4(0);
        quantize_group(v, i, i < a.n, a.n, a.q8 + uint64_t(c) * q8_bytes(a.n));
    }
}
