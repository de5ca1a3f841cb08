// mix.comp: several residual streams (AltUp): before a layer, or with MIX_CORRECTS after it. A thread
// computes one element of all streams; every workgroup computes the few coefficients.
#version 460
#include "vulkan.glsl"
#include "math.glsl"

PUSHED(vulkan_mix_args)

const int MOST = 8; // GPU_MAX_STREAMS

shared float weight[MOST * MOST];

void main() {
    int c = int(gl_WorkGroupID.y), i = int(gl_GlobalInvocationID.x);
    int n_weights = WAY == MIX_CORRECTS ? a.n_stream : a.n_stream * a.n_stream;
    for (int k = int(gl_LocalInvocationID.x); k < n_weights; k += int(gl_WorkGroupSize.x)) {
        float sum = 0;
        for (int b = 0; b < a.n_stream; b++)
            sum += load_float(at4(a.coefficients, k * a.n_stream + b)) *
                   tanh_of(load_float(at4(a.router, int64_t(c) * a.ldr + b)));
        weight[k] = sum;
    }
    barrier();
    if (i >= a.n) return;
    uint64_t to = at4(a.streams, int64_t(c) * a.lds + i), x = at4(a.x, int64_t(c) * a.ldx + i);
    float v[MOST];
    [[unroll]] for (int k = 0; k < MOST; k++)
        v[k] = k < a.n_stream ? load_float(at4(to, int64_t(k) * a.n)) : 0.0;
    float change = WAY == MIX_CORRECTS ? load_float(x) - v[0] : 0.0;
    [[unroll]] for (int k = 0; k < MOST; k++) {
        if (k >= a.n_stream) break;
        float sum = v[k];
        if (WAY == MIX_CORRECTS) {
            sum += (1.0 + weight[k]) * change;
        } else {
            [[unroll]] for (int b = 0; b < MOST; b++)
                if (b < a.n_stream) sum += weight[k * a.n_stream + b] * v[b];
        }
        store_float(at4(to, int64_t(k) * a.n), sum);
        if (k > 0) continue;
        store_float(x, sum);
        if (WAY == MIX_CORRECTS)
            store_float(at4(a.y, int64_t(c) * a.ldy + i), sum * load_float(at4(a.scale, i)));
    }
}
