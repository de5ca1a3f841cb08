// expert_down.comp: the second half of an expert whose down matrix has a row per neuron. A
// workgroup sums 32 units of all rows of a pair.
#version 460
#include "vulkan.glsl"
#include "formats.glsl"
#include "choice.glsl"

PUSHED(vulkan_expert_down_args)

int my_pair, my_expert; // expert < 0: not own

int row_of(int item) { return my_expert * a.n + item; }
float factor_of(int item, int c) { return load_float(at4(a.h, int64_t(my_pair) * a.ldh + item)); }
void put(int i, int c, float v) {
    if (my_expert >= 0)
        v = scaled(v, a.scales, a.bias, 1.0, my_expert, int64_t(my_expert) * a.n_in + i);
    store_float(at4(a.y, int64_t(my_pair) * a.ldy + i), v);
}

#include "down.glsl"

void main() {
    for (my_pair = int(gl_WorkGroupID.y); my_pair < a.n_pairs; my_pair += int(gl_NumWorkGroups.y)) {
        uint expert = expert_of(a.choices, my_pair);
        my_expert = expert < uint(a.n_own) ? int(expert) : -1;
        int count = my_expert >= 0 ? a.n : 0, n_read = 0;
        sum_rows(int(gl_WorkGroupID.x), 0, 1, count, 0, 1);
        if (a.fired == 0 || gl_WorkGroupID.x != 0) continue;
        for (int i = int(gl_LocalInvocationID.x); i < count; i += 128)
            n_read += factor_of(i, 0) != 0.0 ? 1 : 0;
        if (n_read > 0) count_at(a.fired, n_read);
    }
}
