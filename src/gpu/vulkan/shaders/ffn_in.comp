// ffn_in.comp: h = f(gate x) * (up x), for all neurons of the device or for a list. A subgroup computes
// a neuron at a time. Dense: it reads both rows at once. Otherwise (FFN_SKIP) it reads the row of gate
// first, and the row of up only when the activation of some column is not zero.
//
// WAY: bits of args.h. FFN_QUANTIZES: a workgroup computes a group of 32 neurons and quantizes them.
#version 460
#include "vulkan.glsl"
#include "formats.glsl"
#include "dot.glsl"
#include "math.glsl"

STORED(vulkan_ffn_args)
#define a a_stored

const bool QUANTIZES = (WAY & FFN_QUANTIZES) != 0, HAS_GATE = (WAY & FFN_GATE) != 0;
const bool HAS_UP = (WAY & FFN_UP) != 0, GIVEN = (WAY & FFN_GIVEN) != 0;

shared float group_h[8][32];

float activated(int neuron, float v) {
    float y = activation(a.f, a.threshold, v);
    float w = a.cut_weight != 0 ? load_float(at4(a.cut_weight, neuron)) : 1.0;
    return abs(y) * w <= a.cut ? 0.0 : y;
}

sums rows_of(uint64_t w0, uint64_t w1, int neuron, int c0) {
    uint64_t at = uint64_t(neuron) * a.row_bytes;
    return dot_rows(w0 + at, w1 + at, a.n_in, at4(a.x, int64_t(c0) * a.ldx), a.ldx,
                    a.q8 + uint64_t(c0) * q8_bytes(a.n_in), a.n_cols - c0);
}

bool selects(int c, int neuron) {
    return is_selected(a.bitmap, a.n_words, c, neuron);
}

// The neuron of item i for columns [c0, c0 + COLS). False: h must not be written, since it already
// holds the zeros of these activations. Sets `reads` when it reads the row of up.
bool neuron_of(int i, int c0, out vec4 v, inout bool reads) {
    int neuron = a.list != 0 ? load_int(at4(a.list, i)) : i;
    int n_cols = min(a.n_cols - c0, int(COLS));
    float gate_bias = a.gate_bias != 0 ? load_float(at4(a.gate_bias, neuron)) : 0.0;
    float up_bias = a.up_bias != 0 ? load_float(at4(a.up_bias, neuron)) : 0.0;
    bool gated = HAS_GATE || GIVEN;
    v = vec4(0);
    if (HAS_GATE && HAS_UP && (a.flags & FFN_SKIP) == 0) {
        sums s = rows_of(a.gate, a.up, neuron, c0);
        for (int c = 0; c < int(COLS); c++)
            v[c] = hidden(a.f, activated(neuron, s.of[c] + gate_bias), s.of[4 + c] + up_bias,
                          a.cut_down);
        reads = true;
        return true;
    }
    if (gated) {
        bool any = a.cut < 0.0;
        if (HAS_GATE) {
            sums s = rows_of(a.gate, a.gate, neuron, c0);
            for (int c = 0; c < n_cols; c++) v[c] = activated(neuron, s.of[c] + gate_bias);
        } else {
            for (int c = 0; c < n_cols; c++)
                v[c] = load_float(at4(a.values, int64_t(c0 + c) * a.ldv + i));
        }
        for (int c = 0; c < n_cols; c++) {
            if (!selects(c0 + c, neuron)) v[c] = 0.0;
            any = any || v[c] != 0.0;
        }
        if (!any) return !GIVEN;
    }
    if (!HAS_UP) return true;
    sums s = rows_of(a.up, a.up, neuron, c0);
    reads = true;
    for (int c = 0; c < n_cols; c++) {
        float up = s.of[c] + up_bias;
        if (gated) v[c] = hidden(a.f, v[c], up, a.cut_down);
        else if (selects(c0 + c, neuron)) v[c] = activated(neuron, up);
    }
    return true;
}

void main() {
    int count = a.count != 0 ? load_int(a.count) : a.n, before = 32 * int(gl_WorkGroupID.x);
    int per_group = int(gl_NumSubgroups);
    int first = QUANTIZES ? before : int(gl_WorkGroupID.x) * per_group;
    int end = QUANTIZES ? before + 32 : count;
    int step = QUANTIZES ? per_group : int(gl_NumWorkGroups.x) * per_group;
    int n_read = 0; // rows of up read
    for (int i = first + int(gl_SubgroupID); i < end; i += step) {
        bool reads = false;
        for (int c0 = 0; c0 < a.n_cols; c0 += int(COLS)) {
            vec4 v;
            bool changes = neuron_of(i, c0, v, reads);
            for (int c = 0; c < int(COLS) && c0 + c < a.n_cols && LANE == 0; c++) {
                if (changes) store_float(at4(a.h, int64_t(c0 + c) * a.ldh + i), v[c]);
                if (QUANTIZES) group_h[c0 + c][i - before] = v[c];
            }
        }
        n_read += reads ? 1 : 0;
    }
    if (a.fired != 0 && n_read > 0 && LANE == 0) count_at(a.fired, n_read);
    if (!QUANTIZES) return;
    barrier();
    // Eight lanes of the workgroup have a column.
    int thread = int(gl_LocalInvocationID.x), k = 4 * (thread % 8);
    for (int c = thread / 8; c - thread / 8 < a.n_cols; c += int(gl_WorkGroupSize.x) / 8) {
        bool valid = c < a.n_cols;
        vec4 v = vec4(0);
        for (int e = 0; e < 4 && valid; e++) v[e] = group_h[c][k + e];
        quantize_group(v, before + k, valid, a.n, a.h_q8 + uint64_t(c) * q8_bytes(a.n));
    }
}
