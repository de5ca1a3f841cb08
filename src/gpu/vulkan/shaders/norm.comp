// norm.comp: a workgroup norms a column, and writes its int8 form and its message. A thread reads only
// elements that it writes, so it may run in place.
#version 460
#include "vulkan.glsl"
#include "block.glsl"

PUSHED(vulkan_norm_args)

// Sum of the column's values, or of the squares of their differences from the mean.
float column_sum(uint64_t x, bool squares, float mean) {
    float sum = 0;
    for (int i = 4 * int(gl_LocalInvocationID.x); i < a.n; i += 4 * int(gl_WorkGroupSize.x)) {
        vec4 v = load_four(x, i, a.n);
        for (int k = 0; k < 4; k++) {
            float d = i + k < a.n ? v[k] - mean : 0.0;
            sum += squares ? d * d : d;
        }
    }
    return block_sum(sum);
}

void main() {
    int c = int(gl_WorkGroupID.x);
    uint64_t x = at4(a.x, int64_t(c) * a.ldx), y = at4(a.y, int64_t(c) * a.ldy);
    uint64_t column_q8 = uint64_t(c) * q8_bytes(a.n);
    bool sends = a.epoch != 0 && load_u64(a.epoch) != 0;
    float mean = a.kind == NORM_LAYER ? column_sum(x, false, 0.0) / float(a.n) : 0.0;
    float squares = column_sum(x, true, mean);
    if (a.bad != 0 && gl_LocalInvocationID.x == 0 && !(squares < INF))
        atomicMax(atomic_at(a.bad).v, uint(a.mark));
    float scale = a.kind == NORM_NONE ? 1.0 : 1.0 / sqrt(squares / float(a.n) + a.eps);
    // All lanes of a subgroup come by every round.
    for (int base = 0; base < a.n; base += 4 * int(gl_WorkGroupSize.x)) {
        int i = base + 4 * int(gl_LocalInvocationID.x), n = clamp(a.n - i, 0, 4);
        vec4 v = vec4(0);
        if (n > 0) {
            v = (load_four(x, i, a.n) - mean) * scale;
            if (a.w != 0) v *= load_four(a.w, i, a.n);
            if (a.b != 0) v += load_four(a.b, i, a.n);
            if (a.add != 0) v = a.y_scale * (load_four(y, i, a.n) + a.scale * v);
            for (int k = n; k < 4; k++) v[k] = 0;
        }
        if (a.q8 != 0) quantize_group(v, i, n > 0, a.n, a.q8 + column_q8);
        if (a.host_q8 != 0 && sends) quantize_group(v, i, n > 0, a.n, a.host_q8 + column_q8);
        for (int k = 0; k < n; k++) {
            if (a.y != 0) store_float(at4(y, i + k), v[k]);
            if (a.host_x != 0 && sends) store_float(at4(a.host_x, int64_t(c) * a.n + i + k), v[k]);
        }
    }
}
