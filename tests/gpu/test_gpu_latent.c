/* test_gpu_latent.c: compressed attention (MLA) on a device, compared with formulas in double: the
 * matrices of heads, the cached row, attention over rows that all heads share: all of them, a
 * window, compressed keys, or those of a list. */
#include <stdlib.h>

#include "gpu_case.h"

#define OPS (&the_case.b->ops)

enum { COLS = 3, N_CTX = 400 };

/* ---- a matrix per head ----------------------------------------------------------------------- */

/* The values of n floats that products with this type use: int8 with a scale per 32. */
static void see(quant_type type, const float *x, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++) out[i] = (double)x[i];
    for (int64_t g = 0; g < n && gpu_type_wants_q8(type); g += 32) {
        float amax = 0;
        for (int64_t i = g; i < g + 32; i++) amax = fmaxf(amax, fabsf(x[i]));
        float d = amax / 127.0f;
        for (int64_t i = g; i < g + 32; i++) out[i] = (double)d * rint((double)(x[i] / d));
    }
}

enum { LONGEST_INPUT = 1024 };

static void check_heads(quant_type type, int64_t rows, int64_t n_in, int n_heads, int n_cols) {
    const int64_t before_in = 8, in_stride = n_in + 4, ldx = before_in + n_heads * in_stride;
    const int64_t y_stride = rows + 3, ldy = n_heads * y_stride + 5;
    case_teardown(NULL);
    case_mat w = case_weights(type, n_heads * rows, n_in);
    float *x = case_random(ldx * n_cols, 1), *y = case_random(ldy * n_cols, 1);
    float *got = case_host((size_t)(ldy * n_cols) * 4);
    double seen[LONGEST_INPUT];
    const size_t scratch = gpu_heads_scratch(type, n_in, n_heads, n_cols);
    const gpu_heads a = {.w = w.mat,
                         .x = (float *)case_upload(x, (size_t)(ldx * n_cols) * 4) + before_in,
                         .ldx = ldx,
                         .x_stride = in_stride,
                         .scale = 0.5f,
                         .n_heads = n_heads,
                         .n_cols = n_cols,
                         .y = case_upload(y, (size_t)(ldy * n_cols) * 4),
                         .ldy = ldy,
                         .y_stride = y_stride,
                         .scratch = scratch > 0 ? case_alloc(scratch) : NULL};
    OPS->heads(the_case.stream, &a);
    case_download(got, a.y, (size_t)(ldy * n_cols) * 4);
    for (int c = 0; c < n_cols; c++) {
        for (int64_t i = 0; i < ldy; i++) {
            int64_t head = i / y_stride, r = i % y_stride, at = c * ldy + i;
            if (head >= n_heads || r >= rows) { /* not written */
                assert_true(got[at] == y[at]);
                continue;
            }
            see(type, x + c * ldx + before_in + head * in_stride, n_in, seen);
            const float *row = w.values + (head * rows + r) * n_in;
            double want = 0, size = 1e-30;
            for (int64_t k = 0; k < n_in; k++) {
                want += 0.5 * (double)row[k] * seen[k];
                size += fabs((double)row[k] * seen[k]);
            }
            case_near((double)got[at], want, size, 4e-6, "heads", at);
        }
    }
}

static void test_heads(void **state) {
    (void)state;
    for (int i = 0; i < case_n_types; i++) {
        int64_t n_in = case_width(case_types[i], i % 2 ? 128 : 512);
        check_heads(case_types[i], 17 + i % 3, n_in, 3, 1 + i % GPU_MAX_COLS);
    }
    check_heads(QUANT_F32, 24, 12, 5, 2); /* no whole group */
    check_heads(QUANT_F16, 1, GPU_MAX_LATENT, 1, GPU_MAX_COLS);
    check_heads(QUANT_Q8_0, 9, GPU_MAX_LATENT, 2, 5);
}

/* Groups of heads, whose inputs do not fit the shared memory of a thread block. */
static void test_groups(void **state) {
    (void)state;
    for (int i = 0; i < case_n_types; i += 3) {
        int64_t n_in = case_width(case_types[i], i % 2 ? 640 : LONGEST_INPUT);
        check_heads(case_types[i], 9 + i % 3, n_in, 1 + i % 6, 1 + i % GPU_MAX_COLS);
    }
    check_heads(QUANT_Q8_0, 8, LONGEST_INPUT, 9, 3);
    check_heads(QUANT_F32, 8, 580, 5, GPU_MAX_COLS);
    check_heads(QUANT_F16, 8, LONGEST_INPUT, 4, 1);
}

/* ---- caches ---------------------------------------------------------------------------------- */

static size_t row_bytes(quant_type type, int dim) {
    size_t n;
    assert_true(quant_row_bytes(type, (uint64_t)dim, &n));
    return n;
}

/* The second of two layers; one session per column. Compressed keys follow the keys, then scores
 * and lists of sparse attention. */
typedef struct caches {
    gpu_kv_layout kv;
    size_t compressed, lists; /* bytes per position before them */
    gpu_column cols[COLS], *device_cols;
    uint8_t *bytes[COLS]; /* host copies */
    size_t n_bytes[COLS];
} caches;

enum { MOST = 48 /* columns of a session */, LISTS_BYTES = MOST * 2 * N_CTX * 4 };

static caches make_caches(quant_type type, int dim, const int32_t pos[COLS]) {
    size_t row = row_bytes(type, dim),
           step = quant_find((uint32_t)type)->is_quantized ? row : (row + 15) / 16 * 16;
    const int spread = case_spread_of(type, dim);
    caches s = {.kv = {.k_offset = step,
                       .v_offset = step + row,
                       .k_row = row,
                       .type_k = type,
                       .k_hadamard = spread,
                       .v_hadamard = spread,
                       .n_head_kv = 1,
                       .head_dim = dim,
                       .v_dim = dim},
                .compressed = 2 * step,
                .lists = (3 * step + 3) / 4 * 4};
    for (int c = 0; c < COLS; c++) {
        s.cols[c].n_ctx = N_CTX - 16 * c;
        s.cols[c].pos = pos[c];
        s.n_bytes[c] = (size_t)s.cols[c].n_ctx * s.lists + LISTS_BYTES;
        s.bytes[c] = case_host(s.n_bytes[c]);
        s.cols[c].kv = case_alloc(s.n_bytes[c]);
    }
    s.device_cols = case_upload(s.cols, sizeof s.cols);
    return s;
}

/* A row of the keys (offset kv.k_offset) or of the compressed keys. */
static uint8_t *row_at(const caches *s, int c, size_t offset, int64_t row) {
    return s->bytes[c] + (size_t)s->cols[c].n_ctx * offset + (size_t)row * s->kv.k_row;
}

static void read_at(const caches *s, const uint8_t *row, float out[GPU_MAX_LATENT]) {
    quant_find((uint32_t)s->kv.type_k)->dequantize(row, out, s->kv.head_dim);
}

static void read_row(const caches *s, int c, int64_t pos, float out[GPU_MAX_LATENT]) {
    read_at(s, row_at(s, c, s->kv.k_offset, pos), out);
}

/* ---- the cached row -------------------------------------------------------------------------- */

/* RoPE in place: angle i is pos * freq[i]. */
static void rotate(double *x, int n, bool neox, double pos, const float *freq) {
    for (int i = 0; i < n / 2; i++) {
        int even = neox ? i : 2 * i, odd = neox ? i + n / 2 : 2 * i + 1;
        double c = cos(pos * (double)freq[i]), s = sin(pos * (double)freq[i]);
        double a = x[even], b = x[odd];
        x[even] = a * c - b * s;
        x[odd] = a * s + b * c;
    }
}

static void check_store(quant_type type, int n_latent, int n_rot, bool neox, bool rotates) {
    static const int32_t pos[COLS] = {0, 17, 350};
    enum { HEADS = 5, Q_DIM = 72, MAX_ROT = 64 };
    const int dim = n_latent + n_rot, ldq = HEADS * Q_DIM + 4, ldk = dim + 4, ldo = HEADS * dim;
    case_teardown(NULL);
    caches s = make_caches(type, dim, pos);
    float *q = case_random(COLS * ldq, 1), *k = case_random(COLS * ldk, 1);
    float *norm = case_random(n_latent, 1), freq[MAX_ROT / 2];
    float *out = case_random(COLS * ldo, 1), *got = case_host((size_t)(COLS * ldo) * 4);
    for (int i = 0; i < n_rot / 2; i++) freq[i] = powf(10000, -2.0f * (float)i / (float)n_rot);
    float *cs = case_alloc((size_t)(COLS * n_rot) * 4);
    const gpu_rope_angles angles = {.cols = s.device_cols,
                                    .inv_freq = case_upload(freq, sizeof freq),
                                    .scale = 1,
                                    .n_cols = COLS,
                                    .n_half = n_rot / 2,
                                    .cs = cs};
    OPS->rope_angles(the_case.stream, &angles);
    const gpu_latent_store a = {.q = case_upload(q, (size_t)(COLS * ldq) * 4),
                                .k = case_upload(k, (size_t)(COLS * ldk) * 4),
                                .ldq = ldq,
                                .ldk = ldk,
                                .ld_out = ldo,
                                .norm = case_upload(norm, (size_t)n_latent * 4),
                                .eps = 1e-6f,
                                .cs = rotates ? cs : NULL,
                                .n_rot = n_rot,
                                .q_dim = Q_DIM,
                                .n_head = HEADS,
                                .n_cols = COLS,
                                .neox = neox,
                                .cols = s.device_cols,
                                .kv = s.kv,
                                .out = case_upload(out, (size_t)(COLS * ldo) * 4)};
    OPS->latent_store(the_case.stream, &a);
    case_download(got, a.out, (size_t)(COLS * ldo) * 4);
    double error = type == QUANT_F32    ? 1e-5
                   : type == QUANT_F16  ? 6e-4
                   : type == QUANT_Q4_0 ? 0.126
                                        : 1.3e-2;
    for (int c = 0; c < COLS; c++) {
        double want[GPU_MAX_LATENT], squares = 0;
        float row[GPU_MAX_LATENT];
        double at = rotates ? pos[c] : 0;
        for (int i = 0; i < HEADS * dim; i++) {
            int head = i / dim, e = i % dim;
            for (int j = 0; j < n_rot && e == 0; j++)
                want[j] = (double)q[c * ldq + (head + 1) * Q_DIM - n_rot + j];
            if (e == 0) rotate(want, n_rot, neox, at, freq);
            if (e < n_rot)
                case_near((double)got[c * ldo + i], want[e], fabs(want[e]) + 1, 1e-5, "query", i);
            else
                assert_true(got[c * ldo + i] == out[c * ldo + i]);
        }
        case_download(s.bytes[c], s.cols[c].kv, s.n_bytes[c]);
        read_row(&s, c, pos[c], row);
        for (int i = 0; i < n_rot; i++) want[i] = (double)k[c * ldk + n_latent + i];
        rotate(want, n_rot, neox, at, freq);
        for (int i = 0; i < n_latent; i++) squares += pow((double)k[c * ldk + i], 2) / n_latent;
        for (int i = 0; i < n_latent; i++)
            want[n_rot + i] = (double)k[c * ldk + i] / sqrt(squares + 1e-6) * (double)norm[i];
        case_spread(want, dim, s.kv.k_hadamard);
        double largest = 0;
        for (int i = 0; i < dim; i++) largest = fmax(largest, fabs(want[i]));
        for (int i = 0; i < dim; i++)
            case_near((double)row[i], want[i],
                      type == QUANT_Q8_0 || type == QUANT_Q4_0 ? largest : fabs(want[i]) + 1, error,
                      "row", i);
    }
}

static void test_store(void **state) {
    (void)state;
    check_store(QUANT_F16, 512, 64, false, true);
    check_store(QUANT_F32, 56, 8, true, true);
    check_store(QUANT_F32, 40, 32, false, false);
    check_store(QUANT_Q8_0, 96, 32, true, true);
    check_store(QUANT_Q4_0, 512, 64, true, true);
    check_store(QUANT_BF16, 96, 32, true, true);
}

/* Heads of attention's result, rotated back. */
static void test_back(void **state) {
    (void)state;
    enum { HEADS = 3, DIM = 40, ROT = 16, LD = HEADS * DIM + 4 };
    static const int32_t pos[COLS] = {0, 17, 350};
    for (int neox = 0; neox < 2; neox++) {
        case_teardown(NULL);
        float *x = case_random(COLS * LD, 1), *got = case_host((size_t)(COLS * LD) * 4);
        float freq[ROT / 2], cs[COLS][ROT];
        for (int i = 0; i < ROT / 2; i++) freq[i] = powf(10000, -2.0f * (float)i / ROT);
        for (int i = 0; i < COLS * ROT; i++) {
            const double angle = pos[i / ROT] * (double)freq[i % ROT / 2];
            cs[i / ROT][i % ROT] = (float)(i % 2 ? sin(angle) : cos(angle));
        }
        const gpu_rope_store a = {.q = case_upload(x, (size_t)(COLS * LD) * 4),
                                  .ldq = LD,
                                  .q_stride = DIM,
                                  .cs = case_upload(cs, sizeof cs),
                                  .n_rot = ROT,
                                  .n_head = HEADS,
                                  .n_cols = COLS,
                                  .rot_at = DIM - ROT,
                                  .neox = neox,
                                  .back = true,
                                  .kv = {.head_dim = DIM}};
        OPS->rope_store(the_case.stream, &a);
        case_download(got, a.q, (size_t)(COLS * LD) * 4);
        for (int c = 0; c < COLS; c++) {
            double want[LD];
            for (int i = 0; i < LD; i++) want[i] = (double)x[c * LD + i];
            for (int h = 0; h < HEADS; h++)
                rotate(want + h * DIM + DIM - ROT, ROT, neox, -pos[c], freq);
            for (int i = 0; i < LD; i++)
                case_near((double)got[c * LD + i], want[i], fabs(want[i]) + 1, 1e-5, "back", i);
        }
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct attention_case {
    quant_type type;
    int dim, n_head, n_splits, window;
    float softcap;
    bool forms; /* sinks, and ascending scores */
    int ratio;  /* of compressed keys; 0: there are none */
    int top;    /* positions or compressed keys of a list; 0: all */
} attention_case;

/* Positions, or compressed keys, among which `top` are listed. */
static int64_t n_blocks(const attention_case *t, int64_t pos) {
    return t->ratio > 0 ? (pos + 1) / t->ratio : pos + 1;
}

static gpu_sparse sparse_of(const caches *s, const attention_case *t) {
    if (t->top == 0) return (gpu_sparse){0};
    return (gpu_sparse){.size = t->ratio > 0 ? t->ratio : 1,
                        .top = t->top,
                        .n_heads = 1,
                        .n_list = t->top,
                        .offset = s->lists,
                        .whole = t->ratio > 0};
}

/* The i-th entry of the list of the session's column `at`, of n blocks. */
static int32_t listed(const attention_case *t, int at, int64_t n, int64_t i) {
    return (int32_t)((i * n + at % 2) / t->top);
}

/* Writes the lists of a session's n_cols columns, which end at its position. */
static void list_blocks(const caches *s, const attention_case *t, int c, int n_cols) {
    const int64_t size = t->ratio > 0 ? t->ratio : 1;
    const int64_t per_column = (s->cols[c].n_ctx + size - 1) / size + t->top;
    int32_t *lists = (int32_t *)(void *)(s->bytes[c] + (size_t)s->cols[c].n_ctx * s->lists);
    for (int at = 0; at < n_cols && t->top > 0; at++) {
        const int64_t n = n_blocks(t, s->cols[c].pos + 1 - n_cols + at);
        for (int64_t i = 0; i < t->top && n > t->top; i++)
            lists[(at + 1) * per_column - t->top + i] = listed(t, at, n, i);
    }
}

static void fill_rows(caches *s, int c, size_t offset, int64_t n) {
    for (int64_t p = 0; p < n; p++) {
        float x[GPU_MAX_LATENT];
        for (int i = 0; i < s->kv.head_dim; i++) x[i] = rng_normal(&the_case.r);
        quant_find((uint32_t)s->kv.type_k)
            ->quantize(x, row_at(s, c, offset, p), s->kv.head_dim, NULL);
    }
}

static void fill_caches(caches *s, const attention_case *t, const int n_cols[COLS]) {
    for (int c = 0; c < COLS; c++) {
        memset(s->bytes[c], 0xff, s->n_bytes[c]); /* NaN where nothing is stored */
        fill_rows(s, c, s->kv.k_offset, s->cols[c].pos + 1);
        if (t->ratio > 0) fill_rows(s, c, s->compressed, n_blocks(t, s->cols[c].pos));
        list_blocks(s, t, c, n_cols[c]);
        the_case.b->upload(the_case.stream, s->cols[c].kv, s->bytes[c], s->n_bytes[c]);
    }
    case_sync();
}

enum { TEMPERATURE_LENGTH = 50 };

/* One head: softmax over the visible rows, which are keys and values: of positions, and of
 * compressed keys. */
static void attend(const caches *s, const attention_case *t, int c, const float *q,
                   const float *sink, double *out) {
    static double p[2 * N_CTX];
    static float row[GPU_MAX_LATENT];
    static const uint8_t *rows[2 * N_CTX];
    int64_t end = s->cols[c].pos + 1, begin = t->window && end > t->window ? end - t->window : 0;
    int64_t n = n_blocks(t, end - 1), n_rows = 0;
    const bool lists = t->top > 0 && n > t->top;
    const size_t offset = t->ratio > 0 ? s->compressed : s->kv.k_offset;
    for (int64_t i = 0; i < t->top && lists; i++)
        rows[n_rows++] = row_at(s, c, offset, listed(t, s->cols[c].at, n, i));
    for (int64_t i = 0; i < n && t->ratio > 0 && !lists; i++)
        rows[n_rows++] = row_at(s, c, offset, i);
    for (int64_t i = begin; i < end && (t->ratio > 0 || !lists); i++)
        rows[n_rows++] = row_at(s, c, s->kv.k_offset, i);
    double query[GPU_MAX_LATENT], scale = 0.2, top = sink ? (double)*sink : -INFINITY, sum = 0;
    if (t->forms) scale *= 1 + 0.4 * log(1 + s->cols[c].pos / TEMPERATURE_LENGTH);
    for (int i = 0; i < t->dim; i++) query[i] = (double)q[i];
    case_spread(query, t->dim, s->kv.k_hadamard);
    for (int64_t j = 0; j < n_rows; j++) {
        read_at(s, rows[j], row);
        p[j] = 0;
        for (int i = 0; i < t->dim; i++) p[j] += scale * query[i] * (double)row[i];
        if (t->softcap > 0) p[j] = (double)t->softcap * tanh(p[j] / (double)t->softcap);
        top = fmax(top, p[j]);
    }
    if (sink) sum = exp((double)*sink - top);
    memset(out, 0, (size_t)t->dim * sizeof *out);
    for (int64_t j = 0; j < n_rows; j++) {
        read_at(s, rows[j], row);
        sum += exp(p[j] - top);
        for (int i = 0; i < t->dim; i++) out[i] += exp(p[j] - top) * (double)row[i];
    }
    for (int i = 0; i < t->dim; i++) out[i] /= sum;
    case_spread(out, t->dim, s->kv.v_hadamard);
}

static void check_attention(attention_case t, const int32_t pos[COLS]) {
    const int n = t.n_head * t.dim, ldq = n + 8, ldo = n + 4;
    case_teardown(NULL);
    caches s = make_caches(t.type, t.dim, pos);
    fill_caches(&s, &t, (const int[COLS]){1, 1, 1});
    float *sinks = case_random(t.n_head, 2), *q = case_random(COLS * ldq, 1);
    float *got = case_host((size_t)(COLS * ldo) * 4);
    size_t partial = gpu_attention_partial(COLS, t.n_head, t.n_splits, t.dim) * 4;
    const gpu_attention a = {.q = case_upload(q, (size_t)(COLS * ldq) * 4),
                             .ldq = ldq,
                             .ldo = ldo,
                             .cols = s.device_cols,
                             .kv = s.kv,
                             .n_head = t.n_head,
                             .n_cols = COLS,
                             .n_splits = t.n_splits,
                             .window = t.window,
                             .scale = 0.2f,
                             .softcap = t.softcap,
                             .temperature = t.forms ? 0.4f : 0,
                             .temperature_length = TEMPERATURE_LENGTH,
                             .sinks = t.forms ? case_upload(sinks, (size_t)t.n_head * 4) : NULL,
                             .partial = t.n_splits > 1 ? case_alloc(partial) : NULL,
                             .out = case_alloc((size_t)(COLS * ldo) * 4),
                             .sparse = sparse_of(&s, &t),
                             .ratio = t.ratio,
                             .compressed = s.compressed};
    OPS->attention(the_case.stream, &a);
    case_download(got, a.out, (size_t)(COLS * ldo) * 4);
    for (int c = 0; c < COLS; c++) {
        for (int h = 0; h < t.n_head; h++) {
            double want[GPU_MAX_LATENT];
            attend(&s, &t, c, q + c * ldq + h * t.dim, t.forms ? sinks + h : NULL, want);
            for (int i = 0; i < t.dim; i++)
                case_near((double)got[c * ldo + h * t.dim + i], want[i], 1, 2e-5, "attention",
                          h * t.dim + i);
        }
    }
}

static void test_attention(void **state) {
    (void)state;
    static const int32_t lengths[][COLS] = {{0, 1, 63}, {64, 65, 300}, {7, 8, 129}};
    check_attention((attention_case){QUANT_F16, GPU_MAX_LATENT, 16, 1, 0, 0, false, 0, 0},
                    lengths[0]);
    check_attention((attention_case){QUANT_F32, GPU_MAX_LATENT, 17, 4, 0, 0, true, 0, 0},
                    lengths[1]);
    check_attention((attention_case){QUANT_Q8_0, 320, 3, 2, 0, 5, false, 0, 0}, lengths[2]);
    check_attention((attention_case){QUANT_F16, 72, 33, 32, 40, 0, true, 0, 0}, lengths[1]);
    check_attention((attention_case){QUANT_Q4_0, GPU_MAX_LATENT, 18, 1, 0, 0, false, 0, 0},
                    lengths[0]);
    check_attention((attention_case){QUANT_Q5_1, 288, 5, 3, 40, 0, true, 0, 0}, lengths[1]);
    check_attention((attention_case){QUANT_IQ4_NL, 96, 3, 2, 0, 5, false, 0, 0}, lengths[2]);
    check_attention((attention_case){QUANT_BF16, 72, 9, 2, 0, 0, false, 0, 0}, lengths[2]);
    check_attention((attention_case){QUANT_F32, 8, 1, 1, 20, 0, false, 0, 0}, lengths[2]);
}

/* Compressed keys and a window, with and without lists; lists of positions. */
static void test_attention_keys(void **state) {
    (void)state;
    static const int32_t lengths[][COLS] = {{0, 2, 63}, {64, 127, 300}, {7, 8, 129}};
    check_attention((attention_case){QUANT_F16, 512, 16, 1, 20, 0, true, 4, 0}, lengths[0]);
    check_attention((attention_case){QUANT_F16, 512, 5, 4, 40, 0, true, 4, 9}, lengths[1]);
    check_attention((attention_case){QUANT_F32, 64, 33, 3, 32, 0, true, 128, 0}, lengths[1]);
    check_attention((attention_case){QUANT_Q8_0, 320, 3, 2, 40, 5, false, 2, 31}, lengths[2]);
    check_attention((attention_case){QUANT_Q4_0, 96, 18, 8, 20, 0, false, 4, 16}, lengths[1]);
    check_attention((attention_case){QUANT_BF16, 72, 4, 1, 300, 0, true, 4, 1}, lengths[2]);
    check_attention((attention_case){QUANT_F16, GPU_MAX_LATENT, 3, 2, 0, 0, true, 0, 30},
                    lengths[1]);
    check_attention((attention_case){QUANT_F32, 72, 17, 1, 0, 0, false, 0, 8}, lengths[2]);
}

/* The last columns of `n_sessions` sessions that end at these positions, by tensor cores: queries,
 * rows and weights are rounded to half. */
static void check_prompt(attention_case t, const int32_t pos[COLS], int n_sessions, int n_cols) {
    const int n = t.n_head * t.dim, ldq = n + 8, ldo = n + 4;
    assert_true(n_cols > GPU_MAX_COLS && n_cols <= MOST);
    case_teardown(NULL);
    caches s = make_caches(t.type, t.dim, pos);
    gpu_column cols[MOST];
    int of[MOST], runs[COLS] = {0};
    for (int c = 0; c < n_cols; c++) {
        of[c] = c * n_sessions / n_cols;
        cols[c] = s.cols[of[c]];
        cols[c].at = runs[of[c]]++;
    }
    for (int c = 0; c < n_cols; c++) cols[c].pos -= runs[of[c]] - 1 - cols[c].at;
    fill_caches(&s, &t, runs);
    float *sinks = case_random(t.n_head, 2), *q = case_random(n_cols * ldq, 1);
    float *got = case_host((size_t)(n_cols * ldo) * 4);
    size_t partial = gpu_attention_partial(n_cols, t.n_head, t.n_splits, t.dim) * 4;
    const gpu_attention a = {.q = case_upload(q, (size_t)(n_cols * ldq) * 4),
                             .ldq = ldq,
                             .ldo = ldo,
                             .cols = case_upload(cols, sizeof cols),
                             .kv = s.kv,
                             .n_head = t.n_head,
                             .n_cols = n_cols,
                             .n_splits = t.n_splits,
                             .window = t.window,
                             .scale = 0.2f,
                             .softcap = t.softcap,
                             .temperature = t.forms ? 0.4f : 0,
                             .temperature_length = TEMPERATURE_LENGTH,
                             .sinks = t.forms ? case_upload(sinks, (size_t)t.n_head * 4) : NULL,
                             .partial = t.n_splits > 1 ? case_alloc(partial) : NULL,
                             .out = case_alloc((size_t)(n_cols * ldo) * 4),
                             .sparse = sparse_of(&s, &t),
                             .ratio = t.ratio,
                             .compressed = s.compressed};
    OPS->attention(the_case.stream, &a);
    case_download(got, a.out, (size_t)(n_cols * ldo) * 4);
    double error = 0, size = 0;
    for (int c = 0; c < n_cols; c++) {
        s.cols[of[c]].pos = cols[c].pos;
        s.cols[of[c]].at = cols[c].at;
        for (int h = 0; h < t.n_head; h++) {
            double want[GPU_MAX_LATENT];
            attend(&s, &t, of[c], q + c * ldq + h * t.dim, t.forms ? sinks + h : NULL, want);
            for (int i = 0; i < t.dim; i++) {
                double is = (double)got[c * ldo + h * t.dim + i];
                case_near(is, want[i], 1, t.type == QUANT_F32 ? 2e-5 : 2e-2, "prompt",
                          h * t.dim + i);
                error += (is - want[i]) * (is - want[i]);
                size += want[i] * want[i];
            }
        }
    }
    assert_true(error <= (t.type == QUANT_F32 ? 1e-10 : 1e-5) * size);
}

/* Tiles of 32 pairs of a token and a head: fewer and more heads than that, several sessions, parts
 * of the positions that some tokens do not see. */
static void test_attention_prompts(void **state) {
    (void)state;
    static const quant_type types[] = {QUANT_F16,  QUANT_Q8_0,   QUANT_F16, QUANT_BF16,
                                       QUANT_Q4_0, QUANT_IQ4_NL, QUANT_F32};
    static const int dims[] = {GPU_MAX_LATENT, 320, 72, GPU_MAX_LATENT},
                     heads[] = {16, 3, 35, 1, 32};
    static const int32_t ends[][COLS] = {{299, 129, 360}, {63, 64, 70}, {31, 32, 33}};
    const char *every = getenv("CASE_EVERY"); /* set for other kinds of tensor cores */
    const int step = every ? (int)strtol(every, NULL, 10) : 1;
    for (int i = 0; i < 14; i += step) {
        const quant_type type = types[i % 7];
        const bool blocks = quant_find((uint32_t)type)->is_quantized;
        attention_case t = {.type = type,
                            .dim = blocks ? dims[i % 2] : dims[i % 4],
                            .n_head = heads[i % 5],
                            .n_splits = 1 + i % 3,
                            .window = i % 4 == 1 ? 40 : 0,
                            .softcap = i % 5 == 2 ? 2 : 0,
                            .forms = i % 2};
        check_prompt(t, ends[i % 3], 1 + i % COLS, GPU_MAX_COLS + 1 + 3 * (i % 4));
    }
}

/* Compressed keys and a window; lists. */
static void test_attention_keys_prompts(void **state) {
    (void)state;
    static const quant_type types[] = {QUANT_F16, QUANT_Q8_0, QUANT_BF16, QUANT_Q4_0, QUANT_F32};
    static const int heads[] = {4, 64, 3, 33}, ratios[] = {4, 128, 2};
    static const int32_t ends[][COLS] = {{299, 129, 360}, {20, 64, 70}, {31, 127, 33}};
    const char *every = getenv("CASE_EVERY"); /* set for other kinds of tensor cores */
    const int step = every ? (int)strtol(every, NULL, 10) : 1;
    for (int i = 0; i < 12; i += step) {
        attention_case t = {.type = types[i % 5],
                            .dim = i % 2 ? 64 : 512,
                            .n_head = heads[i % 4],
                            .n_splits = 1 + i % 3,
                            .window = 32,
                            .forms = i % 2,
                            .ratio = ratios[i % 3],
                            .top = i % 4 == 3 ? 11 : 0};
        check_prompt(t, ends[i % 3], 1 + i % COLS, GPU_MAX_COLS + 1 + 3 * (i % 4));
    }
    check_prompt((attention_case){QUANT_F16, 512, 32, 2, 0, 0, true, 0, 40}, ends[0], 2, 11);
    check_prompt((attention_case){QUANT_F16, 512, 64, 1, 32, 0, true, 4, 20}, ends[0], 2, 11);
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_heads),
    CASE_TEST(test_groups),
    CASE_TEST(test_store),
    CASE_TEST(test_back),
    CASE_TEST(test_attention),
    CASE_TEST(test_attention_keys),
    CASE_TEST(test_attention_prompts),
    CASE_TEST(test_attention_keys_prompts),
};
CASE_MAIN(tests)
