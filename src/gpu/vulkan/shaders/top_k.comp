// top_k.comp: Gaussian top-k, in place, one workgroup per column.
#version 460
#include "vulkan.glsl"
#include "block.glsl"
#include "math.glsl"

PUSHED(vulkan_top_k_args)

// The mean of the column's values, or of the squares of their differences from `mean`.
float mean_of(uint64_t x, bool squares, float mean) {
    float sum = 0;
    for (int i = int(gl_LocalInvocationID.x); i < a.n; i += int(gl_WorkGroupSize.x)) {
        float v = load_float(at4(x, i)) - mean;
        sum += squares ? v * v : v;
    }
    return block_sum(sum) / float(a.n);
}

void main() {
    uint64_t x = at4(a.x, int64_t(gl_WorkGroupID.x) * a.ldx);
    float mean = mean_of(x, false, 0.0);
    float cutoff = mean + a.deviations * sqrt(mean_of(x, true, mean));
    for (int i = int(gl_LocalInvocationID.x); i < a.n; i += int(gl_WorkGroupSize.x)) {
        float v = load_float(at4(x, i));
        store_float(at4(x, i), activation(a.f, a.threshold, v < cutoff ? 0.0 : v - cutoff));
    }
}
