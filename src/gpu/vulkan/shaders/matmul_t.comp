// matmul_t.comp: y = x W for many columns, in tiles of 64 outputs and 64 columns.
#version 460
#include "vulkan.glsl"
#include "formats.glsl"

PUSHED(vulkan_product_args)

#include "product.glsl"
#include "tile_t.glsl"

void main() {
    run_tile(int(gl_WorkGroupID.x));
}
