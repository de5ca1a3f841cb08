// merge.comp: a workgroup merges the streams of a column: the mean of stream 0 and of the others,
// rescaled to its norm.
#version 460
#include "vulkan.glsl"
#include "block.glsl"

PUSHED(vulkan_merge_args)

float magnitude(uint64_t x) {
    float sum = 0;
    for (int i = int(gl_LocalInvocationID.x); i < a.n; i += int(gl_WorkGroupSize.x)) {
        float v = load_float(at4(x, i));
        sum += v * v;
    }
    return sqrt(block_sum(sum) / float(a.n));
}

void main() {
    const float least = 3.1622777e-3; // sqrt(1e-5): a vector near zero stays near zero
    int c = int(gl_WorkGroupID.x);
    uint64_t first = at4(a.streams, int64_t(c) * a.lds), others = at4(a.others, int64_t(c) * a.ldo);
    float want = magnitude(first), factor[8]; // GPU_MAX_STREAMS
    for (int k = 1; k < a.n_stream; k++)
        factor[k] = want / max(magnitude(at4(others, int64_t(k - 1) * a.n)), least);
    for (int i = int(gl_LocalInvocationID.x); i < a.n; i += int(gl_WorkGroupSize.x)) {
        float sum = load_float(at4(first, i));
        for (int k = 1; k < a.n_stream; k++)
            sum += factor[k] * load_float(at4(others, int64_t(k - 1) * a.n + i));
        store_float(at4(a.x, int64_t(c) * a.ldx + i), sum / float(a.n_stream));
    }
}
