/* cpu_route.c: the router: a token's experts and their weights.
 *
 * Probabilities are the softmax, the sigmoid or the root of the softplus of the router's scores. A
 * token uses the n_used experts with the highest probability plus selection bias; if there are
 * groups, only experts of the best groups, where a group's score is the sum of its two best experts
 * (DeepSeek-V3, arXiv 2412.19437). In some layers of DeepSeek-V4 a table gives the experts of
 * each token of the vocabulary. Weights are the probabilities without the selection bias. With
 * expert_slack, experts in memory may replace others. */
#include <math.h>
#include <string.h>

#include "cpu_exec.h"
#include "gpu_ops.h"

/* ---- a token --------------------------------------------------------------------------------- */

/* The score of an expert that must not be chosen. */
#define NEVER (-INFINITY)
/* The least sum of weights in llama.cpp, the smallest normal half: keeps the division finite. */
#define LEAST_SUM 6.103515625e-5f

static void softmax(float *x, int n) {
    float top = NEVER, sum = 0;
    for (int i = 0; i < n; i++) top = fmaxf(top, x[i]);
    for (int i = 0; i < n; i++) sum += x[i] = expf(x[i] - top);
    for (int i = 0; i < n; i++) x[i] /= sum;
}

/* The index of the highest value, the first among equal ones; NaN counts as the lowest. */
static int best_of(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best] || (isnan(x[best]) && !isnan(x[i]))) best = i;
    return best;
}

/* Excludes experts outside the best groups. */
static void keep_groups(const plan_experts *e, float *score) {
    int n = e->n_expert / e->n_group;
    float of_group[MODEL_MAX_EXPERTS];
    bool kept[MODEL_MAX_EXPERTS] = {false};
    for (int g = 0; g < e->n_group; g++) { /* the sum of its two best experts */
        const float *of = score + g * n;
        const int best = best_of(of, n);
        float second = NEVER;
        for (int i = 0; i < n; i++)
            if (i != best && of[i] > second) second = of[i];
        of_group[g] = n > 1 ? of[best] + second : of[best];
    }
    for (int i = 0; i < e->n_group_used; i++) {
        int best = best_of(of_group, e->n_group);
        kept[best] = true;
        of_group[best] = NEVER;
    }
    for (int i = 0; i < e->n_expert; i++)
        if (!kept[i / n]) score[i] = NEVER;
}

/* The choice uses the source's order of experts, even if `prepare` has sorted them, so sums, groups
 * and ties are those of the source model. */
static int source_of(const plan_experts *e, int i) {
    return e->perm ? e->perm[i] : i;
}

/* Whether the expert is on the CPU; the others are on the GPU. */
static bool is_own(const cpu_exec *c, int layer, const plan_experts *e, int32_t expert) {
    if (e->share > 0) return e->primary == SIDE_CPU;
    return adapt_slot(c->adapter, layer, expert) >= e->hot;
}

/* Replaces chosen experts that are not in memory by the best ones that are, beginning with the
 * lowest score. The sum of the chosen probabilities stays at least 1 - slack times what it was
 * (cache-prior routing, arXiv 2412.00099). score: NaN for those that are chosen. */
static void prefer_resident(const cpu_exec *c, const plan_experts *e, int layer,
                            const float *probability, float *score, int32_t *chosen) {
    bool resident[MODEL_MAX_EXPERTS], there[MODEL_MAX_EXPERTS]; /* by place, by index in source */
    float p[MODEL_MAX_EXPERTS], left = 0;
    paging_resident_experts(c->paging, layer, resident);
    for (int i = 0; i < e->n_expert; i++)
        there[source_of(e, i)] = resident[i] || !is_own(c, layer, e, i);
    memcpy(p, probability, (size_t)e->n_expert * sizeof *p);
    if (e->gating == GATING_SOFTMAX_CHOSEN) softmax(p, e->n_expert);
    for (int k = 0; k < e->n_used; k++) left += c->expert_slack * p[chosen[k]];
    for (int k = e->n_used - 1; k >= 0; k--) {
        if (there[chosen[k]]) continue;
        int best = -1;
        for (int i = 0; i < e->n_expert; i++)
            if (there[i] && score[i] > NEVER && (best < 0 || score[i] > score[best])) best = i;
        if (best < 0 || !(p[chosen[k]] - p[best] <= left)) continue;
        left -= fmaxf(p[chosen[k]] - p[best], 0);
        chosen[k] = best;
        score[best] = NAN;
    }
}

static void route_token(cpu_exec *c, const plan_experts *e, int layer, int64_t row) {
    const float *scores = cpu_exec_row(c, BUF_ROUTER, row);
    float probability[MODEL_MAX_EXPERTS], score[MODEL_MAX_EXPERTS];
    int32_t *chosen = c->experts.chosen + row * e->n_used;
    float *weight = c->experts.weight + row * e->n_used;
    for (int i = 0; i < e->n_scored; i++) probability[source_of(e, i)] = scores[i];
    if (e->gating == GATING_SOFTMAX) softmax(probability, e->n_scored);
    if (e->gating == GATING_SIGMOID)
        for (int i = 0; i < e->n_scored; i++) probability[i] = cpu_exec_sigmoid(probability[i]);
    if (e->gating == GATING_SQRT_SOFTPLUS)
        for (int i = 0; i < e->n_scored; i++)
            probability[i] = sqrtf(cpu_exec_softplus(probability[i]));

    if (e->by_token) {
        memcpy(chosen, e->by_token + (int64_t)c->ubatch.tokens[row] * e->n_used,
               (size_t)e->n_used * sizeof *chosen);
    } else {
        memcpy(score, probability, (size_t)e->n_scored * sizeof *score);
        for (int i = 0; e->select_bias && i < e->n_scored; i++)
            score[source_of(e, i)] += e->select_bias[i];
        if (e->n_group > 1) keep_groups(e, score);
        for (int i = 0; i < e->n_used; i++) {
            chosen[i] = best_of(score, e->n_scored);
            score[chosen[i]] = NAN; /* not chosen again, even if all others are NEVER */
        }
        if (c->expert_slack > 0 && c->paging && e->share == 0 &&
            paging_has_experts(c->paging, layer) &&
            c->ubatch.item_of_row[row]->n_tokens <= PLAN_DECODE_TOKENS)
            prefer_resident(c, e, layer, probability, score, chosen);
    }
    /* Adjugate experts of the chosen experts. The factor and its rounding are llama.cpp's. */
    for (int i = 0; i < e->n_used && e->share > 0; i++)
        chosen[i] = (int32_t)((float)chosen[i] * (1 / (float)e->share));

    float sum = 0;
    for (int i = 0; i < e->n_used; i++) weight[i] = probability[chosen[i]];
    if (e->gating == GATING_SOFTMAX_CHOSEN) softmax(weight, e->n_used);
    for (int i = 0; i < e->n_used; i++) sum += weight[i];
    for (int i = 0; i < e->n_used && e->norm; i++) weight[i] /= fmaxf(sum, LEAST_SUM);
    for (int i = 0; i < e->n_used; i++) weight[i] *= e->scale;

    if (e->perm && e->share == 0) { /* from the source's order to the file's */
        int32_t place[MODEL_MAX_EXPERTS];
        for (int i = 0; i < e->n_expert; i++) place[e->perm[i]] = i;
        for (int i = 0; i < e->n_used; i++) chosen[i] = place[chosen[i]];
    }
    c->experts.shared[row] = 1;
    if (!e->shared_router) return;
    const float *y = cpu_exec_row(c, BUF_Y, row);
    double gate = 0;
    for (int64_t i = 0; i < c->model->hp.n_embd; i++)
        gate += (double)y[i] * (double)e->shared_router[i];
    c->experts.shared[row] = cpu_exec_sigmoid((float)gate);
}

/* ---- choices in messages --------------------------------------------------------------------- */

/* Reads the choices of the router on the GPU. */
static void read_choices(cpu_exec *c, int layer, const plan_experts *e, int64_t row) {
    const uint32_t *from = gpu_exec_received_choices(cpu_exec_gpu(c, layer), e, row);
    c->experts.shared[row] = 1;
    for (int64_t k = 0; k < e->n_used; k++) {
        int64_t at = row * e->n_used + k;
        c->experts.chosen[at] = adapt_expert(c->adapter, layer,
                                             (int32_t)from[GPU_CHOICE_WORDS * k]);
        memcpy(&c->experts.weight[at], &from[GPU_CHOICE_WORDS * k + 1], sizeof(float));
    }
}

static void write_choices(cpu_exec *c, int layer, const plan_experts *e, int64_t row) {
    uint32_t *to = gpu_exec_outgoing_choices(cpu_exec_gpu(c, layer), e, row);
    for (int64_t k = 0; k < e->n_used; k++) {
        int64_t at = row * e->n_used + k;
        to[GPU_CHOICE_WORDS * k] = (uint32_t)adapt_slot(c->adapter, layer, c->experts.chosen[at]);
        memcpy(&to[GPU_CHOICE_WORDS * k + 1], &c->experts.weight[at], sizeof(float));
    }
}

void cpu_exec_route(cpu_exec *c, const plan_step *s, const plan_experts *e) {
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;) {
        if (e->primary == SIDE_CPU)
            route_token(c, e, s->layer, row);
        else
            read_choices(c, s->layer, e, row);
        if (e->primary == SIDE_CPU && e->split) write_choices(c, s->layer, e, row);
    }
}

/* Requests the experts that OP_ROUTE has just chosen for the layer's input. */
void cpu_exec_prefetch_experts(cpu_exec *c, const plan_step *s, const plan_experts *e) {
    if (pool_take(c->pool, 1) > 0) return;
    paging_prefetch_experts(c->paging, s->layer, c->experts.chosen, c->ubatch.n_tokens, e->n_used);
}

/* ---- pairs by expert ------------------------------------------------------------------------- */

/* Sets the offsets of every active expert's quantized vectors. */
static void place_acts(const cpu_exec *c, unsigned kinds, int64_t n,
                       size_t *const at[CPU_ACT_KIND_COUNT]) {
    const ubatch_experts *x = &c->experts;
    enum { ALIGN = 64 };
    for (int k = 0; k < CPU_ACT_KIND_COUNT; k++) {
        cpu_act_kind kind = (cpu_act_kind)k;
        size_t used = 0;
        if (!(kinds & (1u << k))) continue;
        for (int i = 0; i < x->n_active; i++) {
            int expert = x->active[i], n_cols = x->first[expert + 1] - x->first[expert];
            at[k][expert] = used;
            used += cpu_act_bytes(kind, cpu_exec_expert_layout(c, kind, n_cols), n, n_cols);
            used = (used + ALIGN - 1) / ALIGN * ALIGN;
        }
    }
}

void cpu_exec_watch_experts(cpu_exec *c, int layer, const int32_t *experts, int n) {
    if (!c->activity || c->ubatch.form == FORM_MANY) return;
    activity_add_experts(c->activity, layer, &c->plan->experts[layer], c->adapter, experts, n);
}

/* A counting sort by one thread, while the others wait. */
void cpu_exec_group(cpu_exec *c, const plan_step *s, const plan_experts *e) {
    ubatch_experts *x = &c->experts;
    int n_pairs = c->ubatch.n_tokens * e->n_used;
    if (pool_take(c->pool, 1) > 0) return;
    x->from_norm = cpu_exec_layout(c, s) == CPU_ACT_COLUMNS && !e->weigh_input;
    memset(x->first, 0, ((size_t)e->n_expert + 1) * sizeof *x->first);
    for (int i = 0; i < n_pairs; i++)
        if (is_own(c, s->layer, e, x->chosen[i])) x->first[x->chosen[i] + 1]++;
    x->n_active = 0;
    for (int i = 0; i < e->n_expert; i++) {
        if (x->first[i + 1] > 0) x->active[x->n_active++] = i;
        x->first[i + 1] += x->first[i];
    }
    for (int i = e->n_expert; i < c->plan->n_expert; i++) x->first[i + 1] = x->first[i];
    if (e->primary == SIDE_CPU && e->share == 0) { /* the CPU's router chose them */
        uint64_t *uses = x->uses + (size_t)s->layer * (size_t)c->plan->n_expert;
        for (int i = 0; i < n_pairs; i++) uses[x->chosen[i]]++;
        for (int i = 0; i < n_pairs && c->adapter; i++)
            adapt_count(c->adapter, s->layer, x->chosen[i], 1);
        cpu_exec_watch_experts(c, s->layer, x->chosen, n_pairs);
    }
    for (int i = 0; i < n_pairs; i++) { /* moves `first`, which the next loop restores */
        x->pair[i] = -1;
        if (!is_own(c, s->layer, e, x->chosen[i])) continue;
        int32_t pair = x->first[x->chosen[i]]++;
        x->pair[i] = pair;
        x->token[pair] = i / e->n_used;
    }
    for (int i = e->n_expert; i > 0; i--) x->first[i] = x->first[i - 1];
    x->first[0] = 0;
    if (c->paging && e->share == 0 && paging_has_experts(c->paging, s->layer))
        paging_activate(c->paging, s->layer, x->active, x->n_active);
    place_acts(c, e->in_kinds, e->n_embd, x->in_at);
    place_acts(c, e->down_kinds, e->n_ff, x->hidden_at);
    place_acts(c, e->pred_kinds, e->fc1.w.n_out, x->pred_at);
}
