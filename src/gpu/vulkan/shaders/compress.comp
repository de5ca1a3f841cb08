// compress.comp: a workgroup stores the key that its column completes, if it completes one: normed,
// and rotated by the key's first position.
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
    bool far = a.inv_freq_long != 0 && n_ctx > a.long_from;
    for (int i = THREAD; i < a.dim; i += THREADS)
        head[i] = load_float(at4(a.x, int64_t(c) * a.ldx + i));
    barrier();
    norm_head(0, a.norm, a.dim, false, a.eps);
    for (int i = THREAD; i < a.n_rot / 2; i += THREADS) {
        float f = load_float(at4(far ? a.inv_freq_long : a.inv_freq, i));
        rotate_pair(a.rot_at, i, a.n_rot, a.neox != 0, a.scale * cos_sin(pos + 1 - a.ratio, f));
    }
    barrier();
    spread_head(a.dim, a.k_hadamard);
    store_head(a.type_k,
               column_kv(a.cols, c) + uint64_t(n_ctx) * a.k_offset + uint64_t(pos / a.ratio) * a.k_row,
               a.dim);
}
