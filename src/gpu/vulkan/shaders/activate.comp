// activate.comp: activations of columns, with their int8 form; a thread has four elements.
#version 460
#include "vulkan.glsl"
#include "math.glsl"

PUSHED(vulkan_activate_args)

float element(int c, int i) {
    float gate = load_float(at4(a.gate, int64_t(c) * a.ldg + i));
    float up = a.up != 0 ? load_float(at4(a.up, int64_t(c) * a.ldu + i)) : 0.0;
    up = clamp_up(a.clamp, a.clamp_how, a.clamp_soft, up);
    float v = a.given != 0 ? gate
                           : clamp_activation(a.clamp, a.clamp_how, a.clamp_soft, a.f, a.threshold, gate);
    float size = abs(v) * (a.cut_weight != 0 ? load_float(at4(a.cut_weight, i)) : 1.0);
    if (size <= a.cut || !is_selected(a.bitmap, a.n_words, c, a.first_bit + i)) v = 0.0;
    if (a.up != 0) v = hidden(a.f, v, up, a.cut_down);
    return a.divisors != 0 ? v / load_float(at4(a.divisors, i)) : v;
}

void main() {
    int i = 4 * int(gl_GlobalInvocationID.x);
    for (int c = int(gl_WorkGroupID.y); c < a.n_cols; c += int(gl_NumWorkGroups.y)) {
        vec4 v = vec4(0);
        for (int k = 0; k < 4; k++) {
            if (i + k >= a.n) continue;
            v[k] = element(c, i + k);
            store_float(at4(a.y, int64_t(c) * a.ldy + i + k), v[k]);
        }
        if (a.q8 != 0)
            quantize_group(v, i, i < a.n, a.n, a.q8 + uint64_t(c) * q8_bytes(a.n));
    }
}
