/* adapt.c: see adapt.h. */
#include "adapt.h"

#include <math.h>

#include "mem.h"

/* The last HALF_LIFE tokens, the length of a topic, make up half of an expert's usage. A swap moves
 * the bytes of an expert over the bus once. If within that span an expert on the CPU is chosen
 * `margin` times more often than the one that it replaces, the swap saves as many reads. */
enum { HALF_LIFE = 256, SLICE_BYTES = 256 << 10, AGEING = 16 /* tokens at a time */ };
static const float RATIO = 1.5f, MARGIN = 8;

struct expert_adapter {
    const plan *plan;
    adapt_policy policy;
    int n_expert;
    float *usage;     /* [n_layer][n_expert] */
    int32_t *slots;   /* [n_layer][n_expert] */
    int32_t *experts; /* [n_layer][n_expert + 1], by slot; -1: none */
    int32_t *spare;   /* [n_layer]; -1: the layer is not adapted */
    int64_t n_ageing; /* tokens that have not aged usage yet */
    bool swaps;       /* `swap` is under way */
    adapt_swap swap;
};

static bool is_adapted(const plan_experts *e) {
    return e->n_expert > 0 && e->hot >= 2 && e->hot < e->n_expert;
}

static size_t at(const expert_adapter *a, int layer) {
    return (size_t)layer * (size_t)a->n_expert;
}

static int32_t *experts_of(const expert_adapter *a, int layer) {
    return a->experts + at(a, layer) + layer;
}

bool adapt_applies(const plan *p) {
    bool any = false;
    for (int i = 0; i < p->model->hp.n_layer; i++)
        any = any || (plan_has(p, i) && is_adapted(&p->experts[i]));
    return any;
}

pi_status adapt_create(const plan *p, const adapt_policy *policy, expert_adapter **out,
                       pi_error *err) {
    size_t n_layer = (size_t)p->model->hp.n_layer, n = n_layer * (size_t)p->n_expert;
    *out = NULL;
    if (!adapt_applies(p)) return PI_OK;
    expert_adapter *a = mem_calloc(1, sizeof *a);
    if (!a) return error_nomem(err, sizeof *a, "counts of experts");
    *a = (expert_adapter){.plan = p, .policy = *policy, .n_expert = p->n_expert};
    if (a->policy.ratio <= 0) a->policy.ratio = RATIO;
    if (a->policy.margin <= 0) a->policy.margin = MARGIN;
    if (a->policy.half_life <= 0) a->policy.half_life = HALF_LIFE;
    a->usage = mem_calloc(n, sizeof *a->usage);
    a->slots = mem_calloc(n, sizeof *a->slots);
    a->experts = mem_calloc(n + n_layer, sizeof *a->experts);
    a->spare = mem_calloc(n_layer, sizeof *a->spare);
    if (!a->usage || !a->slots || !a->experts || !a->spare) {
        adapt_free(a);
        return error_nomem(err, n * sizeof *a->usage, "counts of experts");
    }
    for (int layer = 0; layer < p->model->hp.n_layer; layer++) {
        const plan_experts *e = &p->experts[layer];
        int32_t *slots = a->slots + at(a, layer), *experts = experts_of(a, layer);
        for (int32_t i = 0; i < e->n_expert; i++) slots[i] = experts[i] = i;
        experts[a->n_expert] = -1;
        a->spare[layer] = -1;
        if (!is_adapted(e)) continue;
        /* The last hot expert in the order of the file gives up its slot, which becomes the spare
         * one. It gets slot n_expert, which follows the slots of all experts. */
        const int32_t last = (int32_t)e->hot - 1;
        a->spare[layer] = last;
        experts[last] = -1;
        slots[last] = a->n_expert;
        experts[a->n_expert] = last;
    }
    *out = a;
    return PI_OK;
}

void adapt_free(expert_adapter *a) {
    if (!a) return;
    mem_free(a->usage);
    mem_free(a->slots);
    mem_free(a->experts);
    mem_free(a->spare);
    mem_free(a);
}

const int32_t *adapt_slots(const expert_adapter *a, int layer) {
    return a ? a->slots + at(a, layer) : NULL;
}

int32_t adapt_expert(const expert_adapter *a, int layer, int32_t slot) {
    return a ? experts_of(a, layer)[slot] : slot;
}

/* ---- usage ----------------------------------------------------------------------------------- */

void adapt_count(expert_adapter *a, int layer, int32_t expert, int n) {
    a->usage[at(a, layer) + (size_t)expert] += (float)n;
}

static void age(expert_adapter *a, int n_tokens) {
    a->n_ageing += n_tokens;
    if (a->n_ageing < AGEING) return;
    float left = exp2f(-(float)a->n_ageing / (float)a->policy.half_life);
    size_t n = at(a, a->plan->model->hp.n_layer);
    for (size_t i = 0; i < n; i++) a->usage[i] *= left;
    a->n_ageing = 0;
}

bool adapt_pick(expert_adapter *a, int n_tokens, adapt_swap *out) {
    float best = 0;
    age(a, n_tokens);
    for (int layer = 0; layer < a->plan->model->hp.n_layer; layer++) {
        if (a->spare[layer] < 0) continue;
        const plan_experts *e = &a->plan->experts[layer];
        const float *usage = a->usage + at(a, layer);
        const int32_t *slots = adapt_slots(a, layer);
        /* The most used expert on the CPU and the least used one on the GPU. */
        adapt_swap s = {.layer = layer, .in = -1, .out = -1, .slot = a->spare[layer]};
        for (int32_t i = 0; i < e->n_expert; i++) {
            bool hot = slots[i] < e->hot;
            if (hot && (s.out < 0 || usage[i] < usage[s.out])) s.out = i;
            if (!hot && (s.in < 0 || usage[i] > usage[s.in])) s.in = i;
        }
        const float in = usage[s.in], gain = in - usage[s.out];
        if (in <= a->policy.ratio * usage[s.out] || gain <= a->policy.margin || gain <= best)
            continue;
        best = gain;
        *out = s;
    }
    return best > 0;
}

void adapt_finish(expert_adapter *a, const adapt_swap *s) {
    int32_t *slots = a->slots + at(a, s->layer), *experts = experts_of(a, s->layer);
    int32_t left = slots[s->out], remote = slots[s->in];
    slots[s->in] = s->slot;
    experts[s->slot] = s->in;
    slots[s->out] = remote;
    experts[remote] = s->out;
    experts[left] = -1;
    a->spare[s->layer] = left;
    a->swaps = false;
}

/* ---- between ubatches ------------------------------------------------------------------------ */

const adapt_swap *adapt_next(expert_adapter *a, int n_tokens, bool *begins) {
    *begins = !a->swaps;
    if (a->swaps)
        age(a, n_tokens);
    else
        a->swaps = adapt_pick(a, n_tokens, &a->swap);
    return a->swaps ? &a->swap : NULL;
}

size_t adapt_slice_bytes(const adapt_policy *policy) {
    return (size_t)(policy->slice_bytes > 0 ? policy->slice_bytes : SLICE_BYTES);
}

void adapt_drop(expert_adapter *a) {
    a->swaps = false;
}
