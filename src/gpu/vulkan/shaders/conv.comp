// conv.comp: the causal convolution of recurrent layers. A thread computes one channel: it processes a
// session's columns in order and keeps the last inputs in registers. Only the workgroups of a
// session's first column compute, because a program does not know where sessions begin.
#version 460
#include "vulkan.glsl"
#include "column.glsl"
#include "math.glsl"

PUSHED(vulkan_conv_args)

const int TAPS = 8; // GPU_MAX_TAPS

float inputs[TAPS]; // the last one is of the current column

// The last n_taps - 1 inputs of a channel.
void store_inputs(int i, uint64_t state) {
    [[unroll]] for (int j = 1; j < TAPS; j++) {
        int k = j - (TAPS - a.n_taps + 1);
        if (k >= 0) store_float(at4(state, a.at + int64_t(k) * a.n + i), inputs[j]);
    }
}

void run_channel(int c0, int i) {
    uint64_t from = column_state_from(a.cols, c0), before = column_state_before(a.cols, c0);
    uint64_t taps = i < a.part ? a.taps[0] : i < 2 * a.part ? a.taps[1] : a.taps[2];
    int skip = TAPS - a.n_taps, tap = i % a.part * a.n_taps;
    float w[TAPS], bias = a.bias != 0 ? load_float(at4(a.bias, i)) : 0.0;
    [[unroll]] for (int j = 0; j < TAPS; j++) {
        w[j] = j >= skip ? load_float(at4(taps, tap + j - skip)) : 0.0;
        inputs[j] = j > skip && from != 0
                        ? load_float(at4(from, a.at + int64_t(j - skip - 1) * a.n + i)) : 0.0;
    }
    for (int t = 0; t < column_run(a.cols, c0); t++) {
        int64_t c = c0 + t;
        if (t == column_n_before(a.cols, c0) && before != 0) store_inputs(i, before);
        [[unroll]] for (int j = 0; j < TAPS - 1; j++) inputs[j] = j >= skip ? inputs[j + 1] : 0.0;
        inputs[TAPS - 1] = load_float(at4(a.x, c * a.ldx + i)) *
                           (a.by != 0 ? load_float(at4(a.by, c * a.ldb + i)) : 1.0);
        float y = bias;
        [[unroll]] for (int j = 0; j < TAPS; j++) y += w[j] * inputs[j];
        y *= a.gate != 0 ? load_float(at4(a.gate, c * a.ldg + i)) : sigmoid(y);
        store_float(at4(a.y, c * a.ldy + i), y);
    }
    store_inputs(i, column_state_to(a.cols, c0));
}

void main() {
    int c0 = int(gl_WorkGroupID.y), step = int(gl_WorkGroupSize.x * gl_NumWorkGroups.x);
    if (column_at(a.cols, c0) != 0) return;
    for (int i = int(gl_GlobalInvocationID.x); i < a.n; i += step) run_channel(c0, i);
}
