/* prepare_threshold.c: models whose activations are hardly ever exactly zero. Where |f(gate)| is
 * small, `up` and `down` of that neuron change little (CATS, Lee et al. 2024). How much depends on
 * the neuron: its magnitude is |f(gate)| times the mean of |up| (weighted by |f(gate)|) and times
 * the length of its row of down. Once `up` is known, `down` is left out where the hidden value
 * |f(gate) up| is small. Thresholds of a layer are quantiles of these magnitudes, the same
 * quantiles in all layers. The caller measures the effect on the model.
 *
 * Magnitudes are sorted into bins by the upper bits of the float: 32 bins per factor of two, so
 * that thresholds are precise to 3% without sorting millions of values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "prepare.h"

enum {
    GROUP = 64, /* tokens per product, a few panels */
    BIN_SHIFT =
        18, /* low bits of a float that do not select the bin: 23 - 5 bits of the mantissa */
    BINS = 1 << (31 - BIN_SHIFT)
};

/* Magnitudes by bin. */
typedef struct bins {
    double count[BINS];
    double total;
    uint8_t rank[BINS]; /* thresholds below the bin, besides [0] */
} bins;

typedef struct cut_profile {
    preparation *p;
    const cpu_kernels *kernels;
    const model_layer *layer;
    const prepare_sample *in;
    bins *activation, *hidden;
    cpu_mat gate;
    cpu_act act;
    size_t act_bytes, scratch_bytes; /* scratch bytes of one thread */
    uint8_t *scratch;                /* [n_threads][scratch_bytes] */
    float *values;                   /* [GROUP][n_ff] */
    float *weight;                   /* [n_ff] factors of |f(gate)| */
} cut_profile;

static int bin_of(float magnitude) {
    uint32_t bits;
    memcpy(&bits, &magnitude, sizeof bits);
    return (int)((bits & 0x7FFFFFFF) >> BIN_SHIFT);
}

/* The largest float of a bin. */
static float bin_end(int bin) {
    uint32_t bits = ((uint32_t)bin + 1) << BIN_SHIFT;
    float value;
    bits--;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- gates ----------------------------------------------------------------------------------- */

static void multiply(void *arg, int ith, int nth) {
    cut_profile *c = arg;
    const cpu_mat *w = &c->gate;
    (void)nth;
    for (int64_t row; (row = CPU_ROW_TILE * pool_take(c->p->pool, 1)) < w->n_out;) {
        int64_t end = row + CPU_ROW_TILE < w->n_out ? row + CPU_ROW_TILE : w->n_out;
        c->kernels->mat[w->type].matmul(w, row, end, &c->act, c->values, w->n_out,
                                        c->scratch + (size_t)ith * c->scratch_bytes);
    }
}

/* values = |f(gate)| of tokens [t0, t0 + n), as the engine computes it. */
static void compute_gates(cut_profile *c, int64_t t0, int64_t n) {
    const model *m = c->p->model;
    const model_tensor *t = &c->layer->t[ROLE_FFN_GATE];
    const float *bias = c->layer->t[ROLE_FFN_GATE_BIAS].data;
    bool last = arch_tensor_whole(m->arch, ROLE_FFN_GATE)->flags & TENSOR_SCALE_LAST;
    int64_t n_embd = m->hp.n_embd, n_ff = c->gate.n_out;
    c->act.n_cols = n;
    c->kernels->act_encode(c->in->x + t0 * n_embd, n_embd, 0, n, &c->act);
    pool_run(c->p->pool, pool_size(c->p->pool), multiply, c);
    for (int64_t i = 0; i < n; i++) {
        float *v = c->values + i * n_ff;
        for (int64_t k = 0; k < n_ff && (bias || t->scale != 1); k++) {
            float b = bias ? bias[k] : 0;
            v[k] = last ? (v[k] + b) * t->scale : v[k] * t->scale + b;
        }
        c->kernels->activate(m->hp.activation, m->hp.activation_threshold, v, NULL, v, n_ff);
    }
}

/* Weights from all tokens. Without a gate the activation is the whole hidden value. */
static pi_status weigh_neurons(cut_profile *c, pi_error *err) {
    const prepare_sample *in = c->in;
    int64_t n_ff = c->layer->hp.n_ff;
    memcpy(c->weight, in->down_norm, (size_t)n_ff * sizeof *c->weight);
    if (!c->layer->t[ROLE_FFN_GATE].data) return PI_OK;
    double *hidden = mem_calloc((size_t)n_ff, sizeof *hidden);
    double *gate = mem_calloc((size_t)n_ff, sizeof *gate);
    pi_status status = PI_OK;
    if (!hidden || !gate)
        status = error_nomem(err, 2 * (size_t)n_ff * sizeof *gate, "means of neurons");
    for (int64_t t0 = 0; t0 < in->n && status == PI_OK; t0 += GROUP) {
        int64_t n = in->n - t0 < GROUP ? in->n - t0 : GROUP;
        compute_gates(c, t0, n);
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < n_ff; k++) {
                double h = fabs((double)in->hidden[(t0 + i) * n_ff + k]);
                if (!isfinite(h)) continue;
                hidden[k] += h;
                gate[k] += fabs((double)c->values[i * n_ff + k]);
            }
    }
    for (int64_t k = 0; k < n_ff && status == PI_OK; k++)
        c->weight[k] *= gate[k] > 0 ? (float)(hidden[k] / gate[k]) : 0.0f;
    mem_free(hidden);
    mem_free(gate);
    return status;
}

/* The magnitude of neuron k's activation in the i-th token of a group from t0 on. */
static float size_of(const cut_profile *c, int64_t t0, int64_t i, int64_t k) {
    int64_t n_ff = c->layer->hp.n_ff;
    float hidden = c->in->hidden[(t0 + i) * n_ff + k];
    return fabsf(c->gate.data ? c->values[i * n_ff + k] : hidden) * c->weight[k];
}

/* Adds tokens [t0, t0 + n) to the bins. */
static void count_group(cut_profile *c, int64_t t0, int64_t n) {
    int64_t n_ff = c->layer->hp.n_ff;
    if (c->gate.data) compute_gates(c, t0, n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n_ff; k++) {
            float hidden = fabsf(c->in->hidden[(t0 + i) * n_ff + k]);
            if (!isfinite(hidden * c->in->down_norm[k])) continue;
            c->activation->count[bin_of(size_of(c, t0, i, k))]++;
            c->hidden->count[bin_of(hidden)]++;
        }
}

/* Sets the thresholds: quantiles of the bins. */
static void find_quantiles(bins *b, float cuts[PREPARE_CUT_STEPS]) {
    int bin = 0;
    double below = 0;
    for (int i = 0; i < BINS; i++) b->total += b->count[i];
    for (int k = 1; k < PREPARE_CUT_STEPS; k++) {
        for (; bin < BINS && below < b->total * k / PREPARE_CUT_STEPS; bin++) {
            b->rank[bin] = (uint8_t)(k - 1);
            below += b->count[bin];
        }
        cuts[k] = bin ? bin_end(bin - 1) : 0;
    }
    memset(b->rank + bin, PREPARE_CUT_STEPS - 1, (size_t)(BINS - bin));
}

/* Adds tokens [t0, t0 + n) to the sums; replaces their hidden values by magnitudes. */
static void add_group(cut_profile *c, int64_t t0, int64_t n, prepare_cuts *out) {
    int64_t n_ff = c->layer->hp.n_ff;
    if (c->gate.data) compute_gates(c, t0, n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n_ff; k++) {
            float *hidden = c->in->hidden + (t0 + i) * n_ff + k, size = size_of(c, t0, i, k);
            float part = fabsf(*hidden) * c->in->down_norm[k];
            int a = c->activation->rank[bin_of(size)];
            int h = c->gate.data ? c->hidden->rank[bin_of(*hidden)] : 0;
            *hidden = size;
            if (!isfinite(part)) continue;
            out->count[a][h]++;
            out->part[a][h] += (double)part;
            out->square[a][h] += (double)part * (double)part;
        }
}

/* ---- a layer --------------------------------------------------------------------------------- */

static void release(cut_profile *c) {
    mem_unmap(c->act.data, c->act_bytes);
    mem_unmap(c->scratch, c->scratch_bytes * (size_t)pool_size(c->p->pool));
    mem_free(c->values);
    mem_free(c->weight);
    mem_free(c->activation);
    mem_free(c->hidden);
}

static pi_status allocate(cut_profile *c, pi_error *err) {
    size_t n_ff = (size_t)c->layer->hp.n_ff;
    c->weight = mem_alloc(n_ff * sizeof *c->weight);
    if (!c->weight) return error_nomem(err, n_ff * sizeof *c->weight, "factors of neurons");
    c->activation = mem_calloc(1, sizeof *c->activation);
    c->hidden = mem_calloc(1, sizeof *c->hidden);
    if (!c->activation || !c->hidden)
        return error_nomem(err, 2 * sizeof *c->hidden, "a profile of activations");
    const model_tensor *t = &c->layer->t[ROLE_FFN_GATE];
    if (!t->data) return PI_OK;
    c->gate = (cpu_mat){t->data, t->row_bytes, t->n_in, t->n_out, t->type};
    c->act = (cpu_act){
        .kind = c->kernels->mat[t->type].act, .layout = CPU_ACT_PANELS, .n = t->n_in};
    c->act_bytes = cpu_act_bytes(c->act.kind, CPU_ACT_PANELS, t->n_in, GROUP);
    c->scratch_bytes = CPU_SCRATCH_BYTES;
    size_align(c->scratch_bytes, MEM_CACHE_LINE, &c->scratch_bytes);
    c->act.data = mem_map(c->act_bytes);
    c->scratch = mem_map(c->scratch_bytes * (size_t)pool_size(c->p->pool));
    c->values = mem_calloc(GROUP * n_ff, sizeof *c->values);
    if (c->act.data && c->scratch && c->values) return PI_OK;
    return error_nomem(err, c->act_bytes + GROUP * n_ff * sizeof *c->values, "gates of a sample");
}

static pi_status order_neurons(cut_profile *c, prepare_layer *out, pi_error *err) {
    int64_t n_ff = c->layer->hp.n_ff, n = c->in->n;
    float middle =
        out->cuts->activation[PREPARE_CUT_STEPS / 2]; /* those above it count as active */
    float *freq = mem_calloc((size_t)n_ff, sizeof *freq);
    if (!freq) return error_nomem(err, (size_t)n_ff * sizeof *freq, "frequencies of neurons");
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n_ff; k++)
            freq[k] += c->in->hidden[i * n_ff + k] > middle ? 1.0f / (float)n : 0.0f;
    for (int64_t k = 0; k < n_ff; k++) freq[k] = freq[k] > 1 ? 1 : freq[k]; /* sums are rounded */
    pi_status status = neuron_order(freq, n_ff, out->order, err);
    for (int64_t i = 0; i < n_ff && status == PI_OK; i++) {
        out->freq[i] = freq[out->order[i]];
        out->cut_weight[i] = c->weight[out->order[i]];
    }
    mem_free(freq);
    return status;
}

pi_status prepare_profile_cuts(preparation *p, int layer, const cpu_kernels *kernels,
                               const prepare_sample *in, pi_error *err) {
    prepare_layer *out = &p->layers[layer];
    cut_profile c = {.p = p, .kernels = kernels, .layer = &p->model->layers[layer], .in = in};
    pi_status status = allocate(&c, err);
    out->cuts = mem_calloc(1, sizeof *out->cuts);
    if (status == PI_OK && !out->cuts)
        status = error_nomem(err, sizeof *out->cuts, "a profile of activations");
    if (status == PI_OK) status = weigh_neurons(&c, err);
    for (int64_t t = 0; t < in->n && status == PI_OK; t += GROUP)
        count_group(&c, t, in->n - t < GROUP ? in->n - t : GROUP);
    if (status == PI_OK) {
        find_quantiles(c.activation, out->cuts->activation);
        find_quantiles(c.hidden, out->cuts->hidden);
    }
    for (int64_t t = 0; t < in->n && status == PI_OK; t += GROUP)
        add_group(&c, t, in->n - t < GROUP ? in->n - t : GROUP, out->cuts);
    if (status == PI_OK) status = order_neurons(&c, out, err);
    release(&c);
    return status;
}

/* ---- thresholds ------------------------------------------------------------------------------ */

double prepare_kept(const double sum[PREPARE_CUT_STEPS][PREPARE_CUT_STEPS], int cut, int cut_down) {
    double kept = 0, all = 0;
    for (int i = 0; i < PREPARE_CUT_STEPS; i++)
        for (int k = 0; k < PREPARE_CUT_STEPS; k++) {
            all += sum[i][k];
            if (i >= cut && k >= cut_down) kept += sum[i][k];
        }
    return all > 0 ? kept / all : 1;
}

void prepare_choose_cuts(preparation *p, prepare_cut_pair pair) {
    for (int i = 0; i < p->model->hp.n_layer; i++) {
        prepare_layer *l = &p->layers[i];
        if (!l->cuts) continue;
        l->cut = pair.activation;
        l->cut_down = p->model->layers[i].t[ROLE_FFN_GATE].data ? pair.hidden : 0;
        l->density = prepare_kept(l->cuts->count, l->cut, 0);
        l->summed = prepare_kept(l->cuts->count, l->cut, l->cut_down);
    }
}

/* Chooses the pair; fills in what it reads and loses. */
static void judge_pair(preparation *p, prepare_cut_pair *pair) {
    prepare_choose_cuts(p, *pair);
    for (int i = 0; i < p->model->hp.n_layer; i++) {
        const prepare_layer *l = &p->layers[i];
        const model_tensor *t = p->model->layers[i].t;
        if (!l->cuts) continue;
        quant_type type = prepare_choose_down_type(p, &t[ROLE_FFN_DOWN], &t[ROLE_FFN_DOWN_T]);
        size_t row = 0;
        quant_row_bytes(type, (uint64_t)p->model->hp.n_embd, &row);
        pair->bytes += l->summed * (double)row * (double)l->n;
        if (t[ROLE_FFN_GATE].data) pair->bytes += l->density * (double)t[ROLE_FFN_UP].n_bytes;
        pair->error += 1 - prepare_kept(l->cuts->square, l->cut, l->cut_down);
    }
}

static int by_error(const void *pa, const void *pb) {
    const prepare_cut_pair *a = pa, *b = pb;
    if (a->error != b->error) return a->error < b->error ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

int prepare_list_cuts(preparation *p, prepare_cut_pair pairs[PREPARE_CUT_PAIRS]) {
    int n = 0;
    for (int i = 0; i < PREPARE_CUT_PAIRS; i++) {
        pairs[i] = (prepare_cut_pair){.activation = i / PREPARE_CUT_STEPS,
                                      .hidden = i % PREPARE_CUT_STEPS};
        judge_pair(p, &pairs[i]);
    }
    qsort(pairs, PREPARE_CUT_PAIRS, sizeof *pairs, by_error);
    for (int i = 0; i < PREPARE_CUT_PAIRS; i++)
        if (n == 0 || pairs[i].bytes < pairs[n - 1].bytes) pairs[n++] = pairs[i];
    return n;
}
