// exchange.glsl: whether an exchange of n_cols columns is empty (gpu_idle).
bool is_idle(uint64_t choices, int n_used, int n_own, bool others, int n_cols) {
    if (choices == 0) return false;
    bool idle = true;
    for (int i = 0; i < n_cols * n_used; i++) {
        uint choice = load_word(at4(choices, 2 * i));
        idle = idle && (choice < uint(max(n_own, 0))) != others;
    }
    return idle;
}
