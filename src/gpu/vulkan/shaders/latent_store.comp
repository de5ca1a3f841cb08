// latent_store.comp: compressed attention (MLA): a workgroup computes the RoPE elements of a query, or
// the cache row of a column: the key's RoPE elements, then the latent vector.
#version 460
#include "vulkan.glsl"
#include "block.glsl"
#include "column.glsl"
#include "cache.glsl"
#include "head.glsl"
#include "store.glsl"

PUSHED(vulkan_latent_args)

void main() {
    int c = int(gl_WorkGroupID.y), h = int(gl_WorkGroupID.x), n_latent = a.head_dim - a.n_rot;
    bool is_q = h < a.n_head;
    uint64_t k = at4(a.k, int64_t(c) * a.ldk);
    uint64_t from = is_q ? at4(a.q, int64_t(c) * a.ldq + (h + 1) * a.q_dim - a.n_rot) : at4(k, n_latent);
    for (int i = THREAD; i < a.n_rot; i += THREADS) head[i] = load_float(at4(from, i));
    barrier();
    if (!is_q && a.k_norm != 0) norm_head(0, a.k_norm, a.n_rot, false, a.eps);
    if (a.cs != 0)
        rotate_head(0, at4(a.cs, int64_t(c) * a.n_rot), a.n_rot, (a.flags & ROPE_NEOX) != 0,
                    false);
    if (is_q) {
        uint64_t to = at4(a.result, int64_t(c) * a.ldo + h * a.head_dim);
        for (int i = THREAD; i < a.n_rot; i += THREADS) store_float(at4(to, i), head[i]);
        return;
    }
    for (int i = THREAD; i < n_latent; i += THREADS) head[a.n_rot + i] = load_float(at4(k, i));
    barrier();
    norm_head(a.n_rot, a.norm, n_latent, false, a.eps);
    spread_head(a.head_dim, a.k_hadamard);
    uint64_t row = column_kv(a.cols, c) + uint64_t(column_n_ctx(a.cols, c)) * a.k_offset +
                   uint64_t(column_pos(a.cols, c)) * a.k_row;
    store_head(a.type_k, row, a.head_dim);
}
