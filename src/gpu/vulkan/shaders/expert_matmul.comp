// expert_matmul.comp: tiles of the pairs of an expert (expert_group.comp): 64 outputs of up to 64 pairs.
#version 460
#include "vulkan.glsl"
#include "formats.glsl"
#include "math.glsl"
#include "choice.glsl"

STORED(vulkan_expert_matmul_args)
#define a a_stored

uvec4 my_tile; // expert, first pair of the list, number of pairs

uint64_t weights() {
    return a.w + uint64_t(my_tile.x) * uint64_t(a.step) * a.row_bytes;
}

int column_of(int line) {
    if (line >= int(my_tile.z)) return -1;
    uint64_t list = (a.flags & MATMUL_OF_PAIRS) != 0 ? a.pair : a.column;
    return load_int(at4(list, int(my_tile.y) + line));
}

void put(int r, int line, float sum) {
    int pair = load_int(at4(a.pair, int(my_tile.y) + line)), expert = int(my_tile.x);
    float weight = (a.flags & EXPERT_WEIGH) != 0 ? weight_of(a.choices, pair) : 1.0;
    float v = scaled(sum, a.scales, a.bias, weight, expert, int64_t(expert) * a.n_out + r);
    uint64_t y = at4(a.y, int64_t(pair) * a.ldy + r);
    if (a.result == RESULT_ACTIVATED)
        v = clamp_activation(a.clamp, a.clamp_how, a.f, a.threshold, v);
    else if (a.result == RESULT_GATED)
        v = hidden(a.f, load_float(y), clamp_up(a.clamp, a.clamp_how, v), -1.0);
    store_float(y, v);
}

#include "tile.glsl"

void main() {
    my_tile = load16(a.tile + uint64_t(16 * gl_WorkGroupID.y));
    if (my_tile.z != 0) run_tile(64 * int(gl_WorkGroupID.x));
}
