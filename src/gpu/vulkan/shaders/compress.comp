// compress.comp: if a column completes a compressed key, its workgroup norms the key, rotates it by
// the key's first position, and stores it.
#version 460
#include "vulkan.glsl"
#include "block.glsl"
#include "math.glsl"
#include "column.glsl"
#include "cache.glsl"
#include "head.glsl"
#include "store.glsl"

PUSHED(vulkan_compress_args)

void main() {
    int c = int(gl_WorkGroupID.x), pos = column_pos(a.cols, c), n_ctx = column_n_ctx(a.cols, c);
    if ((pos + 1) % a.ratio != 0) return;
    uint64_t x = at4(a.x, int64_t(c) * a.ldx + (a.n_parts - 1) * a.dim);
    for (int i = THREAD; i < a.dim; i += THREADS) head[i] = load_float(at4(x, i));
    barrier();
    norm_head(0, a.norm, a.dim, false, a.eps);
    uint64_t inv_freq = a.inv_freq_long != 0 && n_ctx > a.long_from ? a.inv_freq_long : a.inv_freq;
    for (int i = THREAD; i < a.n_rot / 2; i += THREADS) {
        vec2 angle = cos_sin(pos + 1 - a.ratio, load_float(at4(inv_freq, i)));
        rotate_pair(a.rot_at, i, a.n_rot, (a.flags & ROPE_NEOX) != 0, a.scale * angle);
    }
    barrier();
    spread_head(a.dim, a.k_hadamard);
    uint64_t keys = column_kv(a.cols, c) + uint64_t(n_ctx) * a.k_offset;
    store_head(a.type_k, keys + uint64_t(pos / a.ratio) * a.k_row, a.dim);
}
