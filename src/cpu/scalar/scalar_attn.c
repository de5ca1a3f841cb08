/* scalar_attn.c: the reference of attention and of writing the KV cache, and the size of the
 * scratch, which all tiers share.
 *
 * Online softmax over blocks of positions. With m the running maximum of the scores, a block with
 * maximum b moves the state to m' = max(m, b): l and acc are scaled by e^(m - m') and the block's
 * e^(s - m') are added. Sums within a block are in double; the state is float between blocks. A
 * query without positions in a block, or with only scores of -inf, keeps its state, so -inf - -inf
 * is never computed. */
#include <math.h>

#include "attn.h"
#include "kv_low.h"
#include "quant_blocks.h"
#include "scalar_parts.h"

size_t cpu_attn_scratch_bytes(int n_q, int head_dim) {
    (void)n_q; /* queries are processed in tiles of fixed size */
    size_t rows = 2 * ATTN_BLOCK * attn_padded_dim(head_dim);
    return (ATTN_TILE * ATTN_SCORES + rows) * sizeof(float);
}

/* One block of 32. q is computed with the scale as stored (a half), so rounding the scale costs no
 * accuracy. Scales saturate at the largest half; a NaN or infinity makes the scale NaN, so that the
 * error is not hidden. The other tiers give the same bytes. */
static void scalar_store_q8_0(const float *x, block_q8_0 *dst) {
    const float largest_half = 65504.0f;
    float amax = 0;
    bool finite = true;
    for (int i = 0; i < q8_0_elems; i++) {
        finite = finite && isfinite(x[i]);
        amax = fmaxf(amax, fabsf(x[i]));
    }
    float scale = finite ? fminf(amax / 127.0f, largest_half) : NAN;
    dst->d = quant_f32_to_f16(scale);
    float d = quant_f16_to_f32(dst->d);
    for (int i = 0; i < q8_0_elems; i++) {
        float q = d > 0 ? nearbyintf(fmaxf(-127.0f, fminf(127.0f, x[i] / d))) : 0;
        dst->qs[i] = (int8_t)q;
    }
}

/* One block of 32, see kv_low.h. */
static void scalar_store_low(const float *x, const kv_low *f, uint8_t *dst) {
    int8_t q[KV_LOW_ELEMS];
    float lo = x[0], hi = x[0], d, m;
    bool finite = true;
    for (int i = 0; i < KV_LOW_ELEMS; i++) {
        finite = finite && isfinite(x[i]);
        lo = fminf(lo, x[i]);
        hi = fmaxf(hi, x[i]);
    }
    kv_low_scale(f, lo, hi, finite, dst, &d, &m);
    for (int i = 0; i < KV_LOW_ELEMS; i++) {
        float y = d < 0 || d > 0 ? (x[i] - m) / d : 0;
        int below = 0;
        for (int c = 0; c < KV_LOW_CODES - 1; c++) below += y > kv_low_middles[c];
        y = nearbyintf(fmaxf((float)f->least, fminf((float)f->most, y)));
        q[i] = (int8_t)(f->codes ? below : (int)y - f->least);
    }
    kv_low_pack(f, q, dst);
}

void scalar_kv_store(const float *x, void *dst, quant_type type, int64_t n) {
    const quant_traits *traits = quant_find((uint32_t)type);
    if (!traits->is_quantized) {
        traits->quantize(x, dst, n, NULL);
        return;
    }
    const kv_low f = kv_low_of(type);
    for (int64_t i = 0; i < n / KV_LOW_ELEMS && kv_is_low(type); i++)
        scalar_store_low(x + i * KV_LOW_ELEMS, &f, (uint8_t *)dst + i * f.bytes);
    if (kv_is_low(type)) return;
    for (int64_t i = 0; i < n / q8_0_elems; i++)
        scalar_store_q8_0(x + i * q8_0_elems, (block_q8_0 *)dst + i);
}

/* Decodes n rows of head_dim elements to float [n][ld]. */
static void decode_rows(const char *rows, size_t stride, quant_type type, int n, int head_dim,
                        float *out, size_t ld) {
    const quant_traits *traits = quant_find((uint32_t)type);
    for (int j = 0; j < n; j++, rows += stride, out += ld) traits->dequantize(rows, out, head_dim);
}

/* Attention of one query to positions [lo, hi) of a decoded block that begins at `block`. */
static void attend(const cpu_attn *a, int i, int64_t block, int lo, int hi, const float *k,
                   const float *v, size_t ld) {
    const float *q = a->q + (size_t)i * (size_t)a->head_dim;
    double p[ATTN_BLOCK], cap = a->softcap, sum = 0, top = -INFINITY;
    for (int j = lo; j < hi; j++) {
        double s = 0;
        for (int d = 0; d < a->head_dim; d++) s += (double)q[d] * k[(size_t)j * ld + (size_t)d];
        p[j] = cap > 0 ? cap * tanh(s / cap) : s;
        p[j] += (double)attn_slope(a, i) * (double)(block + j + 1 - a->limit[i]);
        if (!(p[j] <= top)) top = p[j]; /* takes a NaN, and then keeps it or a later score */
    }
    if (top == -INFINITY) return;
    float m = (float)top;
    if (m <= a->m[i]) m = a->m[i];
    if (!a->v) {
        a->m[i] = m;
        return;
    }
    int v_dim = attn_value_dim(a);
    float *acc = a->acc + (size_t)i * (size_t)v_dim;
    double scale = a->m[i] == m ? 1 : exp((double)a->m[i] - (double)m);
    for (int j = lo; j < hi; j++) sum += p[j] = exp(p[j] - (double)m);
    a->m[i] = m;
    a->l[i] = (float)(a->l[i] * scale + sum);
    for (int d = 0; d < v_dim; d++) {
        double value = acc[d] * scale;
        for (int j = lo; j < hi; j++) value += p[j] * v[(size_t)j * ld + (size_t)d];
        acc[d] = (float)value;
    }
}

void scalar_attention(const cpu_attn *a) {
    size_t ld = attn_padded_dim(a->head_dim);
    float *k = (float *)a->scratch + ATTN_TILE * ATTN_SCORES, *v = k + ATTN_BLOCK * ld;
    for (int64_t j = a->k0; j < a->k1; j += ATTN_BLOCK) {
        int n = a->k1 - j < ATTN_BLOCK ? (int)(a->k1 - j) : ATTN_BLOCK;
        decode_rows((const char *)a->k + (size_t)j * a->k_stride, a->k_stride, a->type_k, n,
                    a->head_dim, k, ld);
        if (a->v)
            decode_rows((const char *)a->v + (size_t)j * a->v_stride, a->v_stride, a->type_v, n,
                        attn_value_dim(a), v, ld);
        for (int i = 0; i < a->n_q; i++) {
            int lo, hi;
            if (attn_visible(a, i, j, n, &lo, &hi)) attend(a, i, j, lo, hi, k, v, ld);
        }
    }
}
