// recur.comp: the recurrence of a head over its state (gpu_recur). A workgroup of 128 threads has 16
// rows of the state, eight lanes a row, each with every eighth element in registers, and processes a
// session's columns in order. Key, query and decays of a column are in shared memory. As in
// conv.comp, only the workgroups of a session's first column compute.
//
// WAY: RECUR_KIND bits have the kind; the rest is the number of elements of a lane.
#version 460
#include "vulkan.glsl"
#include "column.glsl"
#include "math.glsl"

STORED(vulkan_recur_args)
#define a a_stored

const uint KIND = WAY % RECUR_KINDS;
const int ELEMS = int(WAY / RECUR_KINDS), N = 8 * ELEMS;
const bool DELTAS = KIND == RECUR_DELTA || KIND == RECUR_KDA;

shared float key[N], query[N], decay[N];

float state[ELEMS];

shared vec3 part_sums[16]; // of a subgroup each

vec3 group_sum(vec3 v) {
    v = subgroupAdd(v);
    if (LANE == 0) part_sums[gl_SubgroupID] = v;
    barrier();
    vec3 sum = vec3(0);
    for (uint i = 0; i < gl_NumSubgroups; i++) sum += part_sums[i];
    return sum;
}

// Values that all elements of a head share in a column.
struct head_values {
    float decay, by; // by: factor of values
    float beta;
    uint64_t values;
};

void load_state(uint64_t from, int64_t at, int lane, bool there) {
    [[unroll]] for (int e = 0; e < ELEMS; e++) {
        int i = lane + 8 * e;
        state[e] = from != 0 && there && i < a.n_state ? load_float(at4(from, at + i)) : 0.0;
    }
}

void store_state(uint64_t to, int64_t at, int lane, bool there) {
    [[unroll]] for (int e = 0; e < ELEMS; e++) {
        int i = lane + 8 * e;
        if (there && i < a.n_state) store_float(at4(to, at + i), state[e]);
    }
}

// Loads the column's vectors of a head; the result is uniform.
head_values load_column(int64_t c, int head, int group, out vec3 products) {
    head_values v;
    uint64_t x = at4(a.x, c * a.ldx), keys, queries;
    v.decay = v.by = v.beta = 1.0;
    if (DELTAS) {
        int heads = a.n_head / a.n_group;
        bool paired = (a.flags & RECUR_PAIRED) != 0;
        uint64_t beta = at4(a.beta, c * a.ldb + (paired ? 2 * heads * group + head % heads : head));
        uint64_t alpha = paired ? at4(beta, heads) : at4(a.steps, c * a.lds + head);
        queries = at4(x, group * a.n_state);
        keys = at4(x, (a.n_group + group) * a.n_state);
        v.values = at4(x, 2 * a.n_group * a.n_state + head * a.head_dim);
        v.beta = sigmoid(load_float(beta));
        if (KIND == RECUR_DELTA)
            v.decay = exp(softplus(load_float(alpha) + load_float(at4(a.dt_bias, head))) *
                          load_float(at4(a.rates, head)));
    } else {
        keys = at4(x, a.n_head * a.head_dim + group * a.n_state);
        queries = at4(keys, a.n_group * a.n_state);
        if (a.keys != 0) {
            keys = at4(a.keys, c * a.ldk);
            queries = at4(a.queries, c * a.ldk);
        }
        v.values = at4(x, head * a.head_dim);
        if (KIND == RECUR_SSM && a.steps != 0)
            v.by = softplus(load_float(at4(a.steps, c * a.lds + head)) + load_float(at4(a.dt_bias, head)));
        if (KIND == RECUR_SSM) v.decay = exp(v.by * load_float(at4(a.rates, head)));
    }
    products = vec3(0);
    for (int i = int(gl_LocalInvocationID.x); i < N; i += 128) {
        bool there = i < a.n_state;
        float k = there ? load_float(at4(keys, i)) : 0.0, q = there ? load_float(at4(queries, i)) : 0.0;
        key[i] = k;
        query[i] = q;
        products += vec3(k * k, q * q, k * q);
        if (KIND != RECUR_KDA) continue;
        int at = head * a.n_state + (there ? i : 0);
        float step = load_float(at4(a.steps, c * a.lds + at)) + load_float(at4(a.dt_bias, at));
        float by = load_float(at4(a.rates, head));
        decay[i] = exp(a.least_decay < 0.0 ? a.least_decay * sigmoid(-by * step) : softplus(step) * by);
    }
    products = group_sum(products);
    return v;
}

// One column of a row; r is less than head_dim. Returns y in the lanes of the row.
float step_row(int64_t c, int head, int r, int lane, head_values v, vec3 products) {
    float k_scale = 1.0, q_scale = 1.0, skip = a.skip != 0 ? load_float(at4(a.skip, head)) : 0.0;
    if (DELTAS) {
        k_scale = 1.0 / max(sqrt(products.x), a.eps);
        q_scale = 1.0 / (sqrt(float(a.n_state)) * max(sqrt(products.y), a.eps));
    }
    float x = load_float(at4(v.values, r)), d = x * v.by, step = 1.0, known = 0, result = 0;
    if (KIND == RECUR_SCAN) {
        step = softplus(load_float(at4(a.steps, c * a.lds + r)) + load_float(at4(a.dt_bias, r)));
        d = x * step;
        skip = load_float(at4(a.skip, r));
    }
    [[unroll]] for (int e = 0; e < ELEMS; e++) {
        int i = lane + 8 * e;
        float by = KIND == RECUR_KDA ? decay[i] : v.decay;
        if (KIND == RECUR_SCAN)
            by = i < a.n_state ? exp(step * load_float(at4(a.rates, int64_t(r) * a.n_state + i))) : 0.0;
        state[e] *= by;
        known += state[e] * key[i];
        result += state[e] * query[i];
    }
    if (DELTAS) d = v.beta * (d - k_scale * eight_add(known));
    [[unroll]] for (int e = 0; e < ELEMS; e++) state[e] += d * k_scale * key[lane + 8 * e];
    return q_scale * (eight_add(result) + d * k_scale * products.z) + skip * x;
}

void main() {
    int chunks = (a.head_dim + 15) / 16, head = int(gl_WorkGroupID.x) / chunks;
    int row = int(gl_WorkGroupID.x) % chunks * 16 + int(gl_LocalInvocationID.x) / 8;
    int c0 = int(gl_WorkGroupID.y), lane = int(gl_LocalInvocationID.x) % 8;
    if (column_at(a.cols, c0) != 0) return;
    bool there = row < a.head_dim; // lanes of missing rows come by with the last one
    int r = there ? row : a.head_dim - 1;
    int group = (a.flags & RECUR_ALTERNATE) != 0 ? head % a.n_group : head / (a.n_head / a.n_group);
    int64_t at = a.at + (int64_t(head) * a.head_dim + r) * a.n_state;
    uint64_t before = column_state_before(a.cols, c0);
    int n_before = column_n_before(a.cols, c0);
    load_state(column_state_from(a.cols, c0), at, lane, there);
    for (int t = 0; t < column_run(a.cols, c0); t++) {
        vec3 products;
        if (t == n_before && before != 0) store_state(before, at, lane, there);
        barrier(); // the previous column has been read
        head_values v = load_column(c0 + t, head, group, products);
        float y = step_row(c0 + t, head, r, lane, v, products);
        if (there && lane == 0)
            store_float(at4(a.y, int64_t(c0 + t) * a.ldy + head * a.head_dim + r), y);
    }
    store_state(column_state_to(a.cols, c0), at, lane, there);
}
