// expert_in.comp: a workgroup computes 32 neurons of a pair of a column and an expert, and their int8 form.
// A subgroup computes a neuron at a time. WAY: bits of args.h (FFN_GATE, FFN_UP, FFN_GIVEN).
#version 460
#include "vulkan.glsl"
#include "formats.glsl"
#include "dot.glsl"
#include "math.glsl"
#include "choice.glsl"

STORED(vulkan_expert_in_args)
#define a a_stored

const bool HAS_GATE = (WAY & FFN_GATE) != 0, HAS_UP = (WAY & FFN_UP) != 0;
const bool GIVEN = (WAY & FFN_GIVEN) != 0;

shared float group_h[32];

sums rows_of(uint64_t w0, uint64_t w1, int64_t row, int c) {
    uint64_t at = uint64_t(row) * a.row_bytes;
    return dot_rows(w0 + at, w1 + at, a.n_in, at4(a.x, int64_t(c) * a.ldx), a.ldx,
                    a.q8 + uint64_t(c) * q8_bytes(a.n_in), 1);
}

float neuron_of(int pair, int expert, int i, inout int n_read) {
    int64_t row = int64_t(expert) * a.step + i, at = int64_t(expert) * a.n + i;
    int c = pair / a.n_used;
    bool skips = (a.flags & EXPERT_SKIP) != 0;
    float weight = (a.flags & EXPERT_WEIGH) != 0 ? weight_of(a.choices, pair) : 1.0;
    float gate = GIVEN ? load_float(at4(a.h, int64_t(pair) * a.ldh + i)) : 0.0, up = 0;
    if (HAS_GATE) {
        bool both = HAS_UP && !skips;
        sums s = rows_of(a.gate, both ? a.up : a.gate, row, c);
        up = s.of[4];
        gate = scaled(s.of[0], a.gate_scales, a.gate_bias, weight, expert, at);
        gate = clamp_activation(a.clamp, a.clamp_how, a.clamp_soft, a.f, a.threshold, gate);
        if (!HAS_UP || (skips && gate == 0.0)) return gate;
        if (!both) up = rows_of(a.up, a.up, row, c).of[0];
    } else {
        if (GIVEN && skips && gate == 0.0) return gate;
        up = rows_of(a.up, a.up, row, c).of[0];
    }
    n_read++;
    up = scaled(up, a.up_scales, a.up_bias, weight, expert, at);
    if (!HAS_GATE && !GIVEN) return activation(a.f, a.threshold, up);
    return hidden(a.f, gate, clamp_up(a.clamp, a.clamp_how, a.clamp_soft, up), -1.0);
}

void main() {
    int thread = int(gl_LocalInvocationID.x), before = 32 * int(gl_WorkGroupID.x);
    for (int pair = int(gl_WorkGroupID.y); pair < a.n_pairs; pair += int(gl_NumWorkGroups.y)) {
        uint expert = expert_of(a.choices, pair);
        int n_read = 0; // rows of up read
        for (int i = int(gl_SubgroupID); i < 32; i += int(gl_NumSubgroups)) {
            float v = 0;
            if (expert < uint(a.n_own)) v = neuron_of(pair, int(expert), before + i, n_read);
            subgroupBarrier(); // all lanes have read h before the first one writes it
            if (LANE == 0) {
                store_float(at4(a.h, int64_t(pair) * a.ldh + before + i), v);
                group_h[i] = v;
            }
        }
        if (a.fired != 0 && n_read > 0 && LANE == 0) count_at(a.fired, n_read);
        if (a.h_q8 == 0) continue;
        barrier();
        bool valid = thread < 8;
        vec4 v = vec4(0);
        for (int e = 0; e < 4 && valid; e++) v[e] = group_h[4 * thread + e];
        quantize_group(v, before + 4 * (thread % 8), valid, a.n,
                       a.h_q8 + uint64_t(pair) * q8_bytes(a.n));
        barrier();
    }
}
