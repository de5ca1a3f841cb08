// expert_matmul_t.comp: tiles of the pairs of an expert whose matrix has a row per neuron.
#version 460
#include "vulkan.glsl"
#include "formats.glsl"
#include "choice.glsl"

STORED(vulkan_expert_matmul_args)
#define a a_stored
#include "pairs.glsl"

void put(int i, int line, float sum) {
    int pair = pair_of(line);
    store_float(at4(a.y, int64_t(pair) * a.ldy + i), scaled_sum(sum, pair, i, a.n_in));
}

#include "tile_t.glsl"

void main() {
    my_tile = load16(a.tile + uint64_t(16 * gl_WorkGroupID.y));
    if (my_tile.z != 0) run_tile(int(gl_WorkGroupID.x));
}
