/* adapt_neurons.c: see adapt_neurons.h. */
#include "adapt_neurons.h"

#include <stdlib.h>

#include "mem.h"

/* A move costs the GPU three copies of a row, some microseconds each, and a use costs the CPU two
 * or three reads of a row, some tenths of a microsecond. So a move pays if it saves some tens of
 * uses. By chance alone, counts of two neurons with equal probabilities rarely differ that much:
 * the difference has a standard deviation of at most 13, and of 8 at a probability of 0.1. */
enum { HALF_LIFE = 256, MARGIN = 32, PAIRS = 64 /* of a layer, every half-life */ };
static const float RATIO = 1.5f;

struct neuron_adapter {
    const plan *plan;
    float ratio, margin;
    int half_life;      /* ubatches */
    uint32_t **uses;    /* [n_layer][n_ff] by place; NULL: the layer's neurons stay */
    int n_ubatches;     /* since the last choice */
    neuron_move *queue; /* [n_layer * PAIRS] */
    int n_queued, next;
};

static const plan_ffn *gpu_ffn(const plan *p, int layer) {
    if (p->device < 0) return plan_gpu_ffn(p, p->splits[layer].device, layer);
    return &p->gpu_ffn[layer];
}

bool neurons_move(const plan *p, int layer) {
    const plan_split *split = &p->splits[layer];
    const model_layer *l = &p->model->layers[layer];
    if (!plan_has(p, layer) || l->fixed || l->hp.n_ff == 0 || split->hot == 0 ||
        split->hot == l->hp.n_ff || plan_split_end(split) != split->hot)
        return false;
    const plan_ffn *cpu = &p->ffn[layer], *gpu = gpu_ffn(p, layer);
    return cpu->mode != PI_MODE_DENSE && cpu->down.w.data && cpu->sparse && gpu->sparse &&
           !cpu->given && gpu->sparse->kernel[FORM_FEW] != KERNEL_MASKED;
}

static int64_t n_neurons(const neuron_adapter *a, int layer) {
    return a->plan->model->layers[layer].hp.n_ff;
}

pi_status neuron_adapter_create(const plan *p, const adapt_policy *policy, neuron_adapter **out,
                                pi_error *err) {
    int n_layer = p->model->hp.n_layer, n = 0;
    *out = NULL;
    for (int i = 0; i < n_layer; i++) n += neurons_move(p, i);
    if (n == 0) return PI_OK;
    neuron_adapter *a = mem_calloc(1, sizeof *a);
    if (!a) return error_nomem(err, sizeof *a, "uses of neurons");
    *a = (neuron_adapter){.plan = p,
                          .ratio = policy->ratio > 0 ? policy->ratio : RATIO,
                          .margin = policy->margin > 0 ? policy->margin : MARGIN,
                          .half_life = policy->half_life > 0 ? policy->half_life : HALF_LIFE};
    a->queue = mem_calloc((size_t)n * PAIRS, sizeof *a->queue);
    a->uses = mem_calloc((size_t)n_layer, sizeof *a->uses);
    bool made = a->queue && a->uses;
    for (int i = 0; i < n_layer && made; i++) {
        if (!neurons_move(p, i)) continue;
        a->uses[i] = mem_calloc((size_t)n_neurons(a, i), sizeof **a->uses);
        made = a->uses[i];
    }
    if (!made) {
        neuron_adapter_free(a);
        return error_nomem(err, (size_t)n * PAIRS * sizeof *a->queue, "uses of neurons");
    }
    *out = a;
    return PI_OK;
}

void neuron_adapter_free(neuron_adapter *a) {
    if (!a) return;
    for (int i = 0; i < a->plan->model->hp.n_layer && a->uses; i++) mem_free(a->uses[i]);
    mem_free(a->uses);
    mem_free(a->queue);
    mem_free(a);
}

/* ---- uses ------------------------------------------------------------------------------------ */

void neuron_adapter_count(neuron_adapter *a, int layer, int64_t first, const int32_t *rows,
                          int64_t n) {
    uint32_t *uses = a ? a->uses[layer] : NULL;
    for (int64_t i = 0; i < n && uses; i++) uses[first + rows[i]]++;
}

void neuron_adapter_count_bits(neuron_adapter *a, int layer, const uint32_t *bits, int64_t n_words,
                               int n_cols, int64_t n) {
    uint32_t *uses = a ? a->uses[layer] : NULL;
    for (int64_t at = 0; at < n && uses; at += 32) {
        uint32_t any = 0;
        for (int c = 0; c < n_cols; c++) any |= bits[c * n_words + at / 32];
        for (int64_t i = at; i < n && any; i++, any >>= 1) uses[i] += any & 1;
    }
}

void neuron_adapter_count_values(neuron_adapter *a, int layer, const float *h, int64_t ldh,
                                 int n_cols, int64_t n) {
    enum { BLOCK = 64 };
    uint32_t *uses = a ? a->uses[layer] : NULL;
    for (int64_t at = 0; at < n && uses; at += BLOCK) {
        uint32_t any[BLOCK] = {0};
        int64_t size = n - at < BLOCK ? n - at : BLOCK;
        for (int c = 0; c < n_cols; c++)
            for (int64_t i = 0; i < size; i++) any[i] |= h[c * ldh + at + i] != 0;
        for (int64_t i = 0; i < size; i++) uses[at + i] += any[i];
    }
}

/* ---- choice ---------------------------------------------------------------------------------- */

typedef struct place {
    int32_t place;
    uint32_t uses;
} place;

typedef struct place_list {
    place of[PAIRS];
    int n;
} place_list;

/* Inserts a place into a list in the order of uses, ascending or descending; the list keeps the
 * first PAIRS. Equal ones stay in the order of insertion. */
static void insert(place_list *l, bool ascends, place x) {
    int i = l->n;
    while (i > 0 && (ascends ? x.uses < l->of[i - 1].uses : x.uses > l->of[i - 1].uses)) i--;
    if (i == PAIRS) return;
    if (l->n < PAIRS) l->n++;
    for (int k = l->n - 1; k > i; k--) l->of[k] = l->of[k - 1];
    l->of[i] = x;
}

static void choose_in_layer(neuron_adapter *a, int layer) {
    const uint32_t *uses = a->uses[layer];
    int32_t hot = (int32_t)a->plan->splits[layer].hot, n = (int32_t)n_neurons(a, layer);
    place_list least = {.n = 0}, most = {.n = 0};
    /* From the coldest on: few places are inserted before others. */
    for (int32_t i = hot - 1; i >= 0; i--) insert(&least, true, (place){i, uses[i]});
    for (int32_t i = hot; i < n; i++) insert(&most, false, (place){i, uses[i]});
    for (int i = 0; i < least.n && i < most.n; i++) {
        float in = (float)most.of[i].uses, out = (float)least.of[i].uses;
        if (in <= a->ratio * out || in - out <= a->margin) return;
        a->queue[a->n_queued++] = (neuron_move){.layer = layer,
                                                .hot = least.of[i].place,
                                                .cold = most.of[i].place,
                                                .gain = most.of[i].uses - least.of[i].uses};
    }
}

static int compare_moves(const void *a, const void *b) {
    const neuron_move *x = a, *y = b;
    if (x->gain != y->gain) return x->gain < y->gain ? 1 : -1;
    if (x->layer != y->layer) return x->layer - y->layer;
    return x->hot - y->hot;
}

void neuron_adapter_end(neuron_adapter *a) {
    if (++a->n_ubatches < a->half_life) return;
    a->n_ubatches = a->n_queued = a->next = 0;
    for (int i = 0; i < a->plan->model->hp.n_layer; i++) {
        uint32_t *uses = a->uses[i];
        if (!uses) continue;
        choose_in_layer(a, i);
        for (int64_t k = 0; k < n_neurons(a, i); k++) uses[k] /= 2;
    }
    qsort(a->queue, (size_t)a->n_queued, sizeof *a->queue, compare_moves);
}

const neuron_move *neuron_adapter_next(const neuron_adapter *a) {
    return a->next < a->n_queued ? &a->queue[a->next] : NULL;
}

void neuron_adapter_finish(neuron_adapter *a) {
    const neuron_move *m = &a->queue[a->next++];
    uint32_t *uses = a->uses[m->layer], in = uses[m->cold];
    uses[m->cold] = uses[m->hot];
    uses[m->hot] = in;
}
