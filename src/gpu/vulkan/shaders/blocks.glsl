// blocks.glsl: sparse attention: what find_blocks leaves in a session's cache (gpu_sparse). Included
// behind the arguments, whose members sparse_... it reads.

// Whether a token attends to all positions up to its own.
bool attends_all(int pos) { return pos / a.sparse_size < a.sparse_top; }

// The scores of the blocks, for a column and a head; behind them the list of positions.
uint64_t scores_of(int c, int head) {
    int n_ctx = column_n_ctx(a.cols, c), n_blocks = (n_ctx + a.sparse_size - 1) / a.sparse_size;
    int64_t before = (int64_t(column_at(a.cols, c)) * a.sparse_heads + head) * (n_blocks + a.sparse_list);
    return at4(column_kv(a.cols, c) + uint64_t(n_ctx) * a.sparse_offset, before);
}
