// matmul.comp: y = W x for many columns, in tiles of 64 outputs and 64 columns.
#version 460
#include "vulkan.glsl"
#include "formats.glsl"

PUSHED(vulkan_product_args)

#include "product.glsl"
#include "tile.glsl"

void main() {
    run_tile(64 * int(gl_WorkGroupID.x));
}
