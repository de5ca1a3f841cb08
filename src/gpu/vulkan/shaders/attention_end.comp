// attention_end.comp: a workgroup ends a head of a column: WAY 1 merges the parts of a split context;
// then, where cached values are multiplied by a Hadamard matrix, multiplies by its inverse; and applies
// the gate, unless attention.comp has.
#version 460
#include "vulkan.glsl"
#include "block.glsl"
#include "head.glsl"
#include "math.glsl"

STORED(vulkan_attention_args)
#define a a_stored
#include "attention.glsl"

shared float part_weight[32];

void main() {
    int h = int(gl_WorkGroupID.x), c = int(gl_WorkGroupID.y);
    uint64_t result = at4(a.result, int64_t(c) * a.ldo + h * a.v_dim);
    if (WAY == 1) {
        float m = -INF, l = 0;
        for (int i = 0; i < a.n_splits; i++) m = max(m, load_float(part_state(c, h, i)));
        for (int i = 0; i < a.n_splits; i++) {
            float part = load_float(part_state(c, h, i)), n = load_float(part_state(c, h, i) + 4);
            float w = n == 0.0 ? 0.0 : exp(part - m);
            if (THREAD == 0) part_weight[i] = w;
            l += w * n;
        }
        barrier();
        float factor = share_of(h, m, l);
        for (int d = THREAD; d < a.v_dim; d += THREADS) {
            float sum = 0;
            for (int i = 0; i < a.n_splits; i++)
                if (part_weight[i] != 0.0) sum += part_weight[i] * load_float(at4(part_sums(c, h, i), d));
            head[d] = sum * factor;
        }
    } else {
        for (int d = THREAD; d < a.v_dim; d += THREADS) head[d] = load_float(at4(result, d));
    }
    barrier();
    spread_head(a.v_dim, a.v_hadamard);
    for (int d = THREAD; d < a.v_dim; d += THREADS)
        store_float(at4(result, d), head[d] * gate_at(c, h, d));
}
