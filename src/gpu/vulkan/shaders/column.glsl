// column.glsl: members of a gpu_column.
uint64_t column_kv(uint64_t cols, int c) { return load_u64(cols + uint64_t(64 * c)); }
int column_n_ctx(uint64_t cols, int c) { return int(load_u64(cols + uint64_t(64 * c + 8))); }
int column_token(uint64_t cols, int c) { return load_int(cols + uint64_t(64 * c + 16)); }
int column_pos(uint64_t cols, int c) { return load_int(cols + uint64_t(64 * c + 20)); }
int column_at(uint64_t cols, int c) { return load_int(cols + uint64_t(64 * c + 24)); }
int column_run(uint64_t cols, int c) { return load_int(cols + uint64_t(64 * c + 28)); }
int column_n_before(uint64_t cols, int c) { return load_int(cols + uint64_t(64 * c + 32)); }
uint64_t column_state_from(uint64_t cols, int c) { return load_u64(cols + uint64_t(64 * c + 40)); }
uint64_t column_state_to(uint64_t cols, int c) { return load_u64(cols + uint64_t(64 * c + 48)); }
uint64_t column_state_before(uint64_t cols, int c) { return load_u64(cols + uint64_t(64 * c + 56)); }
