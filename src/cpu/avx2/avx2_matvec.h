/* avx2_matvec.h: products of quantized rows with one vector; for several vectors see
 * avx2_columns.h. A template: a file includes it once, compiled with or without AVX-VNNI's dot
 * products. Four rows are computed at a time, from the four quarters of the range, so that a thread
 * reads four sequential streams that are far apart; cache lines are prefetched MV_AHEAD bytes
 * ahead. Sums are added in one order for every blocking.
 *
 * Eight groups are a chunk. Its products are four vectors, one per pair of groups, which are
 * reduced to one vector with the sums of the eight groups (fields of bytes give this vector
 * directly). So one conversion and one multiplication by the scales of activations serve all eight
 * groups. The format of the weights determines the order of elements in the vectors
 * (avx2_quants.h); the column is arranged in this order once for all rows, if it fits. */
#ifndef CPU_AVX2_MATVEC_H
#define CPU_AVX2_MATVEC_H

#include "avx2_columns.h"

/* Whether instructions add four products of bytes to a 32-bit word. With a scale per 16 elements,
 * products are multiplied with it while they have 16 bits. */
AVX2_INLINE bool mv_dots_four(const q_format *f) {
    return Q_DOTS_FOUR && f->sub == 32;
}

AVX2_INLINE __m256i mv_dot_four(__m256i sum, __m256i w, __m256i x) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sum, w, x);
#else
    (void)w, (void)x;
    return sum;
#endif
}

enum {
    MV_ROWS = 4,    /* rows at once: separate streams */
    MV_READY = 256, /* chunks arranged in advance: 152 KiB, a column of 65536 */
    MV_AHEAD = 4096 /* bytes of prefetch */
};

/* The contribution of a column's chunk, arranged for mv_dots and in the order of scales. */
typedef struct mv_part {
    __m256i x[Q_GROUPS]; /* elements; one group of a pair per 128-bit lane */
    union {
        __m256i size[Q_GROUPS];   /* their absolute values, for signed weights */
        __m256i by_bit[Q_GROUPS]; /* elements in the order of q_fifth_bits */
        __m256i start[4];         /* for fields: initial sums, which subtract the weights' offset */
    };
    __m256 dx;   /* scales */
    __m256i sum; /* sums of elements: of 16 as words, of 32 times the weights' offset */
    __m256 lift; /* dx times sums of 32, for minima */
} mv_part;

/* Elements 0..15 and 16..31, per lane, in the order of q_fifth_bits. */
AVX2_INLINE void mv_by_bit(const __m256i x[2], __m256i out[2]) {
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    __m256i first = _mm256_shuffle_epi8(x[0], order), last = _mm256_shuffle_epi8(x[1], order);
    out[0] = _mm256_unpacklo_epi16(first, last);
    out[1] = _mm256_unpackhi_epi16(first, last);
}

/* ---- fields of bytes ------------------------------------------------------------------------- */

/* Number of vectors of 16 elements per group (see q_spread) whose products are added before they
 * are multiplied with the scales of these elements. Dot products of four have room for all; others
 * have 16 bits. */
AVX2_INLINE int mv_run_length(const q_format *f) {
    const int largest = f->offset != 0 ? f->offset : f->top, highest = f->at[1];
    return Q_DOTS_FOUR || (largest << highest) * INT8_MAX * 2 * 4 <= INT16_MAX ? 4 : 2;
}

AVX2_INLINE __m256i mv_add_dot(__m256i sum, __m256i w, __m256i x) {
    return Q_DOTS_FOUR ? mv_dot_four(sum, w, x) : _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
}

AVX2_INLINE __m256i mv_places(const q_format *f) {
    return _mm256_setr_epi32(f->at[0], f->at[1], f->at[2], f->at[3], f->at[0], f->at[1], f->at[2],
                             f->at[3]);
}

/* The byte in all elements, in the layout of fields. */
AVX2_INLINE __m256i mv_in_fields(const q_format *f, int byte) {
    return _mm256_sllv_epi32(_mm256_set1_epi8((char)byte), mv_places(f));
}

/* Vector j of half h: elements 16 h + 4 j .. + 3 of all groups. */
AVX2_INLINE void mv_load_fields(const q_format *f, const __m256i q[Q_GROUPS], mv_part *part) {
    const int n = mv_run_length(f);
    for (int g = 0; g < Q_GROUPS; g++)
        part->x[g] = q[f->crossed ? g / 4 * 4 + g % 2 * 2 + g % 4 / 2 : g];
    vi_transpose(part->x);
    for (int i = 0; i < Q_GROUPS / n && f->offset != 0; i++) {
        __m256i sum = _mm256_setzero_si256();
        for (int j = 0; j < n; j++)
            sum = mv_add_dot(sum, mv_in_fields(f, f->offset), part->x[i * n + j]);
        part->start[i] = Q_DOTS_FOUR ? _mm256_sub_epi32(_mm256_setzero_si256(), sum)
                                     : _mm256_sub_epi16(_mm256_setzero_si256(), sum);
    }
}

/* Chunk k of column `col` with `groups` valid groups. Scales and sums are padded with zeros;
 * elements are not. */
AVX2_INLINE mv_part mv_load(const q_format *f, const cpu_act *act, int64_t col, int64_t k,
                            const int groups) {
    const act_q8_column x = act_q8_skip(act_q8_at(act, col), (int)k * Q_GROUPS);
    mv_part part;
    __m256i q[Q_GROUPS];
    for (int g = 0; g < Q_GROUPS; g++)
        q[g] = g < groups ? _mm256_loadu_si256((const void *)(x.q + g * CPU_ACT_GROUP))
                          : _mm256_setzero_si256();
    for (int i = 0; i < Q_GROUPS / 2 && f->fields == NULL; i++) {
        const int near = f->apart ? i / 2 * 4 + i % 2 : 2 * i, a = f->sub == 16 ? i : near;
        const int b = a + (f->sub == 16 ? 4 : f->apart ? 2 : 1);
        __m256i first = _mm256_permute2x128_si256(q[a], q[b], 0x20);
        __m256i last = _mm256_permute2x128_si256(q[a], q[b], 0x31);
        part.x[2 * i] = f->sub == 16 ? _mm256_unpacklo_epi64(first, last) : first;
        part.x[2 * i + 1] = f->sub == 16 ? _mm256_unpackhi_epi64(first, last) : last;
        if (f->bits != NULL) mv_by_bit(part.x + 2 * i, part.by_bit + 2 * i);
    }
    for (int i = 0; i < Q_GROUPS && f->is_signed; i++) part.size[i] = _mm256_abs_epi8(part.x[i]);
    if (f->fields != NULL) mv_load_fields(f, q, &part);
    __m256i low = _mm256_loadu_si256((const void *)x.sum);
    __m256i high = _mm256_loadu_si256((const void *)(x.sum + Q_GROUPS));
    part.dx = _mm256_loadu_ps(x.d);
    if (f->sub == 16) {
        part.sum = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
        if (f->crossed) {
            const __m256i order = _mm256_setr_epi32(0, 2, 1, 3, 4, 6, 5, 7);
            part.dx = _mm256_permutevar8x32_ps(part.dx, order);
        }
        part.dx = _mm256_mul_ps(part.dx, _mm256_set1_ps(1.0f / (float)(1 << f->scale_shift)));
        return part;
    }
    /* sums of pairs come out as groups 0 1 4 5 2 3 6 7 */
    __m256i sum = _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xd8);
    part.lift = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), part.dx);
    part.sum = _mm256_mullo_epi32(sum, _mm256_set1_epi32(f->offset));
    return part;
}

/* ---- products of a chunk --------------------------------------------------------------------- */

/* Whether a sum of n products fits into 16 bits. Sums of products are 16-bit words while the
 * largest ones fit, then 32-bit words; `n` counts the products of a 16-bit word after the sum in
 * question. Dot products of four have 32 bits from the start. */
AVX2_INLINE bool mv_fits(const q_format *f, int n) {
    return n * f->top * INT8_MAX <= INT16_MAX;
}
AVX2_INLINE bool mv_narrow(const q_format *f, int n) {
    return !mv_dots_four(f) && mv_fits(f, n);
}
AVX2_INLINE __m256i mv_prepare(const q_format *f, int n, __m256i v) {
    return !mv_narrow(f, n) && mv_narrow(f, n / 2) ? q_widen(v) : v;
}
AVX2_INLINE __m256i mv_add(const q_format *f, int n, __m256i a, __m256i b) {
    return mv_narrow(f, n) ? _mm256_add_epi16(a, b) : _mm256_add_epi32(a, b);
}

AVX2_INLINE __m256i mv_dot16(const q_format *f, __m256i w, const mv_part *x, int i) {
    if (!f->is_signed) return _mm256_maddubs_epi16(w, x->x[i]);
    if (f->top > INT8_MAX) return q_dot16(w, x->x[i]); /* -128 cannot be negated */
    return _mm256_maddubs_epi16(x->size[i], _mm256_sign_epi8(w, x->x[i]));
}

/* Products with the two vectors of pair i, four to a word; w[2] and w[3] are their bits. */
AVX2_INLINE __m256i mv_pair(const q_format *f, const __m256i w[4], const mv_part *x, int i) {
    const __m256i *at = x->x + 2 * i, *by_bit = x->by_bit + 2 * i;
    if (mv_dots_four(f)) {
        __m256i sum = _mm256_setzero_si256();
        for (int h = 0; h < 2; h++) sum = mv_dot_four(sum, w[h], at[h]);
        for (int h = 0; h < 2 && f->bits != NULL; h++) sum = mv_dot_four(sum, w[2 + h], by_bit[h]);
        return sum;
    }
    __m256i a = mv_prepare(f, 4, mv_dot16(f, w[0], x, 2 * i));
    __m256i b = mv_prepare(f, 4, mv_dot16(f, w[1], x, 2 * i + 1));
    __m256i sum = mv_add(f, 4, a, b);
    for (int h = 0; h < 2 && f->bits != NULL; h++) /* within the same bounds */
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w[2 + h], by_bit[h]));
    return sum;
}

/* Per 128-bit lane: half a lane of sums from each. */
AVX2_INLINE __m256i mv_halve(const q_format *f, int n, __m256i a, __m256i b) {
    a = mv_prepare(f, n, a);
    b = mv_prepare(f, n, b);
    return mv_add(f, n, _mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/* Per half of a lane: its two 32-bit words, to be added as such or as pairs of 16 bits. */
AVX2_INLINE void mv_split(__m256i a, __m256i b, __m256i out[2]) {
    __m256 fa = _mm256_castsi256_ps(a), fb = _mm256_castsi256_ps(b);
    out[0] = _mm256_castps_si256(_mm256_shuffle_ps(fa, fb, 0x88));
    out[1] = _mm256_castps_si256(_mm256_shuffle_ps(fa, fb, 0xdd));
}
AVX2_INLINE __m256i mv_quarter(const q_format *f, int n, __m256i a, __m256i b) {
    __m256i s[2];
    mv_split(mv_prepare(f, n, a), mv_prepare(f, n, b), s);
    return mv_add(f, n, s[0], s[1]);
}
AVX2_INLINE __m256i mv_quarter_32(__m256i a, __m256i b) {
    __m256i s[2];
    mv_split(a, b, s);
    return _mm256_add_epi32(s[0], s[1]);
}

/* Whether to pack sums. Per lane: neighbours of a, then those of b. 32-bit sums of n products each
 * that fit into 16 bits are packed, which takes fewer instructions than adding 32-bit words. */
AVX2_INLINE bool mv_packs(const q_format *f, int n) {
    return mv_dots_four(f) && mv_fits(f, n);
}
AVX2_INLINE __m256i mv_pack(__m256i a, __m256i b) {
    return q_widen(_mm256_packs_epi32(a, b));
}

/* Sums of eight groups with one scale each, in the order of scales. */
AVX2_INLINE __m256i mv_sums_32(const q_format *f, const __m256i t[4]) {
    const __m256i order = f->apart ? _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7)
                                   : _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i a = mv_packs(f, 8) ? mv_pack(t[0], t[1]) : mv_halve(f, 8, t[0], t[1]);
    __m256i b = mv_packs(f, 8) ? mv_pack(t[2], t[3]) : mv_halve(f, 8, t[2], t[3]);
    __m256i sum = mv_packs(f, 16) ? mv_pack(a, b) : mv_quarter(f, 16, a, b);
    return _mm256_permutevar8x32_epi32(mv_narrow(f, 16) ? q_widen(sum) : sum, order);
}

/* Sums with two scales per group; the scales multiply 16-bit sums. */
AVX2_INLINE __m256i mv_sums_16(const __m256i t[4], __m256i scale) {
    __m256i low = _mm256_unpacklo_epi16(scale, scale), high = _mm256_unpackhi_epi16(scale, scale);
    __m256i p[4];
    for (int i = 0; i < 4; i++) {
        __m256i two = i < 2 ? low : high;
        two = i % 2 == 0 ? _mm256_unpacklo_epi32(two, two) : _mm256_unpackhi_epi32(two, two);
        p[i] = _mm256_madd_epi16(t[i], two);
    }
    return mv_quarter_32(mv_quarter_32(p[0], p[1]), mv_quarter_32(p[2], p[3]));
}

AVX2_INLINE void mv_prefetch(const q_format *f, const uint8_t *ahead, int step, int n_steps) {
    const int lines = (f->chunk_bytes + 63) / 64;
    for (int line = lines * step / n_steps; line < lines * (step + 1) / n_steps; line++)
        _mm_prefetch((const char *)ahead + 64 * line, _MM_HINT_T0);
}

/* Sums of products with a chunk's pairs, without the weights' offset. */
AVX2_INLINE __m256i mv_dots_pairs(const q_format *f, const uint8_t *p, const uint8_t *ahead,
                                  const mv_part *x, const q_subs *sub) {
    const int steps = Q_GROUPS / 2;
    __m256i t[4];
#pragma GCC unroll 4
    for (int i = 0; i < steps; i++) {
        __m256i w[4];
        f->pair(p, i, w);
        if (f->bits != NULL) f->bits(p, i, w + 2);
        mv_prefetch(f, ahead, i, steps);
        t[i] = mv_pair(f, w, x, i);
    }
    return f->sub == 32 ? mv_sums_32(f, t) : mv_sums_16(t, sub->scale);
}

/* Indices for 16-bit words: the eight scales of one half, each twice, because 16-bit sums are in
 * pairs. */
AVX2_INLINE __m256i mv_twice(int half) {
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13));
    return _mm256_add_epi8(first, _mm256_set1_epi8((char)(2 * half)));
}

/* Sums of products with a chunk's fields, times the scales, including the offset. When the 32-bit
 * sums of both halves fit into 16 bits, they are scaled together; otherwise each half is scaled
 * separately, as pairs of 16 bits. */
AVX2_INLINE __m256i mv_dots_fields(const q_format *f, const uint8_t *p, const uint8_t *ahead,
                                   const mv_part *x, __m256i scale) {
    const __m256i at = mv_places(f), mask = mv_in_fields(f, f->top);
    const int n = mv_run_length(f);
    __m256i t[2], dot = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        const __m256i twice = _mm256_shuffle_epi8(scale, mv_twice(half));
        __m256i from[2], w[4];
        f->fields(p, half, from);
        q_spread(from, mask, w);
        mv_prefetch(f, ahead, half, 2);
        for (int i = half * 4 / n; i < (half + 1) * 4 / n; i++) {
            __m256i sum = f->offset != 0 ? x->start[i] : _mm256_setzero_si256();
            for (int j = i * n; j < (i + 1) * n; j++) sum = mv_add_dot(sum, w[j % 4], x->x[j]);
            if (Q_DOTS_FOUR)
                t[half] = sum;
            else
                dot = _mm256_add_epi32(dot, _mm256_madd_epi16(sum, twice));
        }
    }
    if (!Q_DOTS_FOUR) return _mm256_srav_epi32(dot, at);
    __m256i low = _mm256_srav_epi32(t[0], at);
    __m256i high = _mm256_sllv_epi32(t[1], _mm256_sub_epi32(_mm256_set1_epi32(16), at));
    return _mm256_madd_epi16(_mm256_blend_epi16(low, high, 0xaa), scale);
}

/* A chunk of a row times a column; prefetches the chunk at `ahead`. */
AVX2_INLINE __m256 mv_chunk(const q_format *f, const uint8_t *p, const uint8_t *ahead,
                            const mv_part *x, __m256 acc) {
    q_scales s;
    q_subs sub;
    if (f->sub == 32)
        f->scales(p, &s);
    else
        f->subs(p, &sub);
    __m256i dot = f->fields != NULL ? mv_dots_fields(f, p, ahead, x, sub.scale)
                                    : mv_dots_pairs(f, p, ahead, x, &sub);
    if (f->sub == 32) {
        if (f->offset != 0) dot = _mm256_sub_epi32(dot, x->sum);
        if (f->has_min) acc = _mm256_fnmadd_ps(s.m[0], x->lift, acc);
    } else {
        if (f->offset != 0 && f->fields == NULL) { /* a power of two */
            __m256i off = _mm256_madd_epi16(sub.scale, x->sum);
            dot = _mm256_sub_epi32(dot, _mm256_slli_epi32(off, __builtin_ctz((unsigned)f->offset)));
        }
        if (f->has_min) {
            __m256 min = _mm256_cvtepi32_ps(_mm256_madd_epi16(sub.min, x->sum));
            acc = _mm256_fnmadd_ps(min, _mm256_mul_ps(sub.dmin, x->dx), acc);
        }
    }
    __m256 d = _mm256_mul_ps(f->sub == 32 ? s.d[0] : sub.d, x->dx);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, acc);
}

/* Rows i, i + stride, ... (n_rows of them) of s times column `col`. `ready` (may be NULL) holds the
 * column's whole chunks. */
AVX2_INLINE void mv_rows(const q_format *f, const int n_rows, const cpu_rows *s, int64_t i,
                         int64_t stride, const cpu_act *act, int64_t col, const mv_part *ready,
                         float *y) {
    const cpu_mat *w = s->w;
    const uint8_t *p[MV_ROWS], *ahead[MV_ROWS];
    __m256 acc[MV_ROWS];
    mv_part part;
    /* The prefetch is `lead` chunks ahead: this far before a row's end it moves to the next row. */
    const int64_t chunks = w->n_in / Q_CHUNK, left = w->n_in % Q_CHUNK;
    const int64_t near = MV_AHEAD / f->chunk_bytes, lead = near < chunks ? near : chunks;
    for (int r = 0; r < n_rows; r++) {
        p[r] = rows_at(s, i + r * stride);
        ahead[r] = p[r] + lead * f->chunk_bytes;
        acc[r] = _mm256_setzero_ps();
    }
    for (int64_t k = 0; k < chunks; k++) {
        if (k == chunks - lead)
            for (int r = 0; r < n_rows; r++) ahead[r] = rows_next(s, i + r * stride, n_rows);
        if (ready == NULL) part = mv_load(f, act, col, k, Q_GROUPS);
            /* Unrolled: pointers and sums stay in registers, 21 instead of 16 GB/s for Q4_0. */
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
            acc[r] = mv_chunk(f, p[r], ahead[r], ready != NULL ? ready + k : &part, acc[r]);
            p[r] += f->chunk_bytes;
            ahead[r] += f->chunk_bytes;
        }
    }
    if (left) {
        part = mv_load(f, act, col, chunks, (int)left / CPU_ACT_GROUP);
        for (int r = 0; r < n_rows; r++) {
            uint8_t tail[Q_CHUNK_BYTES_MAX] = {0};
            memcpy(tail, p[r], q_bytes(f, left));
            acc[r] = mv_chunk(f, tail, ahead[r], &part, acc[r]);
        }
    }
    for (int r = 0; r < n_rows; r++) y[i + r * stride] = avx2_sum(acc[r]);
}

AVX2_INLINE void mv_run(const q_format *f, const cpu_rows *s, const cpu_act *x, float *y,
                        int64_t ldy) {
    if (x->n_cols > 1 && mc_fits(x->n)) {
        mc_matvec(f, s, x, y, ldy);
        return;
    }
    mv_part ready[MV_READY];
    const int64_t chunks = x->n / Q_CHUNK;
    const int64_t n_groups = chunks <= MV_READY ? s->n / MV_ROWS : 0;
    const int64_t stride = rows_stride(s, n_groups);
    for (int64_t col = 0; col < x->n_cols; col++, y += ldy) {
        for (int64_t k = 0; k < chunks && n_groups > 0; k++)
            ready[k] = mv_load(f, x, col, k, Q_GROUPS);
        for (int64_t g = 0; g < n_groups; g++)
            mv_rows(f, MV_ROWS, s, rows_first(s, g, MV_ROWS), stride, x, col, ready, y);
        for (int64_t i = n_groups * MV_ROWS; i < s->n; i++) mv_rows(f, 1, s, i, 0, x, col, NULL, y);
    }
}

#endif
