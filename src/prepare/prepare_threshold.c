/* prepare_threshold.c: models whose activations are hardly ever exactly zero. Where |f(gate)| is
 * small, `up` and `down` of that neuron change little (CATS, Lee et al. 2024). How much depends on
 * the neuron: its magnitude is |f(gate)| times the mean of |up| (weighted by |f(gate)|) and times
 * the length of its row of down. A layer's threshold is a quantile of these magnitudes, the same
 * quantile in all layers. The caller measures the effect on the model.
 *
 * Magnitudes are sorted into bins by the upper bits of the float: 32 bins per factor of two, so
 * that thresholds are precise to 3% without sorting millions of values. */
#include <math.h>
#include <string.h>

#include "mem.h"
#include "prepare.h"

enum {
    GROUP = 64,    /* tokens per product, a few panels */
    BIN_SHIFT = 18 /* low bits of a float that do not select the bin: 23 - 5 bits of the mantissa */
};

typedef struct cut_profile {
    preparation *p;
    const cpu_kernels *kernels;
    const model_layer *layer;
    prepare_magnitudes *magnitudes;
    const prepare_sample *in;
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

/* Adds tokens [t0, t0 + n) to the bins; replaces their hidden values by magnitudes. */
static void add_group(cut_profile *c, int64_t t0, int64_t n) {
    prepare_magnitudes *magnitudes = c->magnitudes;
    int64_t n_ff = c->layer->hp.n_ff;
    bool gated = c->layer->t[ROLE_FFN_GATE].data != NULL;
    if (gated) compute_gates(c, t0, n);
    for (int64_t i = 0; i < n; i++) {
        float *hidden = c->in->hidden + (t0 + i) * n_ff;
        for (int64_t k = 0; k < n_ff; k++) {
            double part = fabs((double)hidden[k]) * (double)c->in->down_norm[k];
            float magnitude = fabsf(gated ? c->values[i * n_ff + k] : hidden[k]) * c->weight[k];
            int bin = bin_of(magnitude);
            hidden[k] = magnitude;
            if (!isfinite(part)) continue;
            magnitudes->count[bin]++;
            magnitudes->part[bin] += part;
        }
    }
}

/* ---- a layer --------------------------------------------------------------------------------- */

static void release(cut_profile *c) {
    mem_unmap(c->act.data, c->act_bytes);
    mem_unmap(c->scratch, c->scratch_bytes * (size_t)pool_size(c->p->pool));
    mem_free(c->values);
    mem_free(c->weight);
}

static pi_status allocate(cut_profile *c, pi_error *err) {
    size_t n_ff = (size_t)c->layer->hp.n_ff;
    prepare_magnitudes *h = c->magnitudes;
    c->weight = mem_alloc(n_ff * sizeof *c->weight);
    if (!c->weight) return error_nomem(err, n_ff * sizeof *c->weight, "factors of neurons");
    h->count = mem_calloc(PREPARE_CUT_BINS, sizeof *h->count);
    h->part = mem_calloc(PREPARE_CUT_BINS, sizeof *h->part);
    if (!h->count || !h->part)
        return error_nomem(err, 2 * PREPARE_CUT_BINS * sizeof(double), "a profile of activations");
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

/* The median of all magnitudes; a neuron above it counts as firing. */
static float median(const prepare_magnitudes *h) {
    double below = 0;
    int bin = 0;
    while (bin < PREPARE_CUT_BINS - 1 && below + h->count[bin] < h->total_count / 2)
        below += h->count[bin++];
    return bin_end(bin);
}

static pi_status order_neurons(cut_profile *c, prepare_layer *out, pi_error *err) {
    int64_t n_ff = c->layer->hp.n_ff, n = c->in->n;
    float middle = median(c->magnitudes);
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
    cut_profile c = {.p = p,
                     .kernels = kernels,
                     .layer = &p->model->layers[layer],
                     .magnitudes = &out->magnitudes,
                     .in = in};
    pi_status status = allocate(&c, err);
    if (status == PI_OK) status = weigh_neurons(&c, err);
    for (int64_t t = 0; t < in->n && status == PI_OK; t += GROUP)
        add_group(&c, t, in->n - t < GROUP ? in->n - t : GROUP);
    for (int bin = 0; status == PI_OK && bin < PREPARE_CUT_BINS; bin++) {
        c.magnitudes->total_count += c.magnitudes->count[bin];
        c.magnitudes->total_part += c.magnitudes->part[bin];
    }
    if (status == PI_OK) status = order_neurons(&c, out, err);
    release(&c);
    return status;
}

void prepare_magnitudes_free(prepare_magnitudes *h) {
    mem_free(h->count);
    mem_free(h->part);
    *h = (prepare_magnitudes){0};
}

/* ---- thresholds ------------------------------------------------------------------------------ */

void prepare_choose_cuts(preparation *p, double share) {
    for (int i = 0; i < p->model->hp.n_layer; i++) {
        prepare_layer *l = &p->layers[i];
        prepare_magnitudes *h = &l->magnitudes;
        double below = 0;
        h->taken = 0;
        while (h->taken < PREPARE_CUT_BINS && below < share * h->total_count)
            below += h->count[h->taken++];
        l->cut = h->taken ? bin_end(h->taken - 1) : NAN;
        l->density = h->total_count > 0 ? 1 - below / h->total_count : 1;
    }
}
