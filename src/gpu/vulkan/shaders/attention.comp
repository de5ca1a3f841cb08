// attention.comp: softmax(Q K^T) V over the cache, in tiles of 64 positions with an online softmax.
// A workgroup of 128 threads computes up to COLS queries that share a KV head, over one part of the
// positions: a key is read once for all of them. Eight lanes share a key; v_dim / 8 threads share a
// value. Sparse attention (WAY) reads the positions of a list, or the blocks that are not left out.
// The rows of compressed keys precede those of the window.
#version 460
#include "vulkan.glsl"
#include "math.glsl"
#include "column.glsl"
#include "cache.glsl"

STORED(vulkan_attention_args)
#define a a_stored
#include "attention.glsl"
#include "blocks.glsl"

const int TILE = 64, MOST = 4; // positions; queries

shared vec4 query[MOST][144]; // scaled, up to 576 elements
shared float weight[MOST][TILE];
shared float top[MOST], total[MOST], shrink[MOST];
shared vec4 sums[2 * 128]; // of a query: groups of threads, their eights

// Multiplies the queries by Hadamard matrices, as the rows of MLA are.
void spread_queries(int n_queries, int size) {
    float scale = 1.0 / sqrt(float(size));
    for (int part = 1; part < size; part *= 2) {
        for (int i = int(gl_LocalInvocationID.x); i < n_queries * a.head_dim / 2; i += 128) {
            int h = 2 * i / a.head_dim, k = i - h * a.head_dim / 2, at = 2 * k - (k & (part - 1));
            float x = query[h][at / 4][at % 4], y = query[h][(at + part) / 4][(at + part) % 4];
            float by = part == 1 ? scale : 1.0;
            query[h][at / 4][at % 4] = by * (x + y);
            query[h][(at + part) / 4][(at + part) % 4] = by * (x - y);
        }
        barrier();
    }
}

// Scores to weights, 0 from n on: a subgroup has a query.
void soften(int n, int n_queries, int first_head, int distance) {
    for (int h = int(gl_SubgroupID); h < n_queries; h += int(gl_NumSubgroups)) {
        float before = top[h], most = before, sum = 0;
        float slope = a.slopes != 0 ? load_float(at4(a.slopes, first_head + h)) : 0.0;
        for (int i = LANE; i < n; i += LANES) {
            float s = weight[h][i];
            if (a.softcap > 0.0) s = a.softcap * tanh_of(s / a.softcap);
            s += slope * float(distance + i);
            weight[h][i] = s;
            most = max(most, s);
        }
        most = subgroupMax(most);
        for (int i = LANE; i < TILE; i += LANES) {
            float w = i < n ? exp(weight[h][i] - most) : 0.0;
            weight[h][i] = w;
            sum += w;
        }
        sum = subgroupAdd(sum);
        subgroupBarrier();
        if (LANE == 0) {
            float keep = before == -INF ? 0.0 : exp(before - most);
            shrink[h] = keep;
            total[h] = total[h] * keep + sum;
            top[h] = most;
        }
    }
}

const bool LISTED = (WAY & ATTENTION_LISTED) != 0, BLOCKS = (WAY & ATTENTION_BLOCKS) != 0;
const bool COMPRESSED = (WAY & ATTENTION_COMPRESSED) != 0;

// The rows that a token attends to: n_first listed rows or compressed keys, then positions: row i
// is position i - n_first + first_position.
int n_first = 0, first_position = 0;
uint64_t list = 0; // indices of the first rows; 0: all compressed keys

// Sets these variables; returns the first row and the number of rows.
uvec2 find_rows(int c, int pos) {
    uint seen = first_seen(uint(pos)), n = uint(pos) + 1 - seen;
    if (!LISTED && !COMPRESSED) return uvec2(seen, n);
    if (LISTED && !attends_all(pos)) list = list_of(c);
    if (list != 0) n_first = a.sparse_top;
    else if (COMPRESSED) n_first = (pos + 1) / a.ratio;
    first_position = int(seen);
    return uvec2(0, COMPRESSED || list == 0 ? n_first + n : n_first);
}

uint64_t row_at(uint64_t first, uint64_t positions, uint64_t n_bytes, int i) {
    if (!LISTED && !COMPRESSED) return positions + uint64_t(i) * n_bytes;
    if (i >= n_first) return positions + uint64_t(i - n_first + first_position) * n_bytes;
    return first + uint64_t(list != 0 ? load_int(at4(list, i)) : i) * n_bytes;
}

void main() {
    int t = int(gl_LocalInvocationID.x);
    int group = a.n_head / a.n_head_kv, chunks = (group + int(COLS) - 1) / int(COLS);
    int kv_head = int(gl_WorkGroupID.x) / chunks, chunk = int(gl_WorkGroupID.x) % chunks;
    int first_head = kv_head * group + chunk * int(COLS);
    int n_queries = min(group - chunk * int(COLS), int(COLS));
    int split = int(gl_WorkGroupID.y), c = int(gl_WorkGroupID.z);
    int pos = column_pos(a.cols, c), n_ctx = column_n_ctx(a.cols, c);
    uint64_t kv = column_kv(a.cols, c);
    bool chooses = BLOCKS && !attends_all(pos);
    uint64_t scores = chooses ? scores_of(c, kv_head) : 0;
    uint64_t k = kv + uint64_t(n_ctx) * a.k_offset +
                 uint64_t(kv_head * cache_head_bytes(a.type_k, a.head_dim));
    uint64_t v = kv + uint64_t(n_ctx) * a.v_offset +
                 uint64_t(kv_head * cache_head_bytes(a.type_v, a.v_dim));
    uint64_t first_k = k, first_v = v;
    if (COMPRESSED) first_k = first_v = kv + uint64_t(n_ctx) * a.compressed;
    uvec2 range = part_of(find_rows(c, pos), uint(split));
    int begin = int(range.x), end = begin + int(range.y);

    float scale = scale_at(pos);
    for (int h = 0; h < n_queries; h++) {
        int stride = a.q_stride != 0 ? a.q_stride : a.head_dim;
        uint64_t q = at4(a.q, int64_t(c) * a.ldq + (first_head + h) * stride);
        for (int i = t; 4 * i < a.head_dim; i += 128) query[h][i] = scale * load_vec4(at4(q, 4 * i));
    }
    if (t < MOST) {
        top[t] = -INF;
        total[t] = 0;
    }
    int eights = a.v_dim / 8, groups = 128 / eights, my_group = t / eights, my_eight = t % eights;
    vec4 low[MOST], high[MOST];
    [[unroll]] for (int h = 0; h < MOST; h++) low[h] = high[h] = vec4(0);
    barrier();
    if (a.q_hadamard != 0) spread_queries(n_queries, a.q_hadamard);

    for (int at = begin, n; at < end; at += n) {
        n = min(end - at, TILE);
        if (chooses) {
            int block = at / a.sparse_size, rest = (block + 1) * a.sparse_size - at;
            n = min(n, rest);
            if (load_float(at4(scores, block)) == -INF) {
                n = rest;
                continue;
            }
        }
        for (int j = t / 8; j < TILE; j += 16) { // all lanes come by
            float s[MOST];
            [[unroll]] for (int h = 0; h < MOST; h++) s[h] = 0;
            uint64_t key = row_at(first_k, k, a.k_row, at + min(j, n - 1));
            for (int i = t % 8; 8 * i < a.head_dim; i += 8) {
                vec4 x, y;
                cache_load(a.type_k, key, i, x, y);
                [[unroll]] for (int h = 0; h < int(COLS); h++)
                    s[h] += dot(query[h][2 * i], x) + dot(query[h][2 * i + 1], y);
            }
            [[unroll]] for (int h = 0; h < int(COLS); h++) {
                float sum = eight_add(s[h]);
                if (t % 8 == 0 && h < n_queries) weight[h][j] = sum;
            }
        }
        barrier();
        soften(n, n_queries, first_head, at - pos);
        barrier();
        [[unroll]] for (int h = 0; h < int(COLS); h++) {
            low[h] *= shrink[h];
            high[h] *= shrink[h];
        }
        for (int j = my_group; my_group < groups && j < n; j += groups) {
            vec4 x, y;
            cache_load(a.type_v, row_at(first_v, v, a.v_row, at + j), my_eight, x, y);
            [[unroll]] for (int h = 0; h < int(COLS); h++) {
                low[h] += weight[h][j] * x;
                high[h] += weight[h][j] * y;
            }
        }
        barrier();
    }

    [[unroll]] for (int h = 0; h < int(COLS); h++) {
        sums[2 * t] = low[h];
        sums[2 * t + 1] = high[h];
        barrier();
        int head_at = first_head + h;
        float factor = a.n_splits == 1 ? share_of(head_at, top[h], total[h]) : 1.0;
        for (int i = t; h < n_queries && i < 2 * eights; i += 128) {
            vec4 sum = vec4(0);
            for (int g = 0; g < groups; g++) sum += sums[2 * g * eights + i];
            sum *= factor;
            if (a.n_splits == 1) {
                uint64_t to = at4(a.result, int64_t(c) * a.ldo + head_at * a.v_dim + 4 * i);
                for (int e = 0; e < 4; e++)
                    store_float(at4(to, e),
                                a.v_hadamard != 0 ? sum[e] : sum[e] * gate_at(c, head_at, 4 * i + e));
            } else {
                store_vec4(at4(part_sums(c, head_at, split), 4 * i), sum);
            }
        }
        if (a.n_splits > 1 && t == 0 && h < n_queries) {
            store_float(part_state(c, head_at, split), top[h]);
            store_float(part_state(c, head_at, split) + 4, total[h]);
        }
        barrier();
    }
}
