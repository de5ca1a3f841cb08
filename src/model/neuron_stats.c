/* neuron_stats.c: computes statistics of neurons from their frequencies and the keys of
 * sparse_keys.h. */
#include "neuron_stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "sparse_keys.h"

static const gguf_tensor *layer_tensor(const gguf_file *f, int layer, const char *part) {
    char name[GGUF_MAX_NAME];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    return gguf_find_tensor(f, name);
}

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The smallest fraction of the neurons that has `mass` of the sum `all`; freq descends. */
static double share_with(const float *freq, uint64_t n, double all, double mass) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        double next = sum + (double)freq[i];
        if (next >= mass * all && freq[i] > 0)
            return ((double)i + (mass * all - sum) / (double)freq[i]) / (double)n;
        sum = next;
    }
    return 1;
}

/* freq: [n], sorted by this function, n > 0. */
static void measure_frequencies(float *freq, uint64_t n, neuron_stats_layer *l) {
    double all = 0, sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (!(freq[i] > 0 && freq[i] <= 1)) freq[i] = freq[i] > 1 ? 1 : 0;
        all += (double)freq[i];
    }
    qsort(freq, n, sizeof *freq, descending);
    l->n_neurons = n;
    l->density = all / (double)n;
    l->share_50 = share_with(freq, n, all, 0.50);
    l->share_80 = share_with(freq, n, all, 0.80);
    l->share_95 = share_with(freq, n, all, 0.95);
    uint64_t done = 0;
    for (int k = 0; k <= NEURONS_CURVE; k++) {
        double at = (double)n * k / NEURONS_CURVE;
        for (; done < n && (double)(done + 1) <= at; done++) sum += (double)freq[done];
        double part = done < n ? (at - (double)done) * (double)freq[done] : 0;
        l->curve[k] = all > 0 ? (sum + part) / all : 0;
    }
}

static pi_status read_frequencies(const gguf_file *f, int layer, neuron_stats_layer *l,
                                  pi_error *err) {
    const gguf_tensor *t = layer_tensor(f, layer, "ffn_freq");
    if (!t || !t->data || t->n_elems == 0) return PI_OK;
    const quant_traits *traits = quant_find((uint32_t)t->type);
    if (!traits || traits->is_quantized || !traits->dequantize) return PI_OK;
    size_t n_bytes;
    float *freq = size_mul((size_t)t->n_elems, sizeof *freq, &n_bytes) ? mem_alloc(n_bytes) : NULL;
    if (!freq) return error_nomem(err, (size_t)t->n_elems * sizeof *freq, t->name);
    traits->dequantize(t->data, freq, (int64_t)t->n_elems);
    measure_frequencies(freq, t->n_elems, l);
    mem_free(freq);
    return PI_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static double find_number(const gguf_file *f, const char *key) {
    double d = (double)NAN;
    const gguf_value *v = gguf_find(f, key);
    if (v) gguf_as_f64(v, &d);
    return d;
}

/* Item `layer` of a per-layer array. */
static double layer_number(const gguf_file *f, const char *key, int layer) {
    double d = (double)NAN;
    const gguf_value *v = gguf_find(f, key);
    if (v && v->type == GGUF_ARRAY) gguf_item_f64(v, (uint64_t)layer, &d);
    return d;
}

static void read_kinds(const gguf_file *f, neuron_stats *n) {
    const gguf_value *v = gguf_find(f, SPARSE_KEY_PREDICTOR_KIND);
    if (!v || v->type != GGUF_ARRAY || v->item_type != GGUF_STRING) return;
    const uint8_t *cursor = v->data;
    for (int i = 0; i < n->n_layers && (uint64_t)i < v->count; i++) {
        gguf_string s = gguf_next_string(&cursor);
        char *kind = n->layers[i].predictor;
        if (s.n_bytes >= sizeof n->layers[i].predictor) continue;
        for (uint64_t k = 0; k < s.n_bytes; k++) /* letters only: no hostile text */
            kind[k] = s.data[k] == '_' || (s.data[k] >= 'a' && s.data[k] <= 'z') ? s.data[k] : '?';
    }
}

static void read_predictor(const gguf_file *f, int layer, neuron_stats_layer *l) {
    const gguf_tensor *fc1 = layer_tensor(f, layer, "fc1.weight");
    l->rank = fc1 ? fc1->dims[1] : 0;
    l->recall = layer_number(f, SPARSE_KEY_PREDICTOR_RECALL, layer);
    l->selected = layer_number(f, SPARSE_KEY_PREDICTOR_DENSITY, layer);
}

/* ---- means ----------------------------------------------------------------------------------- */

typedef struct mean {
    double sum;
    int n;
} mean;

static void mean_add(mean *m, double v) {
    if (isnan(v)) return;
    m->sum += v;
    m->n++;
}

static double mean_of(const mean *m) {
    return m->n ? m->sum / m->n : (double)NAN;
}

/* Chooses the predictor and rank that most layers have. */
static void choose_predictor(neuron_stats *n) {
    int most = 0;
    for (int i = 0; i < n->n_layers; i++) {
        int same = 0;
        for (int k = 0; k < n->n_layers; k++) {
            same += strcmp(n->layers[k].predictor, n->layers[i].predictor) == 0 &&
                    n->layers[k].rank == n->layers[i].rank;
        }
        if (same <= most) continue;
        most = same;
        memcpy(n->mean.predictor, n->layers[i].predictor, sizeof n->mean.predictor);
        n->mean.rank = n->layers[i].rank;
    }
    n->n_same_predictor = most;
}

static void average(neuron_stats *n) {
    mean density = {0}, s50 = {0}, s80 = {0}, s95 = {0}, recall = {0}, selected = {0};
    mean curve[NEURONS_CURVE + 1] = {0};
    for (int i = 0; i < n->n_layers; i++) {
        const neuron_stats_layer *l = &n->layers[i];
        mean_add(&recall, l->recall);
        mean_add(&selected, l->selected);
        if (l->n_neurons == 0) continue;
        n->mean.n_neurons += l->n_neurons;
        mean_add(&density, l->density);
        mean_add(&s50, l->share_50);
        mean_add(&s80, l->share_80);
        mean_add(&s95, l->share_95);
        for (int k = 0; k <= NEURONS_CURVE; k++) mean_add(&curve[k], l->curve[k]);
    }
    n->mean.density = mean_of(&density);
    n->mean.share_50 = mean_of(&s50);
    n->mean.share_80 = mean_of(&s80);
    n->mean.share_95 = mean_of(&s95);
    n->mean.recall = mean_of(&recall);
    n->mean.selected = mean_of(&selected);
    for (int k = 0; k <= NEURONS_CURVE; k++) n->mean.curve[k] = mean_of(&curve[k]);
    choose_predictor(n);
}

pi_status neuron_stats_gather(const gguf_file *f, int64_t n_layer, neuron_stats *out,
                              pi_error *err) {
    *out = (neuron_stats){.units = "neurons", .tokens = -1, .loss = (double)NAN};
    if (n_layer < 1 || n_layer > NEURONS_MAX_LAYERS) return PI_OK;
    bool any = false;
    for (int i = 0; i < (int)n_layer; i++) any = any || layer_tensor(f, i, "ffn_freq");
    if (!any) return PI_OK;
    out->layers = mem_calloc((size_t)n_layer, sizeof *out->layers);
    if (!out->layers) return error_nomem(err, (size_t)n_layer * sizeof *out->layers, "neurons");
    out->n_layers = (int)n_layer;
    for (int i = 0; i < out->n_layers; i++) {
        read_predictor(f, i, &out->layers[i]);
        if (layer_tensor(f, i, "ffn_gate_inp.weight")) out->units = "experts";
        pi_status status = read_frequencies(f, i, &out->layers[i], err);
        if (status) return status;
    }
    read_kinds(f, out);
    double tokens = find_number(f, SPARSE_KEY_CALIBRATION_TOKENS);
    if (tokens >= 0 && tokens < 1e15) out->tokens = (int64_t)tokens;
    out->loss = find_number(f, SPARSE_KEY_CALIBRATION_LOSS);
    average(out);
    return PI_OK;
}

void neuron_stats_free(neuron_stats *n) {
    mem_free(n->layers);
    *n = (neuron_stats){0};
}
