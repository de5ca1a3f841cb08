// quantize.comp: quantizes columns, or several inputs of each column, to int8; a thread has four
// elements of an input.
#version 460
#include "vulkan.glsl"

PUSHED(vulkan_quantize_args)

void main() {
    int n_cols = a.list != 0 ? load_int(a.n_listed) : a.n_cols;
    uint64_t x = at4(a.x, int64_t(gl_WorkGroupID.z) * a.step);
    uint64_t q8 = a.q8 + uint64_t(gl_WorkGroupID.z) * uint64_t(n_cols) * q8_bytes(a.n);
    for (int j = int(gl_WorkGroupID.y); j < n_cols; j += int(gl_NumWorkGroups.y)) {
        int64_t c = a.list != 0 ? load_int(at4(a.list, j)) : j;
        int i = 4 * int(gl_GlobalInvocationID.x);
        vec4 v = i < a.n ? load_vec4(at4(x, c * a.ldx + i)) : vec4(0);
        quantize_group(v, i, i < a.n, a.n, q8 + uint64_t(c) * q8_bytes(a.n));
    }
}
