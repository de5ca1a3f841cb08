// publish.comp: a message to the host. WAY 0: a workgroup writes a column; WAY 1, behind it: raises the
// flag. The host reads both after the submission, so nothing is ordered here.
#version 460
#include "vulkan.glsl"
#include "exchange.glsl"

PUSHED(vulkan_publish_args)

void main() {
    uint64_t epoch = load_u64(a.epoch);
    if (epoch == 0) return;
    bool idle = is_idle(a.choices, a.n_used, a.n_own, (a.flags & IDLE_OTHERS) != 0, a.n_cols);
    int t = int(gl_LocalInvocationID.x);
    if (WAY == 1) {
        if (t == 0) store_u64(a.flag, epoch + (idle ? 1 : 0));
        return;
    }
    for (int c = int(gl_WorkGroupID.x); c < a.n_cols && !idle; c += int(gl_NumWorkGroups.x)) {
        for (int i = t; i < a.n; i += int(gl_WorkGroupSize.x))
            store_word(at4(a.host_x, int64_t(c) * a.n + i),
                       load_word(at4(a.x, int64_t(c) * a.ldx + i)));
        for (int i = t; a.bits != 0 && i < a.n_words; i += int(gl_WorkGroupSize.x))
            store_word(at4(a.host_bits, int64_t(c) * a.n_words + i),
                       load_word(at4(a.bits, int64_t(c) * a.n_words + i)));
    }
}
