// rope_store.comp: a workgroup has a head of a column: queries first, then keys, then values.
#version 460
#include "vulkan.glsl"
#include "block.glsl"
#include "column.glsl"
#include "cache.glsl"
#include "head.glsl"
#include "store.glsl"

STORED(vulkan_rope_args)
#define a a_stored

void main() {
    int c = int(gl_WorkGroupID.y), h = int(gl_WorkGroupID.x);
    bool is_q = h < a.n_head, is_k = !is_q && h < a.n_head + a.n_head_kv, is_v = !is_q && !is_k;
    int n = is_v ? a.v_dim : a.head_dim;
    uint64_t q = at4(a.q, int64_t(c) * a.ldq + h * (a.q_stride != 0 ? a.q_stride : n)), x = q;
    if (!is_q) {
        h -= is_k ? a.n_head : a.n_head + a.n_head_kv;
        x = is_k ? at4(a.k, int64_t(c) * a.ldk + h * n) : at4(a.v, int64_t(c) * a.ldv + h * n);
    }
    for (int i = THREAD; i < n; i += THREADS) head[i] = load_float(at4(x, i));
    barrier();
    clamp_head(n, a.clamp);
    if (!is_v) {
        uint64_t w = is_q ? a.q_norm : a.k_norm;
        bool norms = w != 0 || (a.flags & ROPE_NORM_BARE) != 0, centred = a.norm == NORM_LAYER;
        bool late = (a.flags & ROPE_NORM_LATE) != 0;
        if (w != 0) w = at4(w, h * a.norm_stride);
        if (norms && !late) norm_head(0, w, n, centred, a.eps);
        if (a.cs != 0)
            rotate_head(a.rot_at, at4(a.cs, int64_t(c) * a.n_rot), a.n_rot,
                        (a.flags & ROPE_NEOX) != 0, (a.flags & ROPE_BACK) != 0);
        if (norms && late) norm_head(0, w, n, centred, a.eps);
        spread_head(n, a.k_hadamard);
    } else {
        if ((a.flags & ROPE_VALUE_NORM) != 0) norm_head(0, 0, n, false, a.eps);
        spread_head(n, a.v_hadamard);
    }
    if (is_q) {
        for (int i = THREAD; i < n; i += THREADS) store_float(at4(q, i), head[i]);
        return;
    }
    int type = is_k ? a.type_k : a.type_v;
    uint64_t row = column_kv(a.cols, c) +
                   uint64_t(column_n_ctx(a.cols, c)) * (is_k ? a.k_offset : a.v_offset) +
                   uint64_t(column_pos(a.cols, c)) * (is_k ? a.k_row : a.v_row);
    store_head(type, row + uint64_t(h * cache_head_bytes(type, n)), n);
}
