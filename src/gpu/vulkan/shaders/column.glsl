// column.glsl: members of a gpu_column.
uint64_t column_kv(uint64_t cols, int c) { return load_u64(cols + uint64_t(64 * c)); }
int column_n_ctx(uint64_t cols, int c) { return int(load_u64(cols + uint64_t(64 * c + 8))); }
int column_pos(uint64_t cols, int c) { return load_int(cols + uint64_t(64 * c + 20)); }
