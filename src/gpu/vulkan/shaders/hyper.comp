// hyper.comp: hyper-connections: a thread computes one element of all streams. With HYPER_MIXES as
// WAY every workgroup computes the matrix that mixes the streams (Sinkhorn and Knopp 1967), with a
// thread for each weight.
#version 460
#include "vulkan.glsl"
#include "math.glsl"

PUSHED(vulkan_hyper_args)

const int MOST = 8; // GPU_MAX_STREAMS

shared float mix[2][MOST * MOST]; // rounds alternate between them

float stream_weight(int c, int k) {
    float weight = load_float(at4(a.weights, int64_t(c) * a.ldw + k));
    return a.factor * sigmoid(weight * load_float(a.scale) + load_float(at4(a.base, k))) + a.eps;
}

// Element i of the matrix before normalization.
float mix_score(int c, int i) {
    float number = load_float(at4(a.weights, int64_t(c) * a.ldw + a.n_stream + i));
    return number * load_float(at4(a.scale, 1)) + load_float(at4(a.base, a.n_stream + i));
}

// Computes the matrix in mix[0]; row j has the weights of source stream j.
void find_mix(int c) {
    int n = a.n_stream, t = int(gl_LocalInvocationID.x), i = t < n * n ? t : 0;
    int from = i / n, to = i % n;
    float top = -INF, sum = 0;
    for (int k = 0; k < n; k++) top = max(top, mix_score(c, from * n + k));
    for (int k = 0; k < n; k++) sum += exp(mix_score(c, from * n + k) - top);
    float w = divide(exp(mix_score(c, i) - top), sum) + a.mix_eps;
    for (int turn = 1; turn < 2 * a.rounds; turn++) { // columns, then rows, columns ...
        bool of_column = turn % 2 == 1;
        if (t < n * n) mix[turn % 2][t] = w;
        barrier();
        sum = a.mix_eps;
        for (int k = 0; k < n; k++) sum += mix[turn % 2][of_column ? k * n + to : from * n + k];
        w = divide(w, sum);
    }
    // mix[0] was last read before the last barrier
    if (t < n * n) mix[0][t] = w;
    barrier();
}

void main() {
    int c = int(gl_WorkGroupID.y), i = int(gl_GlobalInvocationID.x);
    if (WAY == HYPER_MIXES) find_mix(c);
    if (i >= a.n) return;
    uint64_t stream = at4(a.streams, int64_t(c) * a.lds + i), x = at4(a.x, int64_t(c) * a.ldx + i);
    float y = WAY != 0 ? load_float(x) : 0.0, sum = 0, was[MOST];
    [[unroll]] for (int k = 0; k < MOST && WAY == HYPER_MIXES; k++)
        was[k] = k < a.n_stream ? load_float(at4(stream, int64_t(k) * a.n)) : 0.0;
    for (int k = 0; k < a.n_stream; k++) {
        uint64_t at = at4(stream, int64_t(k) * a.n);
        float w = stream_weight(c, k), mixed = 0;
        if (WAY == 0) {
            sum += w * load_float(at);
        } else if (WAY == HYPER_ADDS) {
            store_float(at, load_float(at) + w * y);
        } else {
            [[unroll]] for (int j = 0; j < MOST; j++)
                if (j < a.n_stream) mixed += mix[0][j * a.n_stream + k] * was[j];
            store_float(at, mixed + w * y);
        }
    }
    if (WAY == 0) store_float(x, sum);
}
