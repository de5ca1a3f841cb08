// rope_angles.comp: cos and sin of the angles of a ubatch.
#version 460
#include "vulkan.glsl"
#include "math.glsl"
#include "column.glsl"

PUSHED(vulkan_angles_args)

void main() {
    int c = int(gl_WorkGroupID.y), i = int(gl_GlobalInvocationID.x);
    if (i >= a.n_half) return;
    bool far = a.inv_freq_long != 0 && column_n_ctx(a.cols, c) > a.long_from;
    float f = load_float(at4(far ? a.inv_freq_long : a.inv_freq, i));
    vec2 v = a.scale * cos_sin(column_pos(a.cols, c), f);
    uint64_t cs = at4(a.cs, 2 * (int64_t(c) * a.n_half + i));
    store_float(cs, v.x);
    store_float(cs + 4, v.y);
}
