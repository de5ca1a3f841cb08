/* tier_ops.h: vectorized norms, RoPE, activations and sums. A template: included once by
 * tier_all.h, it defines static functions for the tier's vector width.
 *
 * An elementwise function applies the same vector instructions to every element (the last, fewer
 * than VF_N, use partial loads), so results do not depend on how a range is split. */
#ifndef CPU_TIER_OPS_H
#define CPU_TIER_OPS_H

#include <math.h>

#include "hadamard.h"
#include "simd.h"
#include "tiers.h"

SIMD_INLINE vf tier_get(const float *p, int n) {
    return n == VF_N ? vf_load(p) : vf_load_part(p, n);
}
/* Number of elements in the vector at i of n. */
SIMD_INLINE int tier_count(int64_t i, int64_t n) {
    return n - i < VF_N ? (int)(n - i) : VF_N;
}
SIMD_INLINE void tier_put(float *p, vf v, int n) {
    if (n == VF_N)
        vf_store(p, v);
    else
        vf_store_part(p, v, n);
}

enum { TIER_CHAINS = 4 }; /* independent sums: the latency of an add over its throughput, halved */

static float tier_sum(const float *x, int64_t n) {
    vf s[TIER_CHAINS] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + TIER_CHAINS * VF_N <= n; i += TIER_CHAINS * VF_N)
        for (int c = 0; c < TIER_CHAINS; c++) s[c] = vf_add(s[c], vf_load(x + i + c * VF_N));
    for (; i < n; i += VF_N) s[0] = vf_add(s[0], tier_get(x + i, tier_count(i, n)));
    return vf_hsum(vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3])));
}

/* Sum of (x - mean)^2. */
static float tier_squares(const float *x, int64_t n, float mean) {
    vf s[TIER_CHAINS] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}, mu = vf_set1(mean);
    int64_t i = 0;
    for (; i + TIER_CHAINS * VF_N <= n; i += TIER_CHAINS * VF_N)
        for (int c = 0; c < TIER_CHAINS; c++) {
            vf v = vf_sub(vf_load(x + i + c * VF_N), mu);
            s[c] = vf_fma(v, v, s[c]);
        }
    for (; i + VF_N <= n; i += VF_N) {
        vf v = vf_sub(vf_load(x + i), mu);
        s[0] = vf_fma(v, v, s[0]);
    }
    float rest = 0; /* padding must not contribute (0 - mean)^2 */
    for (; i < n; i++) rest += (x[i] - mean) * (x[i] - mean);
    return rest + vf_hsum(vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3])));
}

static float tier_rms_norm(const float *x, const float *w, float *y, int64_t n, float eps) {
    float squares = tier_squares(x, n, 0);
    vf scale = vf_set1(1.0f / sqrtf(squares / (float)n + eps));
    for (int64_t i = 0; i < n; i += VF_N) {
        int c = tier_count(i, n);
        vf v = vf_mul(tier_get(x + i, c), scale);
        tier_put(y + i, w ? vf_mul(v, tier_get(w + i, c)) : v, c);
    }
    return squares;
}

static float tier_layer_norm(const float *x, const float *w, const float *b, float *y, int64_t n,
                             float eps) {
    float mean = tier_sum(x, n) / (float)n, squares = tier_squares(x, n, mean);
    vf mu = vf_set1(mean), scale = vf_set1(1.0f / sqrtf(squares / (float)n + eps));
    for (int64_t i = 0; i < n; i += VF_N) {
        int c = tier_count(i, n);
        vf v = vf_mul(vf_sub(tier_get(x + i, c), mu), scale);
        if (w) v = vf_mul(v, tier_get(w + i, c));
        if (b) v = vf_add(v, tier_get(b + i, c));
        tier_put(y + i, v, c);
    }
    return squares;
}

static void tier_hadamard(float *x, int64_t n, int block) {
    hadamard_run(x, n, block);
}

static void tier_rope(float *x, int n_rot, const float *cs, bool neox) {
    int half = n_rot / 2, i = 0;
    if (!neox) {
        for (; i < 2 * half; i += VF_N) {
            int c = tier_count(i, 2 * half);
            tier_put(x + i, vf_rotate_pairs(tier_get(x + i, c), tier_get(cs + i, c)), c);
        }
        return;
    }
    for (; i + VF_N <= half; i += VF_N) {
        vf c, s, a = vf_load(x + i), b = vf_load(x + half + i);
        vf_split_pairs(cs + 2 * i, &c, &s);
        vf_store(x + i, vf_sub(vf_mul(a, c), vf_mul(b, s)));
        vf_store(x + half + i, vf_add(vf_mul(a, s), vf_mul(b, c)));
    }
    for (; i < half; i++) {
        float c = cs[2 * i], s = cs[2 * i + 1], a = x[i], b = x[half + i];
        x[i] = a * c - b * s;
        x[half + i] = a * s + b * c;
    }
}

static void tier_softcap(float *x, float cap, int64_t n) {
    vf by = vf_set1(cap), inverse = vf_set1(1.0f / cap);
    for (int64_t i = 0; i < n; i += VF_N) {
        int c = tier_count(i, n);
        tier_put(x + i, vf_mul(by, vf_tanh(vf_mul(tier_get(x + i, c), inverse))), c);
    }
}

static void tier_decay(const float *x, const float *bias, float a, float least, float *y,
                       int64_t n) {
    for (int64_t i = 0; i < n; i += VF_N) {
        int c = tier_count(i, n);
        vf v = vf_add(tier_get(x + i, c), tier_get(bias + i, c));
        if (least < 0)
            v = vf_mul(vf_set1(least), vf_sigmoid(vf_mul(vf_set1(-a), v)));
        else
            v = vf_mul(vf_set1(a), vf_softplus(v));
        tier_put(y + i, vf_exp(v), c);
    }
}

static void tier_gate(const float *gate, float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += VF_N) {
        int c = tier_count(i, n);
        tier_put(x + i, vf_mul(tier_get(x + i, c), vf_sigmoid(tier_get(gate + i, c))), c);
    }
}

SIMD_INLINE vf tier_activation(activation f, vf threshold, vf x) {
    /* gelu: 0.5 (1 + tanh u) = 1 / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3) */
    const float minus_2_sqrt_2_over_pi = -1.5957691216057308f;
    vf one = vf_set1(1.0f), relu = vf_max(vf_zero(), x), u;
    switch (f) {
    case ACTIVATION_SILU:
        return vf_div(x, vf_add(one, vf_exp(vf_sub(vf_zero(), x))));
    case ACTIVATION_GELU:
        u = vf_fma(vf_mul(vf_mul(x, x), vf_set1(0.044715f)), x, x);
        return vf_div(x, vf_add(one, vf_exp(vf_mul(u, vf_set1(minus_2_sqrt_2_over_pi)))));
    case ACTIVATION_RELU_SQUARED:
        return vf_mul(relu, relu);
    case ACTIVATION_FATRELU:
        return vf_keep(vf_gt(x, threshold), x);
    default: /* relu, drelu */
        return relu;
    }
}

/* `f` is a constant after inlining, so that the loop has no branch. */
SIMD_INLINE void tier_activate_as(activation f, float threshold, const float *gate, const float *up,
                                  float *y, int64_t n) {
    vf limit = vf_set1(threshold);
    for (int64_t i = 0; i < n; i += VF_N) {
        int c = tier_count(i, n);
        vf v = tier_activation(f, limit, tier_get(gate + i, c));
        if (up) {
            vf u = tier_get(up + i, c);
            v = vf_mul(v, f == ACTIVATION_DRELU ? vf_max(vf_zero(), u) : u);
        }
        tier_put(y + i, v, c);
    }
}

static void tier_activate(activation f, float threshold, const float *gate, const float *up,
                          float *y, int64_t n) {
    switch (f) {
    case ACTIVATION_SILU:
        tier_activate_as(ACTIVATION_SILU, threshold, gate, up, y, n);
        return;
    case ACTIVATION_GELU:
        tier_activate_as(ACTIVATION_GELU, threshold, gate, up, y, n);
        return;
    case ACTIVATION_RELU_SQUARED:
        tier_activate_as(ACTIVATION_RELU_SQUARED, threshold, gate, up, y, n);
        return;
    case ACTIVATION_FATRELU:
        tier_activate_as(ACTIVATION_FATRELU, threshold, gate, up, y, n);
        return;
    case ACTIVATION_DRELU:
        tier_activate_as(ACTIVATION_DRELU, threshold, gate, up, y, n);
        return;
    default:
        tier_activate_as(ACTIVATION_RELU, threshold, gate, up, y, n);
    }
}

static void tier_add(const float *a, const float *b, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i += VF_N) {
        int c = tier_count(i, n);
        tier_put(y + i, vf_add(tier_get(a + i, c), tier_get(b + i, c)), c);
    }
}

#endif
