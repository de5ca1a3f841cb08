// route.comp: a workgroup of 64 threads chooses the experts of a column, as gpu_route says.
#version 460
#include "vulkan.glsl"
#include "block.glsl"
#include "column.glsl"

PUSHED(vulkan_route_args)

const int MOST = 1024;
shared float probability[MOST], score[MOST], best_score[64];
shared int place[MOST], chosen[MOST], best_at[64];
shared uint taken[MOST / 32];

#define THREAD int(gl_LocalInvocationID.x)

float highest(float v) {
    best_score[THREAD] = v;
    barrier();
    float top = -INF;
    for (int i = 0; i < 64; i++) top = max(top, best_score[i]);
    barrier();
    return top;
}

// Keeps only experts of the best groups; a group's value is the sum of its two highest scores. Drops the
// worst group, of equal ones the last. One thread.
void keep_groups() {
    int n = a.n_expert / a.n_group;
    for (int g = 0; g < a.n_group; g++) {
        float first = -INF, second = -INF;
        for (int i = g * n; i < (g + 1) * n; i++) {
            float x = score[i];
            second = x > first ? first : max(second, x);
            first = max(first, x);
        }
        best_score[g] = n > 1 ? first + second : first;
    }
    uint64_t dropped = 0;
    for (int k = a.n_group_used; k < a.n_group; k++) {
        int worst = -1;
        for (int g = 0; g < a.n_group; g++)
            if ((dropped >> g & 1ul) == 0 && (worst < 0 || best_score[g] <= best_score[worst]))
                worst = g;
        if (worst < 0) break;
        for (int i = worst * n; i < (worst + 1) * n; i++) score[i] = -INF;
        dropped |= 1ul << worst;
    }
}

// The best remaining expert, of equal ones the first.
int take_best() {
    float best = -INF;
    int at = a.n_expert;
    for (int i = THREAD; i < a.n_expert; i += 64) {
        if ((taken[i / 32] >> (i % 32) & 1u) != 0) continue;
        float x = score[i];
        if (x > best || (x == best && i < at)) {
            best = x;
            at = i;
        }
    }
    best_score[THREAD] = best;
    best_at[THREAD] = at;
    barrier();
    for (int i = 0; i < 64; i++) {
        if (best_score[i] > best || (best_score[i] == best && best_at[i] < at)) {
            best = best_score[i];
            at = best_at[i];
        }
    }
    barrier();
    int found = at < a.n_expert ? at : 0;
    if (THREAD == 0) taken[found / 32] |= 1u << (found % 32);
    barrier();
    return found;
}

// One thread.
void write_choices(int c) {
    const float least_sum = 6.103515625e-5; // of the weights: the smallest normal half
    uint64_t to = at4(a.choices, int64_t(c) * a.n_used * 2);
    bool soft_chosen = a.gating == GATING_SOFTMAX_CHOSEN;
    float top = -INF, sum = 0, all = 0;
    for (int k = 0; k < a.n_used; k++) top = max(top, probability[chosen[k]]);
    for (int k = 0; k < a.n_used && soft_chosen; k++) all += exp(probability[chosen[k]] - top);
    for (int k = 0; k < a.n_used; k++) {
        float p = probability[chosen[k]];
        sum += soft_chosen ? exp(p - top) / all : p;
    }
    bool sends = a.epoch != 0 && load_u64(a.epoch) != 0;
    for (int k = 0; k < a.n_used; k++) {
        float p = probability[chosen[k]], weight = soft_chosen ? exp(p - top) / all : p;
        if (a.norm != 0) weight /= max(sum, least_sum);
        int expert = a.share > 0 ? chosen[k] : place[chosen[k]];
        if (a.uses != 0) count_at(at4(a.uses, expert), 1);
        uint slot = uint(a.slots != 0 ? load_int(at4(a.slots, expert)) : expert);
        store_word(at4(to, 2 * k), slot);
        store_float(at4(to, 2 * k + 1), weight * a.scale);
        if (!sends) continue;
        uint64_t host = at4(a.host_bits, (int64_t(c) * a.n_used + k) * 2);
        store_word(host, slot);
        store_float(host + 4, weight * a.scale);
    }
}

void main() {
    int c = int(gl_WorkGroupID.x);
    for (int i = THREAD; i < a.n_expert; i += 64) {
        int source = a.perm != 0 ? load_int(at4(a.perm, i)) : i;
        probability[source] = load_float(at4(a.scores, int64_t(c) * a.lds + i));
        score[source] = a.select_bias != 0 ? load_float(at4(a.select_bias, i)) : 0.0;
        place[source] = i;
    }
    for (int i = THREAD; i < MOST / 32; i += 64) taken[i] = 0;
    barrier();
    float top = -INF, sum = 0;
    for (int i = THREAD; i < a.n_expert; i += 64) top = max(top, probability[i]);
    top = highest(top);
    for (int i = THREAD; i < a.n_expert; i += 64) {
        float x = probability[i];
        if (a.gating == GATING_SOFTMAX) sum += probability[i] = exp(x - top);
        if (a.gating == GATING_SIGMOID) probability[i] = 1.0 / (1.0 + exp(-x));
        if (a.gating == GATING_SQRT_SOFTPLUS) {
            float e = exp(min(x, 20.0)); /* ln(1 + e); a series where 1 + e would lose digits */
            float log1p = e < 0.01 ? e * (1.0 - e * (0.5 - e / 3.0)) : log(1.0 + e);
            probability[i] = sqrt(x > 20.0 ? x : log1p);
        }
    }
    sum = block_sum(sum);
    for (int i = THREAD; i < a.n_expert; i += 64) {
        if (a.gating == GATING_SOFTMAX) probability[i] /= sum;
        score[i] += probability[i];
    }
    barrier();
    if (a.n_group > 1 && THREAD == 0) keep_groups();
    barrier();
    uint64_t listed = a.by_token; // experts listed for the token; 0: select the best
    if (listed != 0) listed = at4(listed, int64_t(column_token(a.cols, c)) * a.n_used);
    for (int k = 0; k < a.n_used; k++) {
        int found = listed != 0 ? load_int(at4(listed, k)) : take_best();
        // The factor and the rounding are llama.cpp's.
        if (a.share > 0) found = int(float(found) * (1.0 / float(a.share)));
        if (THREAD == 0) chosen[k] = found;
    }
    barrier();
    if (THREAD == 0) write_choices(c);
}
