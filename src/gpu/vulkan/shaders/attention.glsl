// attention.glsl: shared by the attention shaders: a token's range of positions, the factors of
// scores and results, and the layout of partial sums, as in cuda/gpu_attention.h.

uint first_seen(uint pos) {
    uint window = uint(a.window);
    if (window == 0) return 0;
    if ((a.flags & ATTENTION_CHUNKS) != 0) return pos / window * window;
    return pos >= window ? pos + 1 - window : 0;
}

// rows: the first row and the number of rows. Returns the same for part `split`; all parts but the
// last are whole tiles.
uvec2 part_of(uvec2 rows, uint split) {
    uint begin = rows.x, n = rows.y, tiles = (n + 63) / 64;
    uint part = (tiles + a.n_splits - 1) / a.n_splits * 64, before = split * part;
    return before < n ? uvec2(begin + before, min(n - before, part)) : uvec2(begin, 0);
}

float scale_at(int pos) {
    if (a.temperature == 0.0) return a.scale;
    int turns = (pos + a.temperature_offset) / a.temperature_length;
    return a.scale * (1.0 + a.temperature * log(1.0 + float(turns)));
}

// Factor of sums with weights e^(score - m) of sum l; 0 without positions. NaN stays NaN.
float share_of(int h, float m, float l) {
    if (l == 0.0) return 0.0;
    if (a.sinks == 0) return 1.0 / l;
    float sink = load_float(at4(a.sinks, h)), top = max(m, sink), keep = exp(m - top);
    return keep / (l * keep + exp(sink - top));
}

float gate_at(int c, int h, int d) {
    if (a.gate == 0) return 1.0;
    int stride = a.gate_stride != 0 ? a.gate_stride : a.v_dim;
    int at = h * stride + ((a.flags & ATTENTION_HEAD_GATES) != 0 ? 0 : d);
    float gate = load_float(at4(a.gate, int64_t(c) * a.ldg + at));
    return (a.flags & ATTENTION_GATE_SOFTPLUS) != 0 ? softplus(gate) : sigmoid(gate);
}

uint64_t part_sums(int c, int h, int split) {
    return at4(a.partial, ((int64_t(c) * a.n_head + h) * a.n_splits + split) * a.v_dim);
}

// (m, l) of a part.
uint64_t part_state(int c, int h, int split) {
    int64_t n = int64_t(a.n_cols) * a.n_head * a.n_splits;
    return at4(a.partial,
               n * a.v_dim + 2 * ((int64_t(c) * a.n_head + h) * a.n_splits + split));
}
