// gate.comp: the gated norm after a recurrence: a workgroup computes one group of a column.
#version 460
#include "vulkan.glsl"
#include "block.glsl"
#include "math.glsl"

PUSHED(vulkan_gate_args)

float gate_at(int c, int i) {
    float gate = load_float(at4(a.gate, int64_t(c) * a.ldg + i / a.share));
    return (a.flags & GATE_SIGMOID) != 0 ? sigmoid(gate) : gate * sigmoid(gate);
}

void main() {
    int c = int(gl_WorkGroupID.y), first = int(gl_WorkGroupID.x) * a.width;
    bool early = (a.flags & GATE_FIRST) != 0;
    uint64_t x = at4(a.x, int64_t(c) * a.ldx + first);
    uint64_t weights = a.norm != 0 && early ? at4(a.norm, first) : a.norm;
    float squares = 0;
    for (int i = int(gl_LocalInvocationID.x); i < a.width && a.norm != 0; i += 128) {
        float v = load_float(at4(x, i)) * (early ? gate_at(c, first + i) : 1.0);
        squares += v * v;
    }
    squares = block_sum(squares);
    float scale = a.norm != 0 ? 1.0 / sqrt(squares / float(a.width) + a.eps) : 1.0;
    for (int i = int(gl_LocalInvocationID.x); i < a.width; i += 128) {
        float weight = weights != 0 ? load_float(at4(weights, i)) : 1.0;
        store_float(at4(x, i), load_float(at4(x, i)) * scale * weight * gate_at(c, first + i));
    }
}
