// expert_group.comp: one workgroup of 256 threads sorts the pairs with own experts by expert, a stable
// counting sort, and makes the tiles. It places 256 pairs at a time, each behind the earlier pairs of
// its expert.
#version 460
#include "vulkan.glsl"
#include "choice.glsl"

PUSHED(vulkan_expert_group_args)

const int MOST = 1024, SIDE = 64; // experts; pairs of a tile
shared uint count[MOST];
shared int next_pair[MOST], first_pair[MOST + 1], first_tile[MOST + 1], expert_at[256];

#define THREAD int(gl_LocalInvocationID.x)

int choice_at(int pair) {
    uint e = pair < a.n_pairs ? expert_of(a.choices, pair) : uint(a.n_own);
    return e < uint(a.n_own) ? int(e) : a.n_own;
}

void main() {
    for (int e = THREAD; e < a.n_own; e += 256) count[e] = 0;
    barrier();
    for (int p = THREAD; p < a.n_pairs; p += 256) {
        int e = choice_at(p);
        if (e < a.n_own) atomicAdd(count[e], 1u);
    }
    barrier();
    if (THREAD == 0) {
        int pairs = 0, tiles = 0;
        for (int e = 0; e < a.n_own; e++) {
            first_pair[e] = next_pair[e] = pairs;
            first_tile[e] = tiles;
            pairs += int(count[e]);
            tiles += (int(count[e]) + SIDE - 1) / SIDE;
        }
        first_pair[a.n_own] = pairs;
        first_tile[a.n_own] = tiles;
        store_word(a.n_listed, uint(pairs));
    }
    barrier();
    for (int base = 0; base < a.n_pairs; base += 256) {
        int p = base + THREAD, e = choice_at(p);
        expert_at[THREAD] = e;
        barrier();
        int before = 0, all = 0;
        for (int i = 0; i < 256; i++) {
            if (expert_at[i] != e) continue;
            all++;
            if (i < THREAD) before++;
        }
        int to = e < a.n_own ? next_pair[e] + before : 0;
        barrier();
        if (e < a.n_own) {
            store_word(at4(a.pair, to), uint(p));
            store_word(at4(a.column, to), uint(p / a.n_used));
            if (before == all - 1) next_pair[e] += all; // the last of its expert
        }
        barrier();
    }
    for (int t = THREAD; t < a.n_tiles; t += 256) {
        uvec4 tile = uvec4(0);
        if (t < first_tile[a.n_own]) {
            int low = 0, high = a.n_own; // the last expert whose first tile is not behind t
            while (high - low > 1) {
                int middle = (low + high) / 2;
                if (first_tile[middle] <= t) low = middle;
                else high = middle;
            }
            int first = first_pair[low] + (t - first_tile[low]) * SIDE;
            tile = uvec4(uint(low), uint(first), uint(min(first_pair[low + 1] - first, SIDE)), 0u);
        }
        store16(a.tile + uint64_t(16 * t), tile);
    }
}
