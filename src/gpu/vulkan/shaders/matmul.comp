// matmul.comp: y = W x for many columns, in tiles of 64 outputs and 64 columns.
#version 460
#include "vulkan.glsl"
#include "formats.glsl"

PUSHED(vulkan_product_args)

uint64_t weights() { return a.w; }

int column_of(int line) {
    int c = 64 * int(gl_WorkGroupID.y) + line;
    return c < a.n_cols ? c : -1;
}

void put(int r, int line, float sum) {
    float bias = a.bias != 0 ? load_float(at4(a.bias, r)) : 0.0;
    uint64_t y = at4(a.y, int64_t(column_of(line)) * a.ldy + r);
    float v = (a.flags & PRODUCT_SCALE_LAST) != 0 ? a.scale * (sum + bias) : a.scale * sum + bias;
    if ((a.flags & PRODUCT_ADD) != 0) v += load_float(y);
    if ((a.flags & PRODUCT_RELU) != 0 && v < 0.0) v = 0.0;
    store_float(y, v);
}

#include "tile.glsl"

void main() {
    run_tile(64 * int(gl_WorkGroupID.x));
}
