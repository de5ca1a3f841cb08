// receive.comp: a message from the host, which has come before the submission: nothing waits. A
// workgroup has a column. A message that is not there is an error of the host: the fault record says
// so, and nothing is changed.
#version 460
#include "vulkan.glsl"
#include "exchange.glsl"

PUSHED(vulkan_receive_args)

void main() {
    int t = int(gl_LocalInvocationID.x), step = int(gl_WorkGroupSize.x);
    uint64_t epoch = load_u64(a.epoch), flag = load_u64(a.flag);
    bool idle = is_idle(a.choices, a.n_used, a.n_own, (a.flags & IDLE_OTHERS) != 0, a.n_cols);
    bool set = (a.flags & RECEIVE_SET) != 0;
    if (!idle && epoch != 0 && flag < epoch && t == 0) store_u64(a.fault, uint64_t(1));
    for (int c = int(gl_WorkGroupID.x); c < a.n_cols; c += int(gl_NumWorkGroups.x)) {
        for (int i = t; a.clear != 0 && i < a.n; i += step)
            store_float(at4(a.clear, int64_t(c) * a.ld_clear + i), 0.0);
        if (idle || epoch == 0 || flag < epoch) continue;
        if (flag != epoch) {
            for (int i = t; a.host_bits != 0 && i < a.n_words; i += step)
                store_word(at4(a.bits, int64_t(c) * a.n_words + i), 0xffffffffu);
            continue;
        }
        // All lanes of a subgroup come by every round.
        for (int base = 0; base < a.n; base += 4 * step) {
            int i = base + 4 * t, n = clamp(a.n - i, 0, 4);
            vec4 v = vec4(0);
            for (int k = 0; k < n; k++) {
                uint64_t y = at4(a.y, int64_t(c) * a.ldy + i + k);
                v[k] = load_float(at4(a.host_x, int64_t(c) * a.n + i + k));
                if (!set) v[k] += load_float(y);
                store_float(y, v[k]);
            }
            if (a.q8 != 0)
                quantize_group(v, i, n > 0, a.n, a.q8 + uint64_t(c) * q8_bytes(a.n));
        }
        for (int i = t; a.host_bits != 0 && i < a.n_words; i += step)
            store_word(at4(a.bits, int64_t(c) * a.n_words + i),
                       load_word(at4(a.host_bits, int64_t(c) * a.n_words + i)));
    }
}
