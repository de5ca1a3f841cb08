// hyper.comp: hyper-connections: a thread computes one element of all streams.
#version 460
#include "vulkan.glsl"
#include "math.glsl"

PUSHED(vulkan_hyper_args)

void main() {
    int c = int(gl_WorkGroupID.y), i = int(gl_GlobalInvocationID.x);
    if (i >= a.n) return;
    uint64_t stream = at4(a.streams, int64_t(c) * a.lds + i), x = at4(a.x, int64_t(c) * a.ldx + i);
    float scale = load_float(a.scale), y = a.adds != 0 ? load_float(x) : 0.0, sum = 0;
    for (int k = 0; k < a.n_stream; k++) {
        uint64_t at = at4(stream, int64_t(k) * a.n);
        float weight = load_float(at4(a.weights, int64_t(c) * a.ldw + k));
        float w = a.factor * sigmoid(weight * scale + load_float(at4(a.base, k))) + a.eps;
        if (a.adds != 0) store_float(at, load_float(at) + w * y);
        else sum += w * load_float(at);
    }
    if (a.adds == 0) store_float(x, sum);
}
