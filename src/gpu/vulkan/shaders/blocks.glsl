// blocks.glsl: sparse attention: what find_blocks leaves in a session's cache (gpu_sparse). Included
// behind the arguments, whose members sparse_... it reads.

// The number of blocks of positions, or of compressed keys, that a token can attend to.
int blocks_seen(int pos) {
    return a.sparse_whole != 0 ? (pos + 1) / a.sparse_size : pos / a.sparse_size + 1;
}

// Whether a token attends to all of them.
bool attends_all(int pos) { return blocks_seen(pos) <= a.sparse_top; }

int blocks_of(int n_ctx) { return (n_ctx + a.sparse_size - 1) / a.sparse_size; }

// The scores of the blocks, for a column and a head.
uint64_t scores_of(int c, int head) {
    int n_ctx = column_n_ctx(a.cols, c), n_blocks = blocks_of(n_ctx);
    int64_t before = (int64_t(column_at(a.cols, c)) * a.sparse_heads + head) * (n_blocks + a.sparse_list);
    return at4(column_kv(a.cols, c) + uint64_t(n_ctx) * a.sparse_offset, before);
}

// The list of selected positions or compressed keys, stored after the scores of a column.
uint64_t list_of(int c) { return at4(scores_of(c, 0), blocks_of(column_n_ctx(a.cols, c))); }
