// blocks_score.comp: scores for sparse attention, of blocks of positions or, with BLOCKS_SUMS in
// WAY, of single index keys, which belong to positions or to compressed keys. Eight lanes share a
// key, and each lane has eight elements of it; a workgroup has 16 blocks or keys at a time.
#version 460
#include "vulkan.glsl"
#include "column.glsl"
#include "cache.glsl"

PUSHED(vulkan_blocks_args)
#include "blocks.glsl"

const int AT_ONCE = 16, EIGHTS = 4; // EIGHTS: of a lane, for keys of up to 256 elements

vec4 low[EIGHTS], high[EIGHTS]; // of the query or the key that stays

void load_eights(int lane, uint64_t key, bool is_query) {
    [[unroll]] for (int i = 0; i < EIGHTS; i++) {
        int at = lane + 8 * i;
        low[i] = high[i] = vec4(0);
        if (8 * at >= a.head_dim) continue;
        if (is_query) {
            low[i] = load_vec4(at4(key, 8 * at));
            high[i] = load_vec4(at4(key, 8 * at + 4));
        } else {
            cache_load(a.type_k, key, at, low[i], high[i]);
        }
    }
}

// The highest product of the query with the keys of a block.
void score_blocks(int c, int head, int pos, uint64_t keys) {
    int size = a.sparse_size, n_blocks = blocks_seen(pos), lane = int(gl_LocalInvocationID.x) % 8;
    uint64_t scores = scores_of(c, head);
    load_eights(lane, at4(a.q, int64_t(c) * a.ldq + head * a.head_dim), true);
    for (int base = int(gl_WorkGroupID.x) * AT_ONCE; base < n_blocks;
         base += int(gl_NumWorkGroups.x) * AT_ONCE) {
        int b = base + int(gl_LocalInvocationID.x) / 8, first = min(b, n_blocks - 1) * size;
        float most = -INF;
        for (int k = 0; k < size; k++) { // all lanes come by
            uint64_t key = keys + uint64_t(min(first + k, pos)) * a.k_row;
            float s = 0;
            [[unroll]] for (int i = 0; i < EIGHTS; i++) {
                vec4 x, y;
                if (8 * (lane + 8 * i) >= a.head_dim) continue;
                cache_load(a.type_k, key, lane + 8 * i, x, y);
                s += dot(low[i], x) + dot(high[i], y);
            }
            s = eight_add(s);
            if (s > most) most = s; // the last position again changes nothing
        }
        if (lane == 0 && b < n_blocks) store_float(at4(scores, b), most);
    }
}

// The weighted sum over the queries of max(0, query . key), of each key for `per` positions.
void score_positions(int c, int pos, uint64_t keys) {
    int per = max(a.ratio, 1), n = blocks_seen(pos), n_keys = n / per, lane = int(gl_LocalInvocationID.x) % 8;
    uint64_t scores = scores_of(c, 0), queries = at4(a.q, int64_t(c) * a.ldq);
    for (int base = int(gl_WorkGroupID.x) * AT_ONCE; base < n_keys;
         base += int(gl_NumWorkGroups.x) * AT_ONCE) {
        int p = base + int(gl_LocalInvocationID.x) / 8;
        float sum = 0;
        load_eights(lane, keys + uint64_t(min(p, n_keys - 1)) * a.k_row, false);
        for (int h = 0; h < a.n_queries; h++) {
            uint64_t q = at4(queries, int64_t(h) * a.head_dim);
            float s = 0;
            [[unroll]] for (int i = 0; i < EIGHTS; i++) {
                int at = 8 * (lane + 8 * i);
                if (at < a.head_dim)
                    s += dot(load_vec4(at4(q, at)), low[i]) + dot(load_vec4(at4(q, at + 4)), high[i]);
            }
            s = eight_add(s);
            float weight = a.weights != 0 ? load_float(at4(a.weights, int64_t(c) * a.ldw + h)) : 1.0;
            sum += weight * (s > 0.0 ? s : 0.0);
        }
        for (int i = lane; p < n_keys && i < per; i += 8) store_float(at4(scores, p * per + i), sum);
    }
    if (gl_WorkGroupID.x != 0) return;
    for (int p = n_keys * per + int(gl_LocalInvocationID.x); p < n; p += int(gl_WorkGroupSize.x))
        store_float(at4(scores, p), INF);
}

void main() {
    int c = int(gl_WorkGroupID.z), pos = column_pos(a.cols, c);
    if (attends_all(pos)) return;
    uint64_t keys = column_kv(a.cols, c) + uint64_t(column_n_ctx(a.cols, c)) * a.k_offset;
    if ((WAY & BLOCKS_SUMS) != 0) score_positions(c, pos, keys);
    else score_blocks(c, int(gl_WorkGroupID.y), pos, keys);
}
