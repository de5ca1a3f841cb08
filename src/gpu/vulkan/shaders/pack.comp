// pack.comp: GGUF rows to packed rows: quants first, then scales. A thread moves a block, part by
// part, by single bytes: GGUF rows are aligned to at most 2 bytes.
#version 460
#include "vulkan.glsl"

PUSHED(vulkan_pack_args)

void main() {
    int b = int(gl_GlobalInvocationID.x);
    for (int r = int(gl_WorkGroupID.y); r < a.n_rows && b < a.n_blocks;
         r += int(gl_NumWorkGroups.y)) {
        uint64_t block = a.src + uint64_t(r) * a.src_row_bytes + uint64_t(b) * a.block_bytes;
        uint64_t row = a.dst + uint64_t(r) * a.row_bytes, part = row;
        for (int i = 0; i < 4; i++) {
            uint n = a.part_bytes[i];
            for (uint k = 0; k < n; k++)
                store_byte(part + uint64_t(b) * n + k, load_byte(block + a.part_from[i] + k));
            part += uint64_t(a.n_blocks) * n;
        }
        if (b != 0) continue;
        for (; part < row + a.row_bytes; part++) store_byte(part, 0u);
    }
}
