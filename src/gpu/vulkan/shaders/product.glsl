// product.glsl: inputs and outputs of the tiles of matmul.comp and matmul_t.comp. Workgroup y has
// 64 columns.

uint64_t weights() { return a.w; }

int column_of(int line) {
    int c = 64 * int(gl_WorkGroupID.y) + line;
    return c < a.n_cols ? c : -1;
}

void put(int i, int line, float sum) {
    float bias = a.bias != 0 ? load_float(at4(a.bias, i)) : 0.0;
    uint64_t y = at4(a.y, int64_t(column_of(line)) * a.ldy + i);
    float v = (a.flags & PRODUCT_SCALE_LAST) != 0 ? a.scale * (sum + bias) : a.scale * sum + bias;
    if ((a.flags & PRODUCT_ADD) != 0) v += load_float(y);
    if ((a.flags & PRODUCT_RELU) != 0 && v < 0.0) v = 0.0;
    store_float(y, v);
}
