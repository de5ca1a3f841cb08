/* plain_forward.c: a forward pass over a whole sequence at once, layer by layer. Attention weighs
 * all earlier positions by a softmax as defined; keys and values are kept unrounded.
 *
 * Formulas: RMSNorm (Zhang and Sennrich 2019), rotary positions (Su et al. 2021), grouped queries
 * (Ainslie et al. 2023), gated feed-forward (Shazeer 2020), YaRN (Peng et al. 2023). */
#include "plain_forward.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cpu_features.h"
#include "gguf.h"
#include "mem.h"

typedef struct plain {
    const tiny_model *t;
    plain_mode mode;
    gguf_file *file;
    int n_tokens;
    double *freq;   /* [n_rot/2] radians per position */
    double length;  /* scale of rotated vectors (YaRN) */
    double *x;      /* [n_tokens][n_embd] */
    double *joined; /* EAGLE-3: the input of attention [n_tokens][2 * n_embd]; NULL: a norm of x */
} plain;

static double *zeros(int64_t n) {
    double *p = mem_calloc((size_t)n, sizeof *p);
    assert_non_null(p);
    return p;
}

/* A tensor as doubles; NULL when the file has no tensor of that name. */
static double *load(const plain *p, int layer, const char *name) {
    char full[GGUF_MAX_NAME];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    const gguf_tensor *g = gguf_find_tensor(p->file, full);
    if (!g) return NULL;
    int64_t n = (int64_t)g->n_elems;
    float *single = mem_calloc((size_t)n, sizeof *single);
    assert_non_null(single);
    quant_find(g->type)->dequantize(g->data, single, n);
    double *values = zeros(n);
    for (int64_t i = 0; i < n; i++) values[i] = (double)single[i];
    mem_free(single);
    return values;
}

static double *load_weight(const plain *p, int layer, const char *name, const char *suffix) {
    char full[GGUF_MAX_NAME];
    snprintf(full, sizeof full, "%s.%s", name, suffix);
    return load(p, layer, full);
}

/* Whether the scale of a feed-forward matrix also applies to the bias, and whether it is used at
 * all: architectures differ. */
static bool scale_is_used(const plain *p, const char *name) {
    bool not_in_ffn = strcmp(p->t->arch, "qwen2") == 0 || strcmp(p->t->arch, "falcon") == 0 ||
                      strcmp(p->t->arch, "deepseek2") == 0;
    return !not_in_ffn || strncmp(name, "ffn", 3) != 0;
}
static bool scales_bias(const char *name) {
    return strncmp(name, "ffn", 3) == 0;
}

/* y[token] = s W x[token] + b, or s (W x + b). */
static double *linear(const plain *p, int layer, const char *name, const double *x, int n_in,
                      int n_out) {
    double *w = load_weight(p, layer, name, "weight"), *b = load_weight(p, layer, name, "bias");
    double *scale = load_weight(p, layer, name, "scale");
    double s = scale && scale_is_used(p, name) ? scale[0] : 1;
    assert_non_null(w);
    double *y = zeros((int64_t)p->n_tokens * n_out);
    for (int i = 0; i < p->n_tokens; i++) {
        for (int r = 0; r < n_out; r++) {
            double sum = 0;
            for (int k = 0; k < n_in; k++) sum += w[r * n_in + k] * x[i * n_in + k];
            double bias = b ? b[r] : 0;
            y[i * n_out + r] = scales_bias(name) ? s * (sum + bias) : s * sum + bias;
        }
    }
    mem_free(w);
    mem_free(b);
    mem_free(scale);
    return y;
}

/* Divides each vector of n elements by its root mean square and multiplies by the weight. */
static double *rms_norm(const plain *p, int layer, const char *name, const double *x, int n_vectors,
                        int n) {
    double *w = load_weight(p, layer, name, "weight"), *y = zeros((int64_t)n_vectors * n);
    assert_non_null(w);
    for (int i = 0; i < n_vectors; i++) {
        double square = 0;
        for (int k = 0; k < n; k++) square += x[i * n + k] * x[i * n + k];
        for (int k = 0; k < n; k++)
            y[i * n + k] = x[i * n + k] / sqrt(square / n + (double)p->t->eps) * w[k];
    }
    mem_free(w);
    return y;
}

/* The norm of whole vectors: LayerNorm (Ba et al. 2016) first subtracts the mean and adds a
 * bias. */
static double *norm(const plain *p, int layer, const char *name, const double *x) {
    int n = p->t->n_embd;
    if (!tiny_has_layer_norm(p->t)) return rms_norm(p, layer, name, x, p->n_tokens, n);
    double *bias = load_weight(p, layer, name, "bias"), *centred = zeros((int64_t)p->n_tokens * n);
    assert_non_null(bias);
    for (int i = 0; i < p->n_tokens; i++) {
        double mean = 0;
        for (int k = 0; k < n; k++) mean += x[i * n + k] / n;
        for (int k = 0; k < n; k++) centred[i * n + k] = x[i * n + k] - mean;
    }
    double *y = rms_norm(p, layer, name, centred, p->n_tokens, n);
    for (int i = 0; i < p->n_tokens * n; i++) y[i] += bias[i % n];
    mem_free(bias);
    mem_free(centred);
    return y;
}

/* ---- rotary positions ------------------------------------------------------------------------ */

/* Index of the pair that makes `turns` turns in the original context: solves original / (2 pi
 * base^(2 i / n_rot)) = turns for i. */
static double pair_of_turns(const tiny_model *t, double turns) {
    double wavelength = t->original_context / turns, two_pi = 2 * acos(-1);
    return t->n_rot / 2.0 * log(wavelength / two_pi) / log((double)t->freq_base);
}

/* Whether text is at position 0 on the axis of a pair: the fourth axis. Qwen2-VL gives each axis
 * neighbouring pairs; in Qwen3-VL the first three axes alternate until their pairs are used up. */
static bool is_still(const tiny_model *t, int pair) {
    const int32_t *s = t->sections;
    int n = s[0] + s[1] + s[2] + s[3];
    if (n == 0) return false;
    int place = pair % n;
    if (strcmp(t->arch, "qwen3vl") != 0) return place >= n - s[3];
    return place / 3 >= s[place % 3];
}

static void prepare_rotation(plain *p) {
    const tiny_model *t = p->t;
    double *divisors = load(p, -1, "rope_freqs.weight");
    p->freq = zeros(t->n_rot / 2);
    p->length = 1;
    double fast = t->beta_fast != 0 ? (double)t->beta_fast : 32;
    double slow = t->beta_slow != 0 ? (double)t->beta_slow : 1;
    double from = fmax(floor(pair_of_turns(t, fast)), 0);
    double to = fmin(ceil(pair_of_turns(t, slow)), t->n_rot - 1);
    for (int i = 0; i < t->n_rot / 2; i++) {
        double f = 1 / pow((double)t->freq_base, 2.0 * i / t->n_rot);
        if (divisors) f /= divisors[i];
        double slowed = f / (double)t->factor;
        double ramp = fmin(fmax((i - from) / fmax(to - from, 0.001), 0), 1);
        if (is_still(t, i))
            p->freq[i] = 0;
        else if (t->scaling == TINY_SCALING_NONE)
            p->freq[i] = f;
        else if (t->scaling == TINY_SCALING_YARN)
            p->freq[i] = slowed * ramp + f * (1 - ramp);
        else
            p->freq[i] = slowed;
    }
    if (t->scaling == TINY_SCALING_YARN) {
        double attention = t->attn_factor != 0 ? (double)t->attn_factor : 1;
        p->length = attention * (1 + 0.1 * log((double)t->factor));
        if (t->yarn_multiplier != 0) p->length = attention; /* applied to the scores instead */
    }
    mem_free(divisors);
}

/* Rotates the pairs of one head: neighbours in llama and bamboo, n_rot / 2 apart in the others. */
static void rotate(const plain *p, double *head, int position) {
    int half = p->t->n_rot / 2;
    bool neighbours = strcmp(p->t->arch, "llama") == 0 || strcmp(p->t->arch, "bamboo") == 0 ||
                      strcmp(p->t->arch, "eagle3") == 0 || p->t->n_latent > 0;
    for (int i = 0; i < half; i++) {
        double *a = neighbours ? &head[2 * i] : &head[i];
        double *b = neighbours ? &head[2 * i + 1] : &head[i + half];
        double angle = position * p->freq[i], re = *a, im = *b;
        *a = p->length * (re * cos(angle) - im * sin(angle));
        *b = p->length * (re * sin(angle) + im * cos(angle));
    }
}

static void rotate_all(const plain *p, double *x, int n_heads) {
    if (strcmp(p->t->arch, "opt") == 0) return;
    for (int i = 0; i < p->n_tokens; i++)
        for (int h = 0; h < n_heads; h++) rotate(p, x + (i * n_heads + h) * p->t->head_dim, i);
}

/* ---- attention block and FFN block ----------------------------------------------------------- */

static double dot(const double *a, const double *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* One head of one token: out = sum over earlier positions of softmax(q k / sqrt(d)) v. */
static void attend(const double *q, const double *k, const double *v, int last, int d, int d_v,
                   int stride, int stride_v, double *out) {
    double *weight = zeros(last + 1), sum = 0, highest = -1e300;
    for (int j = 0; j <= last; j++) {
        weight[j] = dot(q, k + j * stride, d) / sqrt((double)d);
        highest = fmax(highest, weight[j]);
    }
    for (int j = 0; j <= last; j++) sum += weight[j] = exp(weight[j] - highest);
    for (int j = 0; j <= last; j++)
        for (int i = 0; i < d_v; i++) out[i] += weight[j] / sum * v[j * stride_v + i];
    mem_free(weight);
}

static void add_to_stream(plain *p, double *y) {
    for (int i = 0; i < p->n_tokens * p->t->n_embd; i++) p->x[i] += y[i];
    mem_free(y);
}

/* Replaces `*x` by its norm, head by head. */
static void norm_heads(const plain *p, int layer, const char *name, double **x, int n_heads) {
    double *y = rms_norm(p, layer, name, *x, p->n_tokens * n_heads, p->t->head_dim);
    mem_free(*x);
    *x = y;
}

/* Q, K, or V of all tokens, [n_tokens][n]: from a separate matrix, or from rows `first` on of one
 * matrix for all three. */
static double *project(const plain *p, int layer, const char *name, const double *x, int first,
                       int n) {
    const tiny_model *t = p->t;
    int n_in = p->joined ? 2 * t->n_embd : t->n_embd;
    if (strcmp(t->arch, "falcon") != 0) return linear(p, layer, name, x, n_in, n);
    int width = (t->n_head[layer] + 2 * t->n_head_kv[layer]) * t->head_dim;
    double *all = linear(p, layer, "attn_qkv", x, t->n_embd, width);
    double *y = zeros((int64_t)p->n_tokens * n);
    for (int i = 0; i < p->n_tokens; i++)
        memcpy(y + i * n, all + i * width + first, (size_t)n * sizeof *y);
    mem_free(all);
    return y;
}

/* The attention block's addition to the stream. */
static double *attention_half(const plain *p, int layer) {
    const tiny_model *t = p->t;
    int d = t->head_dim, n_head = t->n_head[layer], n_kv = t->n_head_kv[layer];
    int d_v = t->v_dim ? t->v_dim : d;
    double *normed = p->joined ? p->joined
                               : norm(p, layer, t->two_norms ? "attn_norm_2" : "attn_norm", p->x);
    double *q = project(p, layer, "attn_q", normed, 0, n_head * d);
    double *k = project(p, layer, "attn_k", normed, n_head * d, n_kv * d);
    double *v = project(p, layer, "attn_v", normed, (n_head + n_kv) * d, n_kv * d_v);
    if (strncmp(t->arch, "qwen3", 5) == 0 || strcmp(t->arch, "apertus") == 0) {
        norm_heads(p, layer, "attn_q_norm", &q, n_head);
        norm_heads(p, layer, "attn_k_norm", &k, n_kv);
    }
    rotate_all(p, q, n_head);
    rotate_all(p, k, n_kv);
    double *seen = zeros((int64_t)p->n_tokens * n_head * d_v);
    for (int i = 0; i < p->n_tokens; i++) {
        for (int h = 0; h < n_head; h++) {
            int shared = h / (n_head / n_kv);
            int64_t at = (int64_t)i * n_head + h;
            attend(q + at * d, k + shared * d, v + shared * d_v, i, d, d_v, n_kv * d, n_kv * d_v,
                   seen + at * d_v);
        }
    }
    double *y = linear(p, layer, "attn_output", seen, n_head * d_v, t->n_embd);
    if (!p->joined) mem_free(normed);
    mem_free(q);
    mem_free(k);
    mem_free(v);
    mem_free(seen);
    return y;
}

/* Rows [first, first + n) of a matrix in `w` times x; the elements of a row are `step` apart. */
static void multiply(const double *w, int n_in, int step, int n, const double *x, double *y) {
    for (int r = 0; r < n; r++) {
        y[r] = 0;
        for (int k = 0; k < n_in; k++)
            y[r] += (step == 1 ? w[r * n_in + k] : w[k * step + r]) * x[k];
    }
}

static void scale_vector(const plain *p, int layer, const char *name, double *x, int n) {
    double *scale = load_weight(p, layer, name, "scale");
    for (int i = 0; i < n && scale; i++) x[i] *= scale[0];
    mem_free(scale);
}

/* Keys (the unrotated part, then the rotated part, which heads share) and values of one head at one
 * position, expanded from its latent vector (DeepSeek-V2, arXiv 2405.04434, equations 9 to 15). */
static void expand_head(const plain *p, int layer, int head, const double *latent,
                        const double *shared, double *k, double *v) {
    const tiny_model *t = p->t;
    int n_nope = t->head_dim - t->n_rot, n = t->n_latent, all = n_nope + t->v_dim;
    if (t->kv_b) {
        double *w = load(p, layer, "attn_kv_b.weight");
        multiply(w + head * all * n, n, 1, n_nope, latent, k);
        multiply(w + (head * all + n_nope) * n, n, 1, t->v_dim, latent, v);
        mem_free(w);
    } else {
        double *w = load(p, layer, "attn_k_b.weight"), *w_v = load(p, layer, "attn_v_b.weight");
        multiply(w + head * n * n_nope, n, n_nope, n_nope, latent, k);
        multiply(w_v + head * t->v_dim * n, n, 1, t->v_dim, latent, v);
        scale_vector(p, layer, "attn_k_b", k, n_nope);
        scale_vector(p, layer, "attn_v_b", v, t->v_dim);
        mem_free(w);
        mem_free(w_v);
    }
    memcpy(k + n_nope, shared, (size_t)t->n_rot * sizeof *k);
}

static double *latent_queries(const plain *p, int layer, const double *normed, int n_head) {
    const tiny_model *t = p->t;
    int n = n_head * t->head_dim, n_nope = t->head_dim - t->n_rot;
    double *q, turns = 0.1 * log((double)t->factor) * 10 * (double)t->yarn_multiplier + 1;
    if (t->n_latent_q) {
        double *a = linear(p, layer, "attn_q_a", normed, t->n_embd, t->n_latent_q);
        double *b = rms_norm(p, layer, "attn_q_a_norm", a, p->n_tokens, t->n_latent_q);
        q = linear(p, layer, "attn_q_b", b, t->n_latent_q, n);
        mem_free(a);
        mem_free(b);
    } else {
        q = linear(p, layer, "attn_q", normed, t->n_embd, n);
    }
    for (int i = 0; i < p->n_tokens; i++)
        for (int h = 0; h < n_head; h++) {
            double *head = q + (i * n_head + h) * t->head_dim;
            rotate(p, head + n_nope, i);
            for (int k = 0; t->yarn_multiplier != 0 && k < t->head_dim; k++)
                head[k] *= turns * turns;
        }
    return q;
}

/* Compressed attention as defined: every head's keys and values are computed from every position's
 * latent vector. Values have room for head_dim elements. */
static double *latent_half(const plain *p, int layer) {
    const tiny_model *t = p->t;
    int d = t->head_dim, n_head = t->n_head[layer], n_a = t->n_latent + t->n_rot;
    int64_t cells = (int64_t)p->n_tokens * n_head;
    double *normed = norm(p, layer, "attn_norm", p->x);
    double *q = latent_queries(p, layer, normed, n_head);
    double *a = linear(p, layer, "attn_kv_a_mqa", normed, t->n_embd, n_a);
    double *latent = zeros((int64_t)p->n_tokens * t->n_latent);
    double *k = zeros(cells * d), *v = zeros(cells * d), *out = zeros(d);
    double *seen = zeros(cells * t->v_dim);
    for (int i = 0; i < p->n_tokens; i++)
        memcpy(latent + i * t->n_latent, a + i * n_a, (size_t)t->n_latent * sizeof *a);
    double *c = rms_norm(p, layer, "attn_kv_a_norm", latent, p->n_tokens, t->n_latent);
    for (int i = 0; i < p->n_tokens; i++) {
        rotate(p, a + i * n_a + t->n_latent, i);
        for (int h = 0; h < n_head; h++) {
            int at = (i * n_head + h) * d;
            expand_head(p, layer, h, c + i * t->n_latent, a + i * n_a + t->n_latent, k + at,
                        v + at);
        }
    }
    for (int i = 0; i < p->n_tokens; i++)
        for (int h = 0; h < n_head; h++) {
            memset(out, 0, (size_t)d * sizeof *out);
            attend(q + (i * n_head + h) * d, k + h * d, v + h * d, i, d, d, n_head * d, n_head * d,
                   out);
            memcpy(seen + (i * n_head + h) * t->v_dim, out, (size_t)t->v_dim * sizeof *out);
        }
    double *y = linear(p, layer, "attn_output", seen, n_head * t->v_dim, t->n_embd);
    double *all[] = {normed, q, a, latent, k, v, out, seen, c};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) mem_free(all[i]);
    return y;
}

/* f(gate) */
static double activated(const tiny_model *t, double gate) {
    const char *f = tiny_activation(t);
    double positive = gate > 0 ? gate : 0, pi = acos(-1);
    if (strcmp(f, "relu") == 0 || strcmp(f, "drelu") == 0) return positive;
    if (strcmp(f, "relu_squared") == 0) return positive * positive;
    if (strcmp(f, "fatrelu") == 0) return gate > (double)t->threshold ? gate : 0;
    if (strcmp(f, "gelu") == 0)
        return gate / 2 * (1 + tanh(sqrt(2 / pi) * (gate + 0.044715 * pow(gate, 3))));
    assert_string_equal(f, "silu");
    return gate / (1 + exp(-gate));
}

/* xIELU (Huang and Schlag 2024, arXiv 2411.13010). */
static double xielu(int layer, double x) {
    double a[TINY_XIELU];
    for (int i = 0; i < TINY_XIELU; i++) a[i] = (double)tiny_xielu[i][layer];
    double positive = log(1 + exp(a[1])), negative = a[2] + log(1 + exp(a[0]));
    return x > 0 ? positive * x * x + a[2] * x
                 : negative * (exp(fmin(x, a[3])) - 1) - negative * x + a[2] * x;
}

static double gated(const tiny_model *t, double activation, double up) {
    bool both = strcmp(tiny_activation(t), "drelu") == 0;
    return activation * (both && up < 0 ? 0 : up);
}

/* x as int8 in groups of 32 with one scale, decoded again: the input of the scores of signs. */
static double *rounded_to_int8(const double *x, int64_t n) {
    enum { GROUP = 32 };
    double *y = zeros(n);
    for (int64_t g = 0; g < n; g += GROUP) {
        float top = 0;
        for (int i = 0; i < GROUP; i++) top = fmaxf(top, fabsf((float)x[g + i]));
        float d = top / 127;
        for (int i = 0; i < GROUP && d > 0; i++)
            y[g + i] = (double)(d * rintf((float)x[g + i] / d));
    }
    return y;
}

static double *sign_scores(const plain *p, int layer, const double *normed) {
    char name[GGUF_MAX_NAME];
    int n_embd = p->t->n_embd, n_ff = p->t->n_ff[layer];
    snprintf(name, sizeof name, "blk.%d.ffn_sign", layer);
    const gguf_tensor *g = gguf_find_tensor(p->file, name);
    assert_non_null(g);
    const uint8_t *bits = g->data;
    double *x = rounded_to_int8(normed, (int64_t)p->n_tokens * n_embd);
    double *score = zeros((int64_t)p->n_tokens * n_ff);
    for (int i = 0; i < p->n_tokens; i++)
        for (int r = 0; r < n_ff; r++)
            for (int k = 0; k < n_embd; k++) {
                bool positive = bits[r * (n_embd / 8) + k / 8] >> (k % 8) & 1;
                score[i * n_ff + r] += positive ? x[i * n_embd + k] : -x[i * n_embd + k];
            }
    mem_free(x);
    return score;
}

static double *scores(const plain *p, int layer, const double *normed) {
    const tiny_sparse *s = &p->t->sparse;
    int n_ff = p->t->n_ff[layer];
    if (strcmp(s->predictor, "sign") == 0) {
        double *score = sign_scores(p, layer, normed), *bias = load(p, layer, "fc2.bias");
        for (int i = 0; i < p->n_tokens * n_ff && bias; i++) score[i] += bias[i % n_ff];
        mem_free(bias);
        return score;
    }
    const double *input = s->residual ? p->x : normed;
    double *hidden = linear(p, layer, "fc1", input, p->t->n_embd, s->rank);
    if (strcmp(s->predictor, "relu_mlp") == 0)
        for (int i = 0; i < p->n_tokens * s->rank; i++) hidden[i] = fmax(hidden[i], 0);
    double *score = linear(p, layer, "fc2", hidden, s->rank, n_ff); /* adds fc2.bias */
    mem_free(hidden);
    return score;
}

/* Sets activations [n_tokens][n_ff] that the mode leaves out to zero. */
static void leave_out(const plain *p, int layer, const double *normed, double *activation) {
    int n_ff = p->t->n_ff[layer], n = p->n_tokens * n_ff;
    if (p->mode == PLAIN_THRESHOLD) {
        double *factor = load(p, layer, "ffn_cut");
        for (int i = 0; i < n; i++) {
            double size = fabs(activation[i]) * (factor ? factor[i % n_ff] : 1);
            if (size <= (double)p->t->sparse.cut) activation[i] = 0;
        }
        mem_free(factor);
    }
    if (p->mode != PLAIN_PREDICT) return;
    double *score = scores(p, layer, normed);
    for (int i = 0; i < n; i++)
        if (score[i] < (double)p->t->sparse.threshold) activation[i] = 0;
    mem_free(score);
}

/* Sets hidden values up to the second threshold to zero. */
static void leave_out_hidden(const plain *p, int layer, double *hidden) {
    int n = p->n_tokens * p->t->n_ff[layer];
    for (int i = 0; i < n && p->mode == PLAIN_THRESHOLD; i++)
        if (fabs(hidden[i]) <= (double)p->t->sparse.cut_down) hidden[i] = 0;
}

static double *down_product(const plain *p, int layer, const double *hidden) {
    const tiny_sparse *s = &p->t->sparse;
    int n_embd = p->t->n_embd, n_ff = p->t->n_ff[layer];
    if (!s->down_t) return linear(p, layer, "ffn_down", hidden, n_ff, n_embd);
    double *w = load(p, layer, "ffn_down_t.weight");
    double *bias = load(p, layer, s->pwri ? "ffn_down_t.bias" : "ffn_down.bias");
    double *y = zeros((int64_t)p->n_tokens * n_embd);
    for (int i = 0; i < p->n_tokens; i++)
        for (int k = 0; k < n_embd; k++) {
            double sum = bias ? bias[k] : 0;
            for (int r = 0; r < n_ff; r++) sum += hidden[i * n_ff + r] * w[r * n_embd + k];
            y[i * n_embd + k] = sum;
        }
    mem_free(w);
    mem_free(bias);
    return y;
}

/* The FFN block's addition to the stream. Without a gate, the activation applies to up. */
static double *ffn_half(const plain *p, int layer) {
    const tiny_model *t = p->t;
    int n_ff = t->n_ff[layer], n = p->n_tokens * n_ff;
    bool with_gate = tiny_is_gated(t);
    double *normed = norm(p, layer, strcmp(t->arch, "falcon") == 0 ? "attn_norm" : "ffn_norm",
                          p->x);
    double *up = linear(p, layer, "ffn_up", normed, t->n_embd, n_ff);
    double *gate = with_gate ? linear(p, layer, "ffn_gate", normed, t->n_embd, n_ff) : up;
    bool is_xielu = strcmp(tiny_activation(t), "xielu") == 0;
    for (int i = 0; i < n; i++) gate[i] = is_xielu ? xielu(layer, gate[i]) : activated(t, gate[i]);
    leave_out(p, layer, normed, gate);
    for (int i = 0; i < n && with_gate; i++) gate[i] = gated(t, gate[i], up[i]);
    if (with_gate) leave_out_hidden(p, layer, gate);
    double *y = down_product(p, layer, gate);
    mem_free(normed);
    if (with_gate) mem_free(gate);
    mem_free(up);
    return y;
}

/* ---- experts --------------------------------------------------------------------------------- */

/* One expert's matrix as a layer's matrix: [n_in, n_out] from [n_in, n_out, n]. */
static double *expert_product(const plain *p, int layer, const char *name, int expert,
                              const double *x, int n_in, int n_out) {
    char full[GGUF_MAX_NAME];
    snprintf(full, sizeof full, "%s.weight", name);
    double *all = load(p, layer, full), *y = zeros(n_out);
    snprintf(full, sizeof full, "%s.bias", name);
    double *bias = load(p, layer, full);
    const double *w = all + (int64_t)expert * n_in * n_out;
    for (int r = 0; r < n_out; r++) {
        if (bias) y[r] = bias[expert * n_out + r];
        for (int k = 0; k < n_in; k++) y[r] += w[r * n_in + k] * x[k];
    }
    mem_free(all);
    mem_free(bias);
    return y;
}

/* Scores of one expert's neurons for one token. */
static double *expert_scores(const plain *p, int layer, int expert, const double *x) {
    const tiny_sparse *s = &p->t->sparse;
    int n_embd = p->t->n_embd, n_ff = p->t->experts.n_ff;
    double *score;
    if (strcmp(s->predictor, "sign") == 0) {
        char name[GGUF_MAX_NAME];
        snprintf(name, sizeof name, "blk.%d.ffn_sign_exps", layer);
        const gguf_tensor *g = gguf_find_tensor(p->file, name);
        assert_non_null(g);
        const uint8_t *bits = (const uint8_t *)g->data + expert * n_ff * (n_embd / 8);
        double *rounded = rounded_to_int8(x, n_embd);
        score = zeros(n_ff);
        for (int r = 0; r < n_ff; r++)
            for (int k = 0; k < n_embd; k++) {
                bool positive = bits[r * (n_embd / 8) + k / 8] >> (k % 8) & 1;
                score[r] += positive ? rounded[k] : -rounded[k];
            }
        mem_free(rounded);
        double *bias = load(p, layer, "fc2_exps.bias");
        for (int r = 0; r < n_ff && bias; r++) score[r] += bias[expert * n_ff + r];
        mem_free(bias);
        return score;
    }
    double *hidden = expert_product(p, layer, "fc1_exps", expert, x, n_embd, s->rank);
    for (int i = 0; i < s->rank && strcmp(s->predictor, "relu_mlp") == 0; i++)
        hidden[i] = fmax(hidden[i], 0);
    score = expert_product(p, layer, "fc2_exps", expert, hidden, s->rank, n_ff);
    mem_free(hidden);
    return score;
}

/* Adds weight * expert(x) to y. */
static void add_expert(const plain *p, int layer, int expert, double weight, const double *x,
                       double *y) {
    const tiny_model *t = p->t;
    int n_ff = t->experts.n_ff, n_embd = t->n_embd;
    double *gate = expert_product(p, layer, "ffn_gate_exps", expert, x, n_embd, n_ff);
    double *up = expert_product(p, layer, "ffn_up_exps", expert, x, n_embd, n_ff);
    double *score = p->mode == PLAIN_PREDICT ? expert_scores(p, layer, expert, x) : NULL;
    for (int r = 0; r < n_ff; r++) {
        gate[r] = activated(t, gate[r]);
        if (score && score[r] < (double)t->sparse.threshold) gate[r] = 0;
        gate[r] = gated(t, gate[r], up[r]);
    }
    double *bias = load(p, layer, "ffn_down_exps.bias");
    double *down = load(p, layer,
                        t->sparse.down_t ? "ffn_down_t_exps.weight" : "ffn_down_exps.weight");
    const double *w = down + (int64_t)expert * n_embd * n_ff;
    for (int k = 0; k < n_embd; k++) {
        double sum = bias ? bias[expert * n_embd + k] : 0;
        for (int r = 0; r < n_ff; r++)
            sum += gate[r] * (t->sparse.down_t ? w[r * n_embd + k] : w[k * n_ff + r]);
        y[k] += weight * sum;
    }
    mem_free(gate);
    mem_free(up);
    mem_free(score);
    mem_free(bias);
    mem_free(down);
}

/* The experts' addition to the stream (architecture llama): softmax over all experts, the weights
 * of the n_used best divided by their sum. */
static double *experts_half(const plain *p, int layer) {
    const tiny_experts *e = &p->t->experts;
    int n_embd = p->t->n_embd;
    double *normed = norm(p, layer, "ffn_norm", p->x), *y = zeros((int64_t)p->n_tokens * n_embd);
    double *router = linear(p, layer, "ffn_gate_inp", normed, n_embd, e->n);
    for (int i = 0; i < p->n_tokens; i++) {
        double *r = router + i * e->n, sum = 0;
        int chosen[64];
        double weight[64];
        for (int k = 0; k < e->n_used; k++) {
            int best = 0;
            for (int j = 1; j < e->n; j++)
                if (r[j] > r[best]) best = j;
            chosen[k] = best;
            weight[k] = exp(r[best]);
            sum += weight[k];
            r[best] = -INFINITY;
        }
        for (int k = 0; k < e->n_used; k++)
            add_expert(p, layer, chosen[k], weight[k] / sum, normed + i * n_embd, y + i * n_embd);
    }
    mem_free(normed);
    mem_free(router);
    return y;
}

/* Attention block, then FFN block; in falcon both read the unchanged stream. */
static void run_layer(plain *p, int layer) {
    bool parallel = strcmp(p->t->arch, "falcon") == 0;
    double *seen = p->t->n_latent ? latent_half(p, layer) : attention_half(p, layer);
    if (!parallel) add_to_stream(p, seen);
    bool experts = p->t->experts.n > 0 && layer >= p->t->experts.n_dense;
    double *thought = experts ? experts_half(p, layer) : ffn_half(p, layer);
    add_to_stream(p, thought);
    if (parallel) add_to_stream(p, seen);
}

static plain open_plain(const tiny_model *t, const char *path, plain_mode mode, int n_tokens) {
    plain p = {.t = t, .mode = mode, .n_tokens = n_tokens};
    pi_error err;
    if (gguf_open(path, NULL, &p.file, &err) != PI_OK) fail_msg("%s", err.message);
    prepare_rotation(&p);
    return p;
}

static void close_plain(plain *p) {
    mem_free(p->x);
    mem_free(p->freq);
    gguf_close(p->file);
}

/* Rows of a table of embeddings. */
static double *embed(const plain *p, int layer, const char *name, const int32_t *tokens) {
    size_t n_embd = (size_t)p->t->n_embd;
    double *table = load(p, layer, name), *x = zeros(p->n_tokens * (int64_t)n_embd);
    assert_non_null(table);
    for (int i = 0; i < p->n_tokens; i++)
        memcpy(x + (size_t)i * n_embd, table + (size_t)tokens[i] * n_embd, n_embd * sizeof *x);
    mem_free(table);
    return x;
}

static void begin_stream(plain *p, const int32_t *tokens) {
    const tiny_model *t = p->t;
    p->x = embed(p, -1, "token_embd.weight", tokens);
    double *positions = t->n_pos ? load(p, -1, "position_embd.weight") : NULL;
    for (int i = 0; i < p->n_tokens * t->n_embd && positions; i++)
        p->x[i] += positions[i + 2 * t->n_embd]; /* the first row of logits is for token 2 */
    mem_free(positions);
}

void plain_forward(const tiny_model *t, const char *path, plain_mode mode, const int32_t *tokens,
                   int n_tokens, double *logits) {
    plain p = open_plain(t, path, mode, n_tokens);
    begin_stream(&p, tokens);
    for (int i = 0; i < t->n_layer; i++) run_layer(&p, i);
    double *normed = norm(&p, -1, "output_norm", p.x);
    double *y = linear(&p, -1, t->tied ? "token_embd" : "output", normed, t->n_embd, t->n_vocab);
    memcpy(logits, y, (size_t)n_tokens * (size_t)t->n_vocab * sizeof *y);
    mem_free(normed);
    mem_free(y);
    close_plain(&p);
}

/* ---- heads that draft ------------------------------------------------------------------------ */

void plain_reads(const tiny_model *t, const char *path, const int *layers, const int32_t *tokens,
                 int n_tokens, double *out) {
    plain p = open_plain(t, path, PLAIN_DENSE, n_tokens);
    int n = t->n_embd, n_reads = layers ? 3 : 1;
    begin_stream(&p, tokens);
    for (int i = 0; i <= t->n_layer; i++) {
        double *normed = !layers && i == t->n_layer ? norm(&p, -1, "output_norm", p.x) : NULL;
        for (int k = 0; k < n_reads; k++) {
            const double *from = normed ? normed : p.x;
            for (int row = 0; row < n_tokens && (normed || (layers && layers[k] == i)); row++)
                memcpy(out + (row * n_reads + k) * n, from + row * n, (size_t)n * sizeof *out);
        }
        mem_free(normed);
        if (i < t->n_layer) run_layer(&p, i);
    }
    close_plain(&p);
}

void plain_fuse(const tiny_model *t, const char *path, const double *reads, int n_tokens,
                double *features) {
    plain p = open_plain(t, path, PLAIN_DENSE, n_tokens);
    int n = 3 * t->draft.n_target;
    double *normed = t->draft.newer ? rms_norm(&p, -1, "enc.output_norm", reads, n_tokens, n)
                                    : NULL;
    double *y = linear(&p, -1, "fc", normed ? normed : reads, n, t->n_embd);
    memcpy(features, y, (size_t)n_tokens * (size_t)t->n_embd * sizeof *y);
    mem_free(normed);
    mem_free(y);
    close_plain(&p);
}

/* [n_tokens][2 * n_embd] */
static double *join(const plain *p, double *a, double *b) {
    int n = p->t->n_embd;
    double *y = zeros((int64_t)p->n_tokens * 2 * n);
    for (int i = 0; i < p->n_tokens; i++) {
        memcpy(y + 2 * i * n, a + i * n, (size_t)n * sizeof *y);
        memcpy(y + (2 * i + 1) * n, b + i * n, (size_t)n * sizeof *y);
    }
    mem_free(a);
    return y;
}

void plain_draft(const tiny_model *t, const char *path, const char *target, int number,
                 const double *features, const int32_t *tokens, int n_tokens, double *logits,
                 double *next) {
    plain p = open_plain(t, path, PLAIN_DENSE, n_tokens);
    plain other = open_plain(t, target, PLAIN_DENSE, n_tokens);
    bool eagle = strcmp(t->arch, "eagle3") == 0;
    int layer = eagle ? 0 : t->n_layer + number, n = t->n_embd;
    int n_out = t->draft.n_ids ? t->draft.n_ids : t->n_vocab;
    double *table = load(&p, -1, "token_embd.weight");
    double *e = embed(table ? &p : &other, -1, "token_embd.weight", tokens);
    double *en = norm(&p, layer, eagle ? "attn_norm" : "nextn.enorm", e);
    double *hn = norm(&p, layer, eagle ? "attn_norm_2" : "nextn.hnorm", features);
    double *both = join(&p, en, hn);
    if (eagle) {
        p.joined = both;
        p.x = zeros((int64_t)n_tokens * n);
        memcpy(p.x, t->draft.normed ? hn : features, (size_t)(n_tokens * n) * sizeof *e);
    } else {
        p.x = linear(&p, layer, "nextn.eh_proj", both, 2 * n, n);
    }
    run_layer(&p, layer);
    bool own = t->draft.own_norm;
    double *normed = norm(&p, own ? layer : -1, own ? "nextn.shared_head_norm" : "output_norm",
                          p.x);
    double *w = load(&p, -1, "output.weight"), *y;
    if (t->draft.own_head)
        y = linear(&p, layer, "nextn.shared_head_head", normed, n, n_out);
    else
        y = linear(w ? &p : &other, -1, "output", normed, n, n_out);
    for (int i = 0; i < n_tokens * t->n_vocab; i++) logits[i] = -INFINITY;
    for (int i = 0; i < n_tokens; i++)
        for (int k = 0; k < n_out; k++)
            logits[i * t->n_vocab + (t->draft.n_ids ? 2 * k : k)] = y[i * n_out + k];
    memcpy(next, eagle ? p.x : normed, (size_t)(n_tokens * n) * sizeof *next);
    mem_free(table);
    mem_free(e);
    mem_free(hn);
    mem_free(both);
    mem_free(normed);
    mem_free(w);
    mem_free(y);
    close_plain(&p);
    close_plain(&other);
}

/* Tiles multiply activations of 16 bits with F16 weights (CPU_ACT_F32_SPLIT). */
static bool rounds_activations(const tiny_model *t, pi_kernels kernels) {
    return strcmp(t->type, "f16") == 0 && cpu_features_get()->amx_bf16 &&
           (kernels == PI_KERNELS_AUTO || kernels == PI_KERNELS_AVX512);
}

double plain_gate(const tiny_model *t, pi_kernels kernels) {
    /* tiles: 1e-10, unless rounding moves the score of a neuron across the threshold */
    const double scalar = 1e-12, floats = 1e-11, tiles = 5e-6, bf16 = 5e-5, blocks = 5e-4;
    if (kernels == PI_KERNELS_SCALAR) return scalar;
    if (rounds_activations(t, kernels)) return tiles;
    if (strcmp(t->type, "bf16") == 0) return bf16;
    return t->type[0] == 'f' ? floats : blocks;
}
