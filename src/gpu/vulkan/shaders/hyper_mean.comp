// hyper_mean.comp: gated hyper-connections: a thread computes one element of the mean of all streams.
#version 460
#include "vulkan.glsl"
#include "math.glsl"

PUSHED(vulkan_hyper_mean_args)

void main() {
    int c = int(gl_WorkGroupID.y), i = int(gl_GlobalInvocationID.x);
    if (i >= a.n) return;
    uint64_t y = at4(a.y, int64_t(c) * a.ldy + i), gate = at4(a.gate, int64_t(c) * a.ldg + i);
    float sum = 0;
    for (int k = 0; k < a.n_stream; k++) {
        int64_t at = int64_t(k) * a.n;
        sum += load_float(at4(y, at)) * sigmoid(load_float(at4(gate, at)));
    }
    store_float(at4(a.x, int64_t(c) * a.ldx + i), sum / float(a.n_stream));
}
