// list.comp: one workgroup writes the ascending list of the neurons below n_list that any column
// selected. A thread reads one word of the union of the bitmaps; prefix sums give positions in the
// list.
#version 460
#include "vulkan.glsl"

PUSHED(vulkan_list_args)

shared int listed[32]; // by each subgroup in this round

uint union_word(int w) {
    int left = a.n_list - 32 * w;
    uint word = 0;
    if (left <= 0) return 0;
    for (int c = 0; c < a.n_cols; c++) word |= load_word(at4(a.bits, int64_t(c) * a.n_words + w));
    return left < 32 ? word & ((1u << left) - 1u) : word;
}

void main() {
    int before = 0; // listed in earlier rounds
    for (int base = 0; 32 * base < a.n_list; base += int(gl_WorkGroupSize.x)) {
        int w = base + int(gl_SubgroupID) * LANES + LANE;
        uint word = union_word(w);
        int n = bitCount(word), place = before + subgroupExclusiveAdd(n), all = subgroupAdd(n);
        barrier(); // the previous counts have been read
        if (LANE == 0) listed[gl_SubgroupID] = all;
        barrier();
        for (int i = 0; i < int(gl_NumSubgroups); i++) {
            if (i < int(gl_SubgroupID)) place += listed[i];
            before += listed[i];
        }
        for (; word != 0; word &= word - 1u)
            store_word(at4(a.list, place++), uint(32 * w + findLSB(word)));
    }
    if (gl_LocalInvocationID.x == 0) store_word(a.count, uint(before));
}
