// compress_sum.comp: sums of compressed keys. A thread has one element of a key: it processes a
// session's columns in order. Only the workgroups of a session's first column compute, because a
// program does not know where sessions begin.
#version 460
#include "vulkan.glsl"
#include "column.glsl"

PUSHED(vulkan_compress_args)

void main() {
    int c0 = int(gl_WorkGroupID.y), i = int(gl_GlobalInvocationID.x);
    if (column_at(a.cols, c0) != 0 || i >= a.dim) return;
    uint64_t from = column_state_from(a.cols, c0), before = column_state_before(a.cols, c0);
    uint64_t to = column_state_to(a.cols, c0);
    int64_t at_n = a.at + a.dim + i, at_sum = at_n + a.dim;
    float n = 0, sum = 0; // of the key that is not complete
    if (from != 0) {
        n = load_float(at4(from, at_n));
        sum = load_float(at4(from, at_sum));
    }
    for (int t = 0; t < column_run(a.cols, c0); t++) {
        if (t == column_n_before(a.cols, c0) && before != 0) {
            store_float(at4(before, at_n), n);
            store_float(at4(before, at_sum), sum);
        }
        uint64_t x = at4(a.x, int64_t(c0 + t) * a.ldx + i);
        n += 1.0;
        sum += load_float(x);
        if ((column_pos(a.cols, c0) + t + 1) % a.ratio != 0) continue;
        store_float(x, divide(sum, n));
        n = sum = 0;
    }
    store_float(at4(to, at_n), n);
    store_float(at4(to, at_sum), sum);
}
