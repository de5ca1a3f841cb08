/* tier_recur.h: the vectorized recurrence of a recurrent layer's head. A template: included once by
 * tier_all.h.
 *
 * Up to RECUR_FEW tokens update the state in turn. More tokens are computed together, in matrix
 * form (Yang et al. 2024, "Parallelizing linear transformers with the delta rule"; Dao and Gu 2024,
 * section 6). With E_t the elementwise product of the decays up to token t, and F_tu the product of
 * those after token u up to t,
 *
 *     S_t = S E_t + sum over u <= t of d_u (k_u F_tu)
 *     d_t = beta_t (v_t - S (k_t E_t) - sum over u < t of d_u A_tu),   A_tu = k_t . (k_u F_tu)
 *     out_t = S (q_t E_t) + sum over u <= t of d_u B_tu,               B_tu = q_t . (k_u F_tu)
 *
 * so that the state is read and written once for all of them. F is multiplied token by token,
 * because a quotient E_t / E_u would be 0 / 0 after strong decays. Rows of the state are
 * independent: A and B are computed once, then VF_N rows at a time stay in L1. */
#ifndef CPU_TIER_RECUR_H
#define CPU_TIER_RECUR_H

#include "simd.h"
#include "tier_ops.h"
#include "tiers.h"

enum { RECUR_FEW = 3 }; /* tokens: up to this number the matrix form costs more than it saves */

/* Two sweeps over a row; the second reads it from L1. Both sums use two chains. */
static void recur_row(const cpu_recurrence *a, int64_t t, int64_t r) {
    float *s = a->state + r * a->n;
    const float *decay = a->decay + t * a->n, *key = a->key + t * a->n;
    const float *query = a->query + t * a->n;
    vf known[2] = {vf_zero(), vf_zero()}, sum[2] = {vf_zero(), vf_zero()};
    int chain = 0;
    for (int64_t i = 0; a->beta && i < a->n; i += VF_N, chain ^= 1) {
        int c = tier_count(i, a->n);
        vf v = vf_mul(tier_get(s + i, c), tier_get(decay + i, c));
        known[chain] = vf_fma(v, tier_get(key + i, c), known[chain]);
    }
    float d = a->value[t * a->n_rows + r];
    if (a->beta) d = a->beta[t] * (d - vf_hsum(vf_add(known[0], known[1])));
    vf by = vf_set1(d);
    chain = 0;
    for (int64_t i = 0; i < a->n; i += VF_N, chain ^= 1) {
        int c = tier_count(i, a->n);
        vf v = vf_mul(tier_get(s + i, c), tier_get(decay + i, c));
        v = vf_fma(by, tier_get(key + i, c), v);
        tier_put(s + i, v, c);
        sum[chain] = vf_fma(v, tier_get(query + i, c), sum[chain]);
    }
    a->out[t * a->ld_out + r] = vf_hsum(vf_add(sum[0], sum[1]));
}

/* ---- several tokens -------------------------------------------------------------------------- */

typedef struct recur_products {
    float a[CPU_RECUR_TOKENS][CPU_RECUR_TOKENS], b[CPU_RECUR_TOKENS][CPU_RECUR_TOKENS];
    float *keys, *queries; /* [n_tokens][n]: k_t E_t, q_t E_t */
    float *late;           /* [n_tokens][n]: k_u F of the last token */
    float *decay;          /* [n]: E of the last token */
} recur_products;

static void recur_decay(const cpu_recurrence *a, const recur_products *p) {
    for (int64_t i = 0; i < a->n; i += VF_N) {
        int c = tier_count(i, a->n);
        vf e = vf_set1(1);
        for (int64_t at = i; at < a->n_tokens * a->n; at += a->n) {
            e = vf_mul(e, tier_get(a->decay + at, c));
            if (a->beta) tier_put(p->keys + at, vf_mul(e, tier_get(a->key + at, c)), c);
            tier_put(p->queries + at, vf_mul(e, tier_get(a->query + at, c)), c);
            tier_put(p->late + at, tier_get(a->key + at, c), c);
        }
        tier_put(p->decay + i, e, c);
    }
}

/* Computes A and B of token u and all later tokens, and decays k_u to the last token. */
static void recur_pairs(const cpu_recurrence *a, recur_products *p, int u) {
    float *late = p->late + u * a->n;
    for (int t = u; t < a->n_tokens; t++) {
        const float *decay = a->decay + t * a->n, *key = a->key + t * a->n;
        const float *query = a->query + t * a->n;
        vf known = vf_zero(), sum = vf_zero();
        for (int64_t i = 0; i < a->n; i += VF_N) {
            int c = tier_count(i, a->n);
            vf v = tier_get(late + i, c);
            if (t > u) {
                v = vf_mul(v, tier_get(decay + i, c));
                tier_put(late + i, v, c);
            }
            known = vf_fma(v, tier_get(key + i, c), known);
            sum = vf_fma(v, tier_get(query + i, c), sum);
        }
        p->a[t][u] = vf_hsum(known);
        p->b[t][u] = vf_hsum(sum);
    }
}

/* Lane i: S[i] . x. Lanes from `rows` on repeat the last row. */
SIMD_INLINE vf recur_dots(const float *state, int rows, int64_t n, const float *x) {
    vf sum[VF_N];
    const float *s[VF_N];
    SIMD_UNROLL
    for (int r = 0; r < VF_N; r++) {
        s[r] = state + (r < rows ? r : rows - 1) * n;
        sum[r] = vf_zero();
    }
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) {
        vf v = vf_load(x + i);
        SIMD_UNROLL
        for (int r = 0; r < VF_N; r++) sum[r] = vf_fma(v, vf_load(s[r] + i), sum[r]);
    }
    if (i < n) {
        int c = (int)(n - i);
        vf v = vf_load_part(x + i, c);
        for (int r = 0; r < VF_N; r++) sum[r] = vf_fma(v, vf_load_part(s[r] + i, c), sum[r]);
    }
    return vf_hsum_each(sum);
}

/* The contribution of the tokens to rows of the state, and their results. */
SIMD_INLINE void recur_solve(const cpu_recurrence *a, const recur_products *p, int64_t row,
                             int rows, vf d[CPU_RECUR_TOKENS]) {
    const float *state = a->state + row * a->n;
    for (int t = 0; t < a->n_tokens; t++) {
        d[t] = tier_get(a->value + t * a->n_rows + row, rows);
        if (a->beta) {
            vf known = recur_dots(state, rows, a->n, p->keys + t * a->n);
            for (int u = 0; u < t; u++) known = vf_fma(d[u], vf_set1(p->a[t][u]), known);
            d[t] = vf_mul(vf_set1(a->beta[t]), vf_sub(d[t], known));
        }
        vf out = recur_dots(state, rows, a->n, p->queries + t * a->n);
        for (int u = 0; u <= t; u++) out = vf_fma(d[u], vf_set1(p->b[t][u]), out);
        tier_put(a->out + t * a->ld_out + row, out, rows);
    }
}

/* vectors of a row at once: independent sums */
enum { RECUR_VECTORS = 4 };

/* n vectors of a row of the state after all tokens. */
SIMD_INLINE void recur_update(const cpu_recurrence *a, const recur_products *p, float *s,
                              const float *d, int64_t i, const int n, int c) {
    vf v[RECUR_VECTORS];
    for (int k = 0; k < n; k++)
        v[k] = vf_mul(tier_get(s + i + VF_N * k, c), tier_get(p->decay + i + VF_N * k, c));
    const float *late = p->late + i;
    for (int u = 0; u < a->n_tokens; u++, late += a->n) {
        vf by = vf_set1(d[u * VF_N]);
        for (int k = 0; k < n; k++) v[k] = vf_fma(by, tier_get(late + VF_N * k, c), v[k]);
    }
    for (int k = 0; k < n; k++) tier_put(s + i + VF_N * k, v[k], c);
}

static void recur_tokens(const cpu_recurrence *a) {
    recur_products p = {.keys = a->scratch};
    p.queries = p.keys + CPU_RECUR_TOKENS * a->n;
    p.late = p.queries + CPU_RECUR_TOKENS * a->n;
    p.decay = p.late + CPU_RECUR_TOKENS * a->n;
    recur_decay(a, &p);
    for (int u = 0; u < a->n_tokens; u++) recur_pairs(a, &p, u);
    for (int64_t row = 0; row < a->n_rows; row += VF_N) {
        int rows = tier_count(row, a->n_rows);
        vf d[CPU_RECUR_TOKENS];
        float added[CPU_RECUR_TOKENS * VF_N];
        if (rows == VF_N)
            recur_solve(a, &p, row, VF_N, d);
        else
            recur_solve(a, &p, row, rows, d);
        for (int t = 0; t < a->n_tokens; t++) vf_store(added + t * VF_N, d[t]);
        for (int r = 0; r < rows; r++) {
            float *s = a->state + (row + r) * a->n;
            int64_t i = 0;
            for (; i + RECUR_VECTORS * VF_N <= a->n; i += RECUR_VECTORS * VF_N)
                recur_update(a, &p, s, added + r, i, RECUR_VECTORS, VF_N);
            for (; i < a->n; i += VF_N)
                recur_update(a, &p, s, added + r, i, 1, tier_count(i, a->n));
        }
    }
}

static void tier_recur(const cpu_recurrence *a) {
    if (a->n_tokens > RECUR_FEW) {
        recur_tokens(a);
        return;
    }
    for (int64_t t = 0; t < a->n_tokens; t++)
        for (int64_t r = 0; r < a->n_rows; r++) recur_row(a, t, r);
}

#endif
