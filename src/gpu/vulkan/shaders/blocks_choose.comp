// blocks_choose.comp: for a head of a column, a workgroup selects the blocks with the highest
// scores (with BLOCKS_SUMS in WAY: positions or compressed keys). It finds the cutoff, the score
// that has the rank `sparse_top`, digit by digit with histograms of eight bits; then it marks the
// blocks below the cutoff, and with BLOCKS_SUMS lists the others. Among equal scores at the cutoff
// it keeps the first blocks; with BLOCKS_SUMS it keeps those that the CPU keeps, whose heap it
// repeats in the memory of the list.
#version 460
#include "vulkan.glsl"
#include "column.glsl"

PUSHED(vulkan_blocks_args)
#include "blocks.glsl"

// One thread of the workgroup writes the heap and raises scores, the others read them later.
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer word_of_all { uint v; };
float load_shared(uint64_t p, int i) { return uintBitsToFloat(word_of_all(at4(p, i)).v); }
void store_shared(uint64_t p, int i, uint v) { word_of_all(at4(p, i)).v = v; }
int load_entry(uint64_t p, int i) { return int(word_of_all(at4(p, i)).v); }

shared uint histogram[256];
shared int counts[32]; // of each subgroup: scores above the cutoff, 65536 * scores that equal it

uint64_t scores;
int n;

// The last `local` blocks are always selected.
float score_at(int i) { return i >= n - a.local ? INF : load_shared(scores, i); }

// An integer with the order of the floats.
uint ordered(float x) {
    uint bits = floatBitsToUint(x);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The cutoff. equals: how many of the scores that equal it are kept; surplus: how many are not.
uint find_cut(out int equals, out int surplus) {
    int t = int(gl_LocalInvocationID.x);
    uint cut = 0;
    equals = a.sparse_top;
    for (int shift = 24; shift >= 0; shift -= 8) {
        histogram[t] = 0;
        barrier();
        for (int i = t; i < n; i += 256) {
            uint x = ordered(score_at(i));
            if (shift == 24 || x >> (shift + 8) == cut >> (shift + 8))
                atomicAdd(histogram[x >> shift & 255u], 1);
        }
        barrier();
        int digit = 255;
        for (; digit > 0 && int(histogram[digit]) < equals; digit--) equals -= int(histogram[digit]);
        surplus = int(histogram[digit]) - equals;
        cut |= uint(digit) << shift;
        barrier();
    }
    return cut;
}

// Puts `value` where entry `at` of the heap was: as on the CPU.
void heap_put(uint64_t heap, int size, int at, int value) {
    int from = at;
    float x = load_shared(scores, value);
    for (int child = 2 * at + 2; child <= size; child = 2 * at + 2) {
        if (child == size || load_shared(scores, load_entry(heap, child)) >
                                 load_shared(scores, load_entry(heap, child - 1)))
            child--;
        store_shared(heap, at, uint(load_entry(heap, child)));
        at = child;
    }
    while (at > from && load_shared(scores, load_entry(heap, (at - 1) / 2)) > x) {
        store_shared(heap, at, uint(load_entry(heap, (at - 1) / 2)));
        at = (at - 1) / 2;
    }
    store_shared(heap, at, uint(value));
}

// One thread: of the scores that equal the cutoff, raises those that the CPU would keep.
void raise_equal(uint64_t heap, uint cut) {
    int top = a.sparse_top;
    for (int i = 0; i < top; i++) store_shared(heap, i, uint(i));
    for (int i = top / 2 - 1; i >= 0; i--) heap_put(heap, top, i, load_entry(heap, i));
    for (int i = top; i < n; i++)
        if (load_shared(scores, i) > load_shared(scores, load_entry(heap, 0))) heap_put(heap, top, 0, i);
    for (int i = 0; i < top; i++) {
        int at = load_entry(heap, i);
        if (ordered(load_shared(scores, at)) == cut) store_shared(scores, at, floatBitsToUint(INF));
    }
}

void main() {
    int c = int(gl_WorkGroupID.y), pos = column_pos(a.cols, c), equals, surplus;
    if (attends_all(pos)) return;
    n = blocks_seen(pos);
    scores = scores_of(c, int(gl_WorkGroupID.x));
    bool sums = (WAY & BLOCKS_SUMS) != 0;
    uint64_t list = list_of(c); // only with `sums`
    uint cut = find_cut(equals, surplus);
    if (sums && surplus > 0) {
        if (gl_LocalInvocationID.x == 0) raise_equal(list, cut);
        memoryBarrierBuffer();
        barrier();
        equals = 0;
    }
    int n_above = 0, n_equal = 0; // in earlier rounds
    for (int base = 0; base < n; base += 256) {
        int i = base + int(gl_SubgroupID) * LANES + LANE;
        uint x = i < n ? ordered(score_at(i)) : 0u;
        int is = i >= n ? 0 : x > cut ? 1 : x == cut ? 1 << 16 : 0; // two counters
        int before = subgroupExclusiveAdd(is), all = subgroupAdd(is);
        barrier(); // the previous counts have been read
        if (LANE == 0) counts[gl_SubgroupID] = all;
        barrier();
        int in_round = 0;
        for (int k = 0; k < int(gl_NumSubgroups); k++) {
            if (k < int(gl_SubgroupID)) before += counts[k];
            in_round += counts[k];
        }
        int equal_before = n_equal + (before >> 16);
        bool keep = is == 1 || (is > 1 && equal_before < equals);
        if (i < n && !keep) store_shared(scores, i, floatBitsToUint(-INF));
        else if (i < n && i >= n - a.local) store_shared(scores, i, floatBitsToUint(INF));
        if (sums && keep)
            store_shared(list, n_above + (before & 0xffff) + min(equal_before, equals), uint(i));
        n_above += in_round & 0xffff;
        n_equal += in_round >> 16;
    }
}
