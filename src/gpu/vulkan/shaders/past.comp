// past.comp: attention over earlier residuals: a workgroup computes one column.
#version 460
#include "vulkan.glsl"
#include "block.glsl"

PUSHED(vulkan_past_args)

shared float weight[32]; // GPU_MAX_PASTS

void main() {
    int c = int(gl_WorkGroupID.x), thread = int(gl_LocalInvocationID.x), step = int(gl_WorkGroupSize.x);
    uint64_t streams = at4(a.streams, int64_t(c) * a.lds);
    for (int k = 0; k <= a.n_past; k++) {
        float squares = 0, sum = 0;
        for (int i = thread; i < a.n; i += step) {
            float s = load_float(at4(streams, int64_t(k) * a.n + i));
            squares += s * s;
            sum += s * load_float(at4(a.score, i));
        }
        squares = block_sum(squares);
        sum = block_sum(sum);
        if (thread == 0) weight[k] = sum / sqrt(squares / float(a.n) + a.eps);
    }
    barrier();
    float most = -INF, total = 0;
    for (int k = 0; k <= a.n_past; k++) most = max(most, weight[k]);
    for (int k = 0; k <= a.n_past; k++) total += exp(weight[k] - most);
    for (int i = thread; i < a.n; i += step) {
        float y = 0;
        for (int k = 0; k <= a.n_past; k++)
            y += exp(weight[k] - most) / total * load_float(at4(streams, int64_t(k) * a.n + i));
        store_float(at4(a.x, int64_t(c) * a.ldx + i), y);
        if (a.begins != 0)
            store_word(at4(streams, int64_t(a.n_past + 1) * a.n + i), load_word(at4(streams, i)));
    }
}
