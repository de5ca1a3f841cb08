// select.comp: bitmaps of selected neurons from scores, one thread per neuron.
#version 460
#include "vulkan.glsl"

PUSHED(vulkan_select_args)

shared uint words[8];

void main() {
    int t = int(gl_LocalInvocationID.x), n_words = (a.n + 31) / 32;
    for (int c = int(gl_WorkGroupID.y); c < a.n_cols; c += int(gl_NumWorkGroups.y)) {
        for (int base = 256 * int(gl_WorkGroupID.x); base < a.n;
             base += 256 * int(gl_NumWorkGroups.x)) {
            int i = base + t;
            barrier(); // the previous words have been read
            if (t < 8) words[t] = 0;
            barrier();
            if (i < a.n) {
                float score = load_float(at4(a.v, int64_t(c) * a.ldv + i));
                if (a.bias != 0) score += load_float(at4(a.bias, i));
                if (!(score < a.cut)) atomicOr(words[t / 32], 1u << (t % 32)); // NaN is selected
            }
            barrier();
            if (t < 8 && base + 32 * t < a.n)
                store_word(at4(a.bitmap, int64_t(c) * n_words + base / 32 + t), words[t]);
        }
    }
}
