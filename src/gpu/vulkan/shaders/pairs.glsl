// pairs.glsl: inputs of the tiles of an expert's pairs (expert_group.comp).

uvec4 my_tile; // expert, first pair of the list, number of pairs

uint64_t weights() {
    return a.w + uint64_t(my_tile.x) * uint64_t(a.step) * a.row_bytes;
}

int column_of(int line) {
    if (line >= int(my_tile.z)) return -1;
    uint64_t list = (a.flags & MATMUL_OF_PAIRS) != 0 ? a.pair : a.column;
    return load_int(at4(list, int(my_tile.y) + line));
}

int pair_of(int line) { return load_int(at4(a.pair, int(my_tile.y) + line)); }

// Output i of n, with the expert's scale and bias.
float scaled_sum(float sum, int pair, int i, int n) {
    float weight = (a.flags & EXPERT_WEIGH) != 0 ? weight_of(a.choices, pair) : 1.0;
    return scaled(sum, a.scales, a.bias, weight, int(my_tile.x), int64_t(my_tile.x) * n + i);
}
