// expert_matmul.comp: tiles of the pairs of an expert: 64 outputs of up to 64 pairs.
#version 460
#include "vulkan.glsl"
#include "formats.glsl"
#include "math.glsl"
#include "choice.glsl"

STORED(vulkan_expert_matmul_args)
#define a a_stored
#include "pairs.glsl"

void put(int r, int line, float sum) {
    int pair = pair_of(line);
    float v = scaled_sum(sum, pair, r, a.n_out);
    uint64_t y = at4(a.y, int64_t(pair) * a.ldy + r);
    if (a.result == RESULT_ACTIVATED)
        v = clamp_activation(a.clamp, a.clamp_how, a.clamp_soft, a.f, a.threshold, v);
    else if (a.result == RESULT_GATED)
        v = hidden(a.f, load_float(y), clamp_up(a.clamp, a.clamp_how, a.clamp_soft, v), -1.0);
    store_float(y, v);
}

#include "tile.glsl"

void main() {
    my_tile = load16(a.tile + uint64_t(16 * gl_WorkGroupID.y));
    if (my_tile.z != 0) run_tile(64 * int(gl_WorkGroupID.x));
}
