// compress_sum.comp: sums of compressed keys. A thread computes an element of the key that begins
// at its column: it adds the parts of the key's columns in order. The threads of a session's first
// column compute the keys that include earlier positions, starting from the session's state, and
// write the states.
#version 460
#include "vulkan.glsl"
#include "column.glsl"

PUSHED(vulkan_compress_args)

// Softmax state of an element: largest score, sum of weights, weighted sum.
struct key_sum {
    float m, l, sum;
};

int c0, pos0; // the session's first column, and its position

// The sum for element i of key `key`, over the columns [0, end) of the session.
key_sum sum_key(int i, int key, int end) {
    int first = (key - a.n_parts + 1) * a.ratio - pos0, last = (key + 1) * a.ratio - pos0;
    int part = key - pos0 / a.ratio, width = a.n_parts * a.dim;
    uint64_t from = column_state_from(a.cols, c0);
    key_sum s = key_sum(-INF, 0.0, 0.0);
    if (first < 0 && part < a.n_parts && from != 0) {
        from = at4(from, a.at + 3 * part * a.dim + i);
        s.m = load_float(from);
        s.l = load_float(at4(from, a.dim));
        s.sum = load_float(at4(from, 2 * a.dim));
    }
    for (int t = max(first, 0); t < end && t < last; t++) {
        bool before = t < last - a.ratio; // a position of the previous key
        int at = (before ? 0 : (a.n_parts - 1) * a.dim) + i;
        uint64_t x = at4(a.x, int64_t(c0 + t) * a.ldx + at);
        if (a.positions == 0) {
            s.l += 1.0;
            s.sum += load_float(x);
            continue;
        }
        float score = load_float(at4(x, width)) +
                      load_float(at4(a.positions, int64_t((pos0 + t) % a.ratio) * width + at));
        float m = max(s.m, score), now = exp(score - m);
        float old = s.m == -INF ? 0.0 : exp(s.m - m);
        s.m = m;
        s.l = s.l * old + now;
        s.sum = s.sum * old + now * load_float(x);
    }
    return s;
}

void put_sum(uint64_t to, key_sum s) {
    store_float(to, s.m);
    store_float(at4(to, a.dim), s.l);
    store_float(at4(to, 2 * a.dim), s.sum);
}

// Writes the state after `end` columns. It may overwrite the state before them, so both sums are
// computed first.
void put_state(int i, int end, uint64_t to) {
    int key = (pos0 + end) / a.ratio;
    key_sum now = sum_key(i, key, end), next = key_sum(0.0, 0.0, 0.0);
    if (a.n_parts > 1) next = sum_key(i, key + 1, end);
    to = at4(to, a.at + i);
    put_sum(to, now);
    if (a.n_parts > 1) put_sum(at4(to, 3 * a.dim), next);
}

void main() {
    int c = int(gl_WorkGroupID.y), i = int(gl_GlobalInvocationID.x);
    int at = column_at(a.cols, c), pos = column_pos(a.cols, c), run = column_run(a.cols, c);
    if (i >= a.dim || (at != 0 && pos % a.ratio != 0)) return;
    c0 = c - at;
    pos0 = pos - at;
    int key = pos / a.ratio, n_keys = at == 0 ? a.n_parts : 1;
    if (at != 0 && key - pos0 / a.ratio < a.n_parts) return;
    for (; n_keys > 0; n_keys--, key++) {
        int end = (key + 1) * a.ratio - pos0;
        if (end > run) break;
        key_sum s = sum_key(i, key, end);
        // only this thread reads the last part of the column that completes the key
        uint64_t x = at4(a.x, int64_t(c0 + end - 1) * a.ldx + (a.n_parts - 1) * a.dim + i);
        store_float(x, divide(s.sum, s.l));
    }
    if (at != 0) return;
    uint64_t before = column_state_before(a.cols, c);
    if (before != 0) put_state(i, column_n_before(a.cols, c), before);
    put_state(i, run, column_state_to(a.cols, c));
}
