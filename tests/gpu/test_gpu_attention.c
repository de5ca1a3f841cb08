/* test_gpu_attention.c: norms, RoPE, the KV cache and attention of a device, compared with formulas
 * in double. Caches belong to several sessions of different lengths, as in a batch. */
#include <stdlib.h>

#include "cpu.h"
#include "gpu_case.h"

#define OPS (&the_case.b->ops)

/* ---- norms ----------------------------------------------------------------------------------- */

/* Numbers of columns: few, the maximum of decode kernels, one more, a prompt. */
static const int column_counts[] = {1, 3, GPU_MAX_COLS, GPU_MAX_COLS + 1, 70};
enum { COUNTS = sizeof column_counts / sizeof column_counts[0] };

/* add: the norm is added to y. */
static void check_norm(int64_t n, int n_cols, gpu_norm_kind kind, bool in_place, bool add) {
    int64_t ld = n / 4 * 4 + 8;
    bool centred = kind == GPU_NORM_LAYER;
    float *x = case_random(ld * n_cols, 3), *w = case_random(n, 1), *b = case_random(n, 1);
    float *y = case_random(ld * n_cols, 2), *before = in_place ? x : case_random(ld * n_cols, 2);
    if (!in_place) memcpy(before, y, (size_t)(ld * n_cols) * 4);
    for (int64_t i = 0; i < ld * n_cols; i++) x[i] += centred ? 5 : 0;
    float *device_x = case_upload(x, (size_t)(ld * n_cols) * 4);
    float *device_y = in_place ? device_x : case_upload(y, (size_t)(ld * n_cols) * 4);
    size_t column = n % 32 == 0 ? gpu_q8_bytes(n) : 0;
    void *q8 = column ? case_alloc(column * (size_t)n_cols) : NULL;
    gpu_norm a = {.x = device_x,
                  .w = n % 2 ? case_upload(w, (size_t)n * 4) : NULL,
                  .b = centred ? case_upload(b, (size_t)n * 4) : NULL,
                  .ldx = ld,
                  .ldy = ld,
                  .n = n,
                  .eps = 1e-5f,
                  .kind = kind,
                  .add = add,
                  .scale = 0.75f,
                  .y_scale = 1.25f,
                  .n_cols = n_cols,
                  .y = device_y,
                  .q8 = q8};
    OPS->norm(the_case.stream, &a);
    case_download(y, device_y, (size_t)(ld * n_cols) * 4);
    for (int c = 0; c < n_cols; c++) {
        double mean = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) mean += (double)x[c * ld + i] / (double)n;
        if (!centred) mean = 0;
        for (int64_t i = 0; i < n; i++) squares += pow((double)x[c * ld + i] - mean, 2);
        double scale = kind == GPU_NORM_NONE ? 1 : 1 / sqrt(squares / (double)n + 1e-5);
        for (int64_t i = 0; i < n; i++) {
            double want = ((double)x[c * ld + i] - mean) * scale;
            if (a.w) want *= (double)w[i];
            if (a.b) want += (double)b[i];
            if (add) want = 1.25 * ((double)before[c * ld + i] + 0.75 * want);
            case_near(y[c * ld + i], want, fabs(want) + 1, 1e-5, "norm", i);
        }
    }
    if (column) case_quantized(q8, device_y, ld, n, n_cols);
}

static void test_norm(void **state) {
    (void)state;
    /* 8,193 and more: more elements than the threads of a block hold at once. */
    static const int64_t widths[] = {1, 7, 32, 65, 256, 1001, 4160, 8193, 17024};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        for (int k = 0; k < 6; k++) {
            case_teardown(NULL);
            check_norm(widths[i], 2, (gpu_norm_kind)(k % 3), k / 3 == 1, (k + (int)i) % 4 == 1);
        }
    }
    for (int i = 0; i < COUNTS; i++) {
        case_teardown(NULL);
        check_norm(96, column_counts[i], (gpu_norm_kind)(i % 3), i % 2 == 0, i == 2);
    }
}

static void check_add(int n_cols) {
    enum { N = 300 };
    const size_t n_bytes = (size_t)n_cols * N * 4;
    float *x = case_random(N * n_cols, 1), *y = case_random(N * n_cols, 1);
    float *device_y = case_upload(y, n_bytes), *got = case_host(n_bytes);
    gpu_add a = {
        .x = case_upload(x, n_bytes), .ldx = N, .ldy = N, .n = N, .n_cols = n_cols, .y = device_y};
    OPS->add(the_case.stream, &a);
    case_download(got, device_y, n_bytes);
    for (int i = 0; i < N * n_cols; i++) assert_true(got[i] == y[i] + x[i]);
}

static void check_softcap(int n_cols) {
    enum { N = 300, LD = 304 };
    const size_t n_bytes = (size_t)n_cols * LD * 4;
    float *y = case_random(LD * n_cols, 40), *got = case_host(n_bytes);
    gpu_softcap a = {.ldy = LD, .n = N, .n_cols = n_cols, .cap = 30, .y = case_upload(y, n_bytes)};
    OPS->softcap(the_case.stream, &a);
    case_download(got, a.y, n_bytes);
    for (int i = 0; i < LD * n_cols; i++) {
        double want = i % LD < N ? 30 * tanh((double)y[i] / 30) : (double)y[i];
        case_near((double)got[i], want, 30, 1e-6, "soft cap", i);
    }
}

static void test_add(void **state) {
    (void)state;
    for (int i = 0; i < COUNTS; i++) {
        case_teardown(NULL);
        check_add(column_counts[i]);
        check_softcap(column_counts[i]);
    }
}

/* ---- RoPE and cache -------------------------------------------------------------------------- */

enum { DIM = 64, HEADS = 6, KV_HEADS = 2, COLS = 3, MAX_COLS = 70, N_CTX = 701, LAYERS = 2 };

static size_t head_size(quant_type type, int dim) {
    size_t n;
    assert_true(quant_row_bytes(type, (uint64_t)dim, &n));
    return n;
}

/* Layer 1 of 2; one session per column, of different sizes. */
typedef struct caches {
    gpu_kv_layout kv;
    int n_cols;
    float size; /* standard deviation of elements */
    gpu_column cols[MAX_COLS];
    gpu_column *device_cols;
    uint8_t *bytes[MAX_COLS]; /* host copies */
    size_t n_bytes[MAX_COLS];
} caches;

/* Position of column c: given for the first COLS columns, below 80 for others. */
static int32_t position_of(const int32_t *pos, int c) {
    return c < COLS ? pos[c] : c * 37 % 80;
}

static size_t aligned(size_t at, quant_type type) {
    if (quant_find((uint32_t)type)->is_quantized) return at;
    return (at + GPU_ROW_ALIGN - 1) / GPU_ROW_ALIGN * GPU_ROW_ALIGN;
}

static caches make_caches(quant_type type_k, quant_type type_v, int dim, int v_dim,
                          const int32_t *pos, int n_cols) {
    caches s = {.n_cols = n_cols, .size = 1};
    size_t k = head_size(type_k, dim) * KV_HEADS, v = head_size(type_v, v_dim) * KV_HEADS;
    s.kv = (gpu_kv_layout){.k_row = k,
                           .v_row = v,
                           .type_k = type_k,
                           .type_v = type_v,
                           .k_hadamard = case_spread_of(type_k, dim),
                           .v_hadamard = case_spread_of(type_v, v_dim),
                           .n_head_kv = KV_HEADS,
                           .head_dim = dim,
                           .v_dim = v_dim};
    size_t end = 0;
    for (int i = 0; i < LAYERS; i++) {
        s.kv.k_offset = aligned(end, type_k);
        s.kv.v_offset = aligned(s.kv.k_offset + k, type_v);
        end = s.kv.v_offset + v;
    }
    for (int c = 0; c < n_cols; c++) {
        s.cols[c].n_ctx = c < COLS ? N_CTX - 9 * c : 80 + c;
        s.n_bytes[c] = (size_t)s.cols[c].n_ctx * end;
        s.bytes[c] = case_host(s.n_bytes[c]);
        s.cols[c].kv = case_alloc(s.n_bytes[c]);
        s.cols[c].pos = position_of(pos, c);
    }
    s.device_cols = case_upload(s.cols, sizeof s.cols);
    return s;
}

static void read_head(const uint8_t *head, quant_type type, int n, float out[GPU_MAX_HEAD]) {
    quant_find((uint32_t)type)->dequantize(head, out, n);
}

static const uint8_t *head_at(const caches *s, int c, bool is_k, int64_t pos, int head) {
    const gpu_kv_layout *kv = &s->kv;
    size_t offset = is_k ? kv->k_offset : kv->v_offset, row = is_k ? kv->k_row : kv->v_row;
    return s->bytes[c] + (size_t)s->cols[c].n_ctx * offset + (size_t)pos * row +
           (size_t)head *
               (is_k ? head_size(kv->type_k, kv->head_dim) : head_size(kv->type_v, kv->v_dim));
}

/* Norms of the heads. */
typedef enum head_norms {
    NORMS_NONE,
    NORMS_RMS,
    NORMS_LAYER, /* separate weights for every head */
    NORMS_LATE,  /* after RoPE, also of values */
    NORMS_BARE,  /* without weights */
    HEAD_NORMS
} head_norms;

/* weight NULL: no weights. */
static void norm_head(double *x, int n, const float *weight, bool centred) {
    double mean = 0, squares = 0;
    for (int i = 0; i < n && centred; i++) mean += x[i] / n;
    for (int i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++)
        x[i] = (x[i] - mean) * (weight ? (double)weight[i] : 1) / sqrt(squares + 1e-6);
}

/* RoPE of a head, in double. */
static void rotate(double *x, int n_rot, bool neox, double pos, const float *freq, double scale) {
    for (int i = 0; i < n_rot / 2; i++) {
        int even = neox ? i : 2 * i, odd = neox ? i + n_rot / 2 : 2 * i + 1;
        double c = cos(pos * (double)freq[i]) * scale, s = sin(pos * (double)freq[i]) * scale;
        double a = x[even], b = x[odd];
        x[even] = a * c - b * s;
        x[odd] = a * s + b * c;
    }
}

/* Largest magnitude in the block of 32 with element i. */
static double block_size(const double *x, int i) {
    double amax = 0;
    for (int j = i / 32 * 32; j < i / 32 * 32 + 32; j++) amax = fmax(amax, fabs(x[j]));
    return amax;
}

/* Maximum error of a stored value, relative to the largest magnitude of its block (quantized) or to
 * |value| + 1: half a step (Q4_0 and Q5_0: a whole step at one end), plus the rounding of scales to
 * half. */
static double store_error(quant_type type) {
    switch ((int)type) {
    case QUANT_F32:
        return 1e-5;
    case QUANT_F16:
        return 6e-4;
    case QUANT_BF16:
        return 5e-3;
    case QUANT_Q8_0:
        return 0.5 / 127 + 6e-4;
    case QUANT_Q4_0:
        return 1.0 / 8 + 1e-3;
    case QUANT_Q4_1:
        return 1.0 / 15 + 2e-3;
    case QUANT_Q5_0:
        return 1.0 / 16 + 1e-3;
    case QUANT_Q5_1:
        return 1.0 / 31 + 2e-3;
    default:
        return 14.0 / 127 + 1e-3;
    }
}

/* Checks a head in the cache. from: the head before it was stored, without norms: the bytes must
 * equal those of the CPU kernel; NULL: unknown. */
static void check_stored(const caches *s, int c, bool is_k, int head, const float *from,
                         const double *want) {
    const quant_type type = is_k ? s->kv.type_k : s->kv.type_v;
    const int n = is_k ? s->kv.head_dim : s->kv.v_dim;
    const uint8_t *stored = head_at(s, c, is_k, s->cols[c].pos, head);
    const bool quantized = quant_find((uint32_t)type)->is_quantized;
    float row[GPU_MAX_HEAD];
    read_head(stored, type, n, row);
    for (int i = 0; i < n; i++)
        case_near((double)row[i], want[i], quantized ? block_size(want, i) : fabs(want[i]) + 1,
                  store_error(type), "stored", i);
    if (!from) return;
    cpu_kernels cpu;
    uint8_t bytes[4 * GPU_MAX_HEAD];
    assert_true(cpu_kernels_get(CPU_TIER_SCALAR, &cpu));
    memcpy(row, from, (size_t)n * sizeof *row);
    if (s->kv.v_hadamard) cpu.hadamard(row, n, s->kv.v_hadamard);
    cpu.kv_store(row, bytes, type, n);
    assert_memory_equal(stored, bytes, head_size(type, n));
}

static const quant_type more_types[] = {QUANT_Q4_0, QUANT_Q4_1,   QUANT_Q5_0,
                                        QUANT_Q5_1, QUANT_IQ4_NL, QUANT_BF16};
enum { MORE_TYPES = sizeof more_types / sizeof *more_types };

static void check_rope(quant_type type_k, quant_type type_v, int v_dim, bool neox, head_norms norms,
                       int n_rot, int n_cols) {
    static const int32_t pos[COLS] = {0, 17, 650};
    enum { LD = (HEADS + 2 * KV_HEADS) * DIM };
    caches s = make_caches(type_k, type_v, DIM, v_dim, pos, n_cols);
    const size_t n_bytes = (size_t)n_cols * LD * 4;
    float *x = case_random(n_cols * LD, 1), *norm = case_random(DIM * HEADS, 1), freq[DIM];
    for (int i = 0; i < n_rot / 2; i++) freq[i] = powf(10000, -2.0f * (float)i / (float)n_rot);
    for (int i = 0; i < n_rot / 2; i++) freq[DIM / 2 + i] = freq[i] / 8;
    const bool weighed = norms == NORMS_RMS || norms == NORMS_LAYER || norms == NORMS_LATE;
    const int stride = norms == NORMS_LAYER ? DIM : 0, long_from = N_CTX - 10;
    const float *device_norm = weighed ? case_upload(norm, DIM * HEADS * 4) : NULL;
    const float *device_freq = case_upload(freq, sizeof freq);
    float *device_x = case_upload(x, n_bytes), *got = case_host(n_bytes);
    float *cs = case_alloc((size_t)n_cols * DIM * 4);
    gpu_rope_angles angles = {.cols = s.device_cols,
                              .inv_freq = device_freq,
                              .inv_freq_long = device_freq + DIM / 2,
                              .long_from = long_from,
                              .scale = 1.25f,
                              .n_cols = n_cols,
                              .n_half = n_rot / 2,
                              .cs = cs};
    OPS->rope_angles(the_case.stream, &angles);
    gpu_rope_store a = {.q = device_x,
                        .k = device_x + HEADS * DIM,
                        .v = device_x + (HEADS + KV_HEADS) * DIM,
                        .ldq = LD,
                        .ldk = LD,
                        .ldv = LD,
                        .q_norm = device_norm,
                        .k_norm = device_norm,
                        .norm_stride = stride,
                        .norm = norms == NORMS_LAYER ? GPU_NORM_LAYER : GPU_NORM_RMS,
                        .norm_bare = norms == NORMS_BARE,
                        .norm_late = norms == NORMS_LATE,
                        .value_norm = norms == NORMS_LATE,
                        .eps = 1e-6f,
                        .cs = cs,
                        .n_rot = n_rot,
                        .n_head = HEADS,
                        .n_cols = n_cols,
                        .neox = neox,
                        .cols = s.device_cols,
                        .kv = s.kv};
    OPS->rope_store(the_case.stream, &a);
    case_download(got, device_x, n_bytes);
    for (int c = 0; c < n_cols; c++) {
        case_download(s.bytes[c], s.cols[c].kv, s.n_bytes[c]);
        for (int h = 0; h < HEADS + 2 * KV_HEADS; h++) {
            double want[DIM];
            bool is_k = h >= HEADS && h < HEADS + KV_HEADS, is_v = h >= HEADS + KV_HEADS;
            int kv_head = is_k ? h - HEADS : h - HEADS - KV_HEADS, n = is_v ? v_dim : DIM;
            const float *from = x + c * LD + (is_v ? h - kv_head : h) * DIM + is_v * kv_head * n;
            for (int i = 0; i < n; i++) want[i] = (double)from[i];
            const float *weight = weighed ? norm + (is_k ? h - HEADS : h) * stride : NULL;
            bool normed = norms != NORMS_NONE && !is_v, late = norms == NORMS_LATE;
            if (normed && !late) norm_head(want, n, weight, norms == NORMS_LAYER);
            if (!is_v)
                rotate(want, n_rot, neox, s.cols[c].pos,
                       s.cols[c].n_ctx > long_from ? freq + DIM / 2 : freq, 1.25);
            if (normed && late) norm_head(want, n, weight, false);
            if (is_v && late) norm_head(want, n, NULL, false);
            case_spread(want, n, is_v ? s.kv.v_hadamard : s.kv.k_hadamard);
            if (is_k || is_v) check_stored(&s, c, is_k, kv_head, is_v && !late ? from : NULL, want);
            for (int i = 0; i < n && !is_k && !is_v; i++)
                case_near((double)got[c * LD + h * DIM + i], want[i], fabs(want[i]) + 1, 1e-5,
                          "rope", h * DIM + i);
        }
    }
}

static void test_rope(void **state) {
    (void)state;
    check_rope(QUANT_F16, QUANT_F16, DIM, false, NORMS_NONE, DIM, COLS);
    check_rope(QUANT_Q8_0, QUANT_F16, 40, true, NORMS_RMS, DIM, COLS);
    check_rope(QUANT_F32, QUANT_Q8_0, DIM / 2, true, NORMS_NONE, DIM / 2, COLS);
    for (int norms = 0; norms < HEAD_NORMS; norms++) {
        case_teardown(NULL);
        check_rope(QUANT_F32, QUANT_F32, norms % 2 ? DIM : DIM - 8, true, (head_norms)norms,
                   DIM / 2, COLS);
    }
    for (int i = 0; i < COUNTS; i++) {
        case_teardown(NULL);
        check_rope(QUANT_F16, QUANT_Q8_0, DIM, i % 2 == 1, i % 2 ? NORMS_RMS : NORMS_NONE, DIM,
                   column_counts[i]);
    }
    for (int i = 0; i < MORE_TYPES; i++) {
        case_teardown(NULL);
        check_rope(more_types[i], more_types[(i + 1) % MORE_TYPES], i % 2 ? DIM : DIM / 2, i % 2,
                   (head_norms)(i % HEAD_NORMS), DIM, 1 + i);
        check_rope(more_types[i], more_types[i], DIM, true, NORMS_NONE, DIM, COLS);
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

static void fill_cache(caches *s, int c) {
    const gpu_kv_layout *kv = &s->kv;
    for (size_t i = 0; i < s->n_bytes[c]; i++) s->bytes[c][i] = 0xff; /* NaN: not stored */
    for (int64_t p = 0; p <= s->cols[c].pos; p++) {
        for (int h = 0; h < 2 * KV_HEADS; h++) {
            bool is_k = h < KV_HEADS;
            quant_type type = is_k ? kv->type_k : kv->type_v;
            size_t n = (size_t)(is_k ? kv->head_dim : kv->v_dim);
            float x[GPU_MAX_HEAD];
            for (size_t i = 0; i < n; i++) x[i] = rng_normal(&the_case.r) * s->size;
            uint8_t *at = (uint8_t *)(uintptr_t)head_at(s, c, is_k, p, h % KV_HEADS);
            quant_find((uint32_t)type)->quantize(x, at, (int64_t)n, NULL);
        }
    }
    the_case.b->upload(the_case.stream, s->cols[c].kv, s->bytes[c], s->n_bytes[c]);
    case_sync();
}

typedef struct attention_case {
    quant_type type_k, type_v;
    int dim, group, n_splits, window;
    float softcap;
    bool forms; /* chunks instead of windows, sinks, a gate, ascending scores */
    bool precise;
    int v_dim; /* 0: dim */
} attention_case;

static int value_dim(const attention_case *t) {
    return t->v_dim ? t->v_dim : t->dim;
}

enum { TEMPERATURE_LENGTH = 50, TEMPERATURE_OFFSET = 3 };
static const float temperature = 0.4f;

static const float q_scale = 0.3f;

/* sink NULL: no sinks. */
static void attend(const caches *s, const attention_case *t, int c, int head, const float *q,
                   const float *sink, double *out) {
    static double p[N_CTX];
    int64_t end = s->cols[c].pos + 1, begin = t->window && end > t->window ? end - t->window : 0;
    int kv_head = head / t->group, dim = t->dim, v_dim = value_dim(t);
    int turns = (s->cols[c].pos + TEMPERATURE_OFFSET) / TEMPERATURE_LENGTH;
    double scale = (double)q_scale;
    if (t->forms) scale *= 1 + (double)temperature * log(1 + turns);
    if (t->forms && t->window) begin = s->cols[c].pos / t->window * t->window;
    double top = -INFINITY, sum = 0, cap = (double)t->softcap, query[GPU_MAX_HEAD];
    float x[GPU_MAX_HEAD];
    for (int i = 0; i < dim; i++) query[i] = (double)q[i];
    for (int64_t j = begin; j < end; j++) {
        read_head(head_at(s, c, true, j, kv_head), t->type_k, dim, x);
        double score = 0;
        for (int i = 0; i < dim; i++) score += query[i] * (double)x[i];
        score *= scale;
        p[j] = cap > 0 ? cap * tanh(score / cap) : score;
        top = fmax(top, p[j]);
    }
    if (sink) top = fmax(top, (double)*sink);
    if (sink) sum = exp((double)*sink - top);
    for (int i = 0; i < v_dim; i++) out[i] = 0;
    for (int64_t j = begin; j < end; j++) {
        read_head(head_at(s, c, false, j, kv_head), t->type_v, v_dim, x);
        double weight = exp(p[j] - top);
        sum += weight;
        for (int i = 0; i < v_dim; i++) out[i] += weight * (double)x[i];
    }
    for (int i = 0; i < v_dim; i++) out[i] /= sum;
    case_spread(out, v_dim, s->kv.v_hadamard); /* transformed like queries */
}

/* Tensor cores round queries, weights, and keys and values of other types than F16 to half; of F32
 * caches to two halves. */
static bool in_halves(const attention_case *t, int n_cols) {
    bool f32 = t->type_k == QUANT_F32 || t->type_v == QUANT_F32;
    return !f32 && !t->precise && n_cols > GPU_MAX_COLS;
}
static double tolerance_of(const attention_case *t) {
    bool f16 = t->type_k == QUANT_F16 && t->type_v == QUANT_F16;
    return f16 ? 1e-2 : t->dim <= 256 ? 1.5e-2 : 2.5e-2; /* the largest scores are about 25 */
}

static void compare_attention(const caches *all, attention_case t) {
    const caches s = *all;
    const int n_cols = s.n_cols;
    const int n_head = t.group * KV_HEADS, v_dim = value_dim(&t), n = n_head * v_dim;
    const int ldq = n_head * t.dim + 8, ldo = n + 4;
    const size_t n_bytes = (size_t)(n_cols * ldo) * 4;
    float *sinks = case_random(n_head, 2), *gate = case_random(n_cols * ldq, 2);
    float *q = case_random(n_cols * ldq, 1), *got = case_host(n_bytes), *out = case_alloc(n_bytes);
    size_t partial = gpu_attention_partial(n_cols, n_head, t.n_splits, v_dim) * 4;
    const size_t n_arrived = (size_t)(n_cols * n_head) * sizeof(int32_t);
    int32_t *arrived = case_host(n_arrived);
    memset(arrived, 0, n_arrived);
    bool quantized = n % 32 == 0;
    gpu_attention a = {.q = case_upload(q, (size_t)(n_cols * ldq) * 4),
                       .ldq = ldq,
                       .ldo = ldo,
                       .cols = s.device_cols,
                       .kv = s.kv,
                       .n_head = n_head,
                       .n_cols = n_cols,
                       .n_splits = t.n_splits,
                       .window = t.window,
                       .scale = q_scale,
                       .softcap = t.softcap,
                       .precise = t.precise,
                       .chunks = t.forms,
                       .temperature = t.forms ? temperature : 0,
                       .temperature_length = TEMPERATURE_LENGTH,
                       .temperature_offset = TEMPERATURE_OFFSET,
                       .sinks = t.forms ? case_upload(sinks, (size_t)n_head * 4) : NULL,
                       .gate = t.forms ? case_upload(gate, (size_t)(n_cols * ldq) * 4) : NULL,
                       .ldg = ldq,
                       .partial = t.n_splits > 1 ? case_alloc(partial) : NULL,
                       .arrived = t.n_splits > 1 ? case_upload(arrived, n_arrived) : NULL,
                       .out = out,
                       .q8 = quantized ? case_alloc(gpu_q8_bytes(n) * (size_t)n_cols) : NULL};
    OPS->attention(the_case.stream, &a);
    case_download(got, out, n_bytes);
    if (a.arrived) case_download(arrived, a.arrived, n_arrived);
    for (int i = 0; i < n_cols * n_head; i++) assert_int_equal(arrived[i], 0);
    double errors = 0, squares = 0;
    for (int c = 0; c < n_cols; c++) {
        for (int h = 0; h < n_head; h++) {
            double want[GPU_MAX_HEAD];
            attend(&s, &t, c, h, q + c * ldq + h * t.dim, t.forms ? sinks + h : NULL, want);
            for (int i = 0; i < v_dim && t.forms; i++)
                want[i] /= 1 + exp(-(double)gate[c * ldq + h * v_dim + i]);
            for (int i = 0; i < v_dim; i++) {
                const double is = (double)got[c * ldo + h * v_dim + i];
                case_near(is, want[i], 1, in_halves(&t, n_cols) ? tolerance_of(&t) : 2e-5,
                          "attention", h * v_dim + i);
                errors += (is - want[i]) * (is - want[i]);
                squares += want[i] * want[i];
            }
        }
    }
    /* NMSE: 6.5e-7 in halves, 6e-13 in floats, 2e-12 in pairs of halves at most in these tests */
    if (errors > (in_halves(&t, n_cols) ? 1.5e-6 : 1e-11) * squares)
        fail_msg("NMSE %.3g of %d heads of %d, %d columns", errors / squares, n_head, t.dim,
                 n_cols);
    if (quantized) case_quantized(a.q8, out, ldo, n, n_cols);
}

/* One session per column. */
static void check_attention(attention_case t, const int32_t *pos, int n_cols) {
    case_teardown(NULL);
    caches s = make_caches(t.type_k, t.type_v, t.dim, value_dim(&t), pos, n_cols);
    for (int c = 0; c < n_cols; c++) fill_cache(&s, c);
    compare_attention(&s, t);
}

/* The last columns of up to COLS sessions that end at these positions. size: of cached elements. */
static void check_prompt(attention_case t, const int32_t *pos, int n_sessions, int n_cols,
                         float size) {
    case_teardown(NULL);
    caches of = make_caches(t.type_k, t.type_v, t.dim, value_dim(&t), pos, n_sessions), s;
    of.size = size;
    s = of;
    for (int i = 0; i < n_sessions; i++) fill_cache(&of, i);
    s.n_cols = n_cols;
    for (int c = 0; c < n_cols; c++) {
        int session = c * n_sessions / n_cols, next = c + 1;
        while (next < n_cols && next * n_sessions / n_cols == session) next++;
        s.cols[c] = of.cols[session];
        s.cols[c].pos -= next - 1 - c;
        s.bytes[c] = of.bytes[session];
    }
    s.device_cols = case_upload(s.cols, sizeof s.cols);
    compare_attention(&s, t);
}

static const quant_type cache_types[] = {QUANT_F16, QUANT_Q8_0, QUANT_F32};
static const int32_t lengths[][COLS] = {{0, 1, 63}, {64, 65, 300}, {683, 2, 129}};

/* Windows, soft caps and splits; some splits are empty. */
static void test_attention(void **state) {
    (void)state;
    static const int splits[] = {2, 8, 3, 32, 5, 16};
    for (int i = 0; i < 6; i++) {
        attention_case t = {
            cache_types[i % 3], cache_types[i % 3], DIM, 3, 1, 0, 0, false, false, 0};
        check_attention(t, lengths[i % 3], COLS);
        t.n_splits = splits[i];
        check_attention(t, lengths[(i + 2) % 3], COLS);
        t.window = i % 2 ? 40 : 200;
        t.softcap = i < 3 ? 2 : 0;
        check_attention(t, lengths[2 - i % 2], COLS);
        t.forms = true;
        check_attention(t, lengths[2 - i % 2], COLS);
        if (i < 2) t.n_splits = 1;
        if (i < 2) check_attention(t, lengths[2], COLS);
    }
    for (int i = 0; i < COUNTS; i++) {
        attention_case t = {
            cache_types[i % 3], cache_types[i % 3], DIM, 3, 1 + i % 2, 0, 0, false, false, 0};
        check_attention(t, lengths[0], column_counts[i]);
    }
}

/* Keys and values of different types, and every number of queries with a separate kernel. */
static void test_attention_types(void **state) {
    (void)state;
    static const int groups[] = {1, 2, 3, 4, 5, 8, 9}, dims[] = {32, 96, 128, 160, 256};
    for (int i = 0; i < 9; i++) {
        for (int g = 0; g < 3; g++) {
            int at = 3 * i + g; /* alternates over all pairs of types and all group sizes */
            attention_case t = {cache_types[i % 3],
                                cache_types[i / 3],
                                dims[at % 5],
                                groups[at % 7],
                                1 + at % 3,
                                0,
                                0,
                                at % 5 == 0,
                                false,
                                0};
            check_attention(t, lengths[at % 2], 2);
        }
    }
    for (int g = 0; g < 7; g++) {
        for (int d = 0; d < 5; d++) {
            attention_case t = {cache_types[g % 2],
                                cache_types[d % 2],
                                dims[d],
                                groups[g],
                                1 + d,
                                0,
                                0,
                                false,
                                false,
                                0};
            check_attention(t, lengths[1], 1);
        }
    }
}

/* The other types, in every pair that has a kernel, with every number of queries: with each other,
 * with floats, for few columns and for prompts. */
static void test_attention_more(void **state) {
    (void)state;
    static const int groups[] = {1, 2, 3, 4, 5, 8, 9}, dims[] = {32, 96, 128, 160, 256};
    static const quant_type with[] = {QUANT_Q4_0, QUANT_F32, QUANT_Q8_0, QUANT_BF16, QUANT_F16};
    for (int i = 0; i < 4 * MORE_TYPES; i++) {
        const quant_type low = more_types[i % MORE_TYPES];
        const quant_type other = i < MORE_TYPES ? low : with[i % 5];
        attention_case t = {.type_k = i % 2 ? low : other,
                            .type_v = i % 2 ? other : low,
                            .dim = dims[i % 5],
                            .group = groups[i % 7],
                            .n_splits = 1 + i % 3,
                            .window = i % 6 == 5 ? 40 : 0,
                            .softcap = i % 5 == 2 ? 2 : 0,
                            .forms = i % 4 == 1,
                            .v_dim = i % 3 == 2 && dims[i % 5] > 32 ? 32 : 0};
        check_attention(t, lengths[i % 3], i == 7 ? GPU_MAX_COLS + 1 : i % 2 ? 1 : COLS);
    }
}

/* Tiles of queries: columns of one and of several sessions, every number of query heads per KV
 * head, splits of the positions that some columns do not see at all. */
static void test_attention_prompts(void **state) {
    (void)state;
    static const int dims[] = {64, 128, 256, 96, 40, 8, 200};
    static const int groups[] = {1, 3, 4, 8, 5, 71, 7};
    static const int32_t ends[][COLS] = {{299, 129, 683}, {63, 64, 70}, {69, 400, 45}};
    const char *every = getenv("CASE_EVERY"); /* set for other kinds of tensor cores */
    const int step = every ? (int)strtol(every, NULL, 10) : 1;
    for (int i = 0; i < 14; i += step) {
        attention_case t = {.type_k = QUANT_F16,
                            .type_v = QUANT_F16,
                            .dim = dims[i % 7],
                            .group = groups[i * 3 % 7],
                            .n_splits = 1 + i % 4,
                            .window = i % 3 == 1 ? 50 : 0,
                            .softcap = i % 5 == 2 ? 2 : 0,
                            .forms = i % 2,
                            .precise = i == 13};
        int n_sessions = 1 + i % COLS;
        int n_cols = n_sessions == 1 ? 60 : i % 2 ? 33 : GPU_MAX_COLS + 1;
        check_prompt(t, ends[i % 3], n_sessions, t.group > 64 ? GPU_MAX_COLS + 3 : n_cols, 1);
    }
}

/* Caches of other types than F16: Q8_0 in heads of every size, the others with each other and with
 * F16. */
static void test_attention_prompts_types(void **state) {
    (void)state;
    static const quant_type pairs[][2] = {{QUANT_Q8_0, QUANT_Q8_0},   {QUANT_Q4_0, QUANT_Q5_1},
                                          {QUANT_BF16, QUANT_BF16},   {QUANT_F16, QUANT_Q8_0},
                                          {QUANT_IQ4_NL, QUANT_Q4_1}, {QUANT_Q5_0, QUANT_F16}};
    static const int dims[] = {64, 128, 256, 512, 96, 288}, groups[] = {1, 3, 8, 5, 35};
    static const int32_t ends[][COLS] = {{299, 129, 683}, {63, 64, 70}, {69, 400, 45}};
    const char *every = getenv("CASE_EVERY");
    const int step = every ? (int)strtol(every, NULL, 10) : 1;
    for (int i = 0; i < 24; i += step) {
        const int at = i / 2 % 2 ? i / 4 : 0; /* Q8_0: every second pair of cases */
        attention_case t = {.type_k = pairs[at][0],
                            .type_v = pairs[at][1],
                            .dim = dims[i / 4],
                            .group = groups[i % 5],
                            .n_splits = 1 + i % 3,
                            .window = i % 3 == 1 ? 50 : 0,
                            .softcap = i % 5 == 2 ? 2 : 0,
                            .forms = i % 4 > 1,
                            .v_dim = i % 7 == 6 ? 32 : 0};
        check_prompt(t, ends[i % 3], 1 + i % COLS, t.group > 32 ? GPU_MAX_COLS + 3 : 19 + i, 1);
    }
}

/* F32 caches: two halves per element; of small elements the second ones are often subnormal. Also
 * heads and pairs of types that stay in floats. */
static void test_attention_prompts_split(void **state) {
    (void)state;
    static const int dims[] = {64, 128, 256, 96, 40, 200, 512}, groups[] = {1, 4, 8, 5, 35};
    static const int32_t ends[][COLS] = {{299, 129, 683}, {63, 64, 70}, {69, 400, 45}};
    const char *every = getenv("CASE_EVERY");
    const int step = every ? (int)strtol(every, NULL, 10) : 1;
    for (int i = 0; i < 13; i += step) {
        attention_case t = {.type_k = QUANT_F32,
                            .type_v = i == 11 ? QUANT_Q8_0 : QUANT_F32,
                            .dim = i == 11 ? 64 : dims[i % 7],
                            .group = groups[i % 5],
                            .n_splits = 1 + i % 3,
                            .window = i % 3 == 1 ? 50 : 0,
                            .softcap = i % 5 == 2 ? 2 : 0,
                            .forms = i % 4 > 1,
                            .precise = i == 12,
                            .v_dim = i == 9 ? 32 : 0};
        check_prompt(t, ends[i % 3], 1 + i % COLS, t.group > 32 ? GPU_MAX_COLS + 3 : 19 + i,
                     i == 2 || i == 8 ? 1.0f / 64 : 1);
    }
}

/* Prompts with heads of more than 256 elements, up to more queries of a KV head than a block has.
 */
static void test_attention_prompts_wide(void **state) {
    (void)state;
    static const int dims[] = {512, 320, 264, 448}, groups[] = {8, 1, 35, 4, 5};
    static const int32_t ends[][COLS] = {{299, 129, 683}, {63, 64, 70}, {15, 16, 17}};
    for (int i = 0; i < 8; i++) {
        attention_case t = {.type_k = QUANT_F16,
                            .type_v = QUANT_F16,
                            .dim = dims[i % 4],
                            .group = groups[i % 5],
                            .n_splits = 1 + i % 3,
                            .window = i % 3 == 1 ? 50 : 0,
                            .softcap = i % 5 == 2 ? 2 : 0,
                            .forms = i % 2,
                            .v_dim = i == 7 ? 136 : 0};
        check_prompt(t, ends[i % 3], 1 + i % COLS, t.group > 32 ? GPU_MAX_COLS + 3 : 21 + i, 1);
    }
}

/* One key has e^10.5 times the weight of any other. The other weights are below the smallest half
 * that MFMA does not flush to zero, but their sum must count. */
static void test_attention_prompts_weak(void **state) {
    (void)state;
    enum { SEEN = 600, WIDTH = 64, TOKENS = GPU_MAX_COLS + 1, N = WIDTH * KV_HEADS };
    const double top = 10.5, weak = (SEEN - 1) * exp(-top);
    const int32_t pos[COLS] = {SEEN - 1, SEEN - 1, SEEN - 1};
    caches s = make_caches(QUANT_F16, QUANT_F16, WIDTH, WIDTH, pos, 1);
    memset(s.bytes[0], 0, s.n_bytes[0]);
    for (int h = 0; h < KV_HEADS; h++) {
        for (int at = 0; at < SEEN; at++) {
            uint16_t *k = (uint16_t *)(uintptr_t)head_at(&s, 0, true, at, h);
            uint16_t *v = (uint16_t *)(uintptr_t)head_at(&s, 0, false, at, h);
            k[at % WIDTH] = at == 5 ? quant_f32_to_f16((float)top) : 0;
            for (int i = 0; i < WIDTH; i++) v[i] = quant_f32_to_f16(at == 5 ? 0 : 1);
        }
    }
    the_case.b->upload(the_case.stream, s.cols[0].kv, s.bytes[0], s.n_bytes[0]);
    for (int c = 1; c < TOKENS; c++) s.cols[c] = s.cols[0];
    float *q = case_host(N * TOKENS * 4), *got = case_host(N * TOKENS * 4);
    for (int i = 0; i < N * TOKENS; i++) q[i] = 1;
    for (int n_splits = 1; n_splits <= 3; n_splits += 2) {
        int32_t *arrived = case_host(TOKENS * KV_HEADS * sizeof *arrived);
        gpu_attention a = {
            .q = case_upload(q, N * TOKENS * 4),
            .ldq = N,
            .ldo = N,
            .cols = case_upload(s.cols, sizeof s.cols),
            .kv = s.kv,
            .n_head = KV_HEADS,
            .n_cols = TOKENS,
            .n_splits = n_splits,
            .scale = 1,
            .partial = case_alloc(gpu_attention_partial(TOKENS, KV_HEADS, n_splits, WIDTH) * 4),
            .arrived = case_upload(arrived, TOKENS * KV_HEADS * sizeof *arrived),
            .out = case_alloc(N * TOKENS * 4)};
        OPS->attention(the_case.stream, &a);
        case_download(got, a.out, N * TOKENS * 4);
        for (int i = 0; i < N * TOKENS; i++)
            case_near((double)got[i], weak / (1 + weak), 1, 1e-4, "weak attention", i);
    }
}

/* Heads of more than 256 elements: all pairs of types that have a kernel each, every number of
 * queries, whole and in parts, of one column and of several, with and without windows. */
static void test_attention_wide(void **state) {
    (void)state;
    static const quant_type types[] = {QUANT_F16, QUANT_Q8_0, QUANT_F32, QUANT_Q4_0, QUANT_BF16};
    static const int dims[] = {512, 288, 384}, groups[] = {1, 2, 3, 8};
    for (int i = 0; i < 25; i++) {
        attention_case t = {.type_k = types[i % 5],
                            .type_v = types[i / 5],
                            .dim = dims[i % 3],
                            .group = groups[i % 4],
                            .n_splits = 1 + i % 3 * 4,
                            .window = i % 4 == 3 ? 40 : 0,
                            .softcap = i % 7 == 2 ? 2 : 0,
                            .forms = i % 6 == 1,
                            .v_dim = i % 8 == 5 ? 64 : 0};
        check_attention(t, lengths[i % 3], i % 2 ? 1 : COLS);
    }
}

/* Heads of every size; in int8 form also where groups of 32 cross the borders of heads. */
static void test_attention_heads(void **state) {
    (void)state;
    for (int dim = 8; dim <= GPU_MAX_HEAD; dim += dim < 256 ? 8 : 40) {
        int i = dim / 8;
        quant_type k = cache_types[dim % 32 ? 2 * (i % 2) : i % 3];
        quant_type v = cache_types[dim % 32 ? 2 * (i / 2 % 2) : i / 2 % 3];
        attention_case t = {k, v, dim, 1 + i % 4, 1 + i % 2, 0, 0, false, false, 0};
        check_attention(t, lengths[0], COLS);
    }
}

/* Values shorter than keys: for few columns and for prompts, in all types, with and without splits,
 * also where groups of 32 cross the borders of heads. */
static void test_attention_values(void **state) {
    (void)state;
    static const int dims[][2] = {{192, 128}, {64, 32}, {128, 64}, {40, 24}, {256, 8}, {136, 120}};
    for (int i = 0; i < 12; i++) {
        const int *d = dims[i % 6];
        bool whole = d[0] % 32 == 0 && d[1] % 32 == 0;
        quant_type type = whole ? cache_types[i % 3] : cache_types[i % 2 * 2];
        attention_case t = {.type_k = type,
                            .type_v = i < 6 ? type : QUANT_F16,
                            .dim = d[0],
                            .v_dim = d[1],
                            .group = 1 + i % 5,
                            .n_splits = 1 + i / 2 % 3 * 2,
                            .window = i % 4 == 3 ? 40 : 0,
                            .forms = i % 3 == 0};
        check_attention(t, lengths[i % 2], COLS);
        static const int32_t ends[COLS] = {299, 129, 400};
        t.type_k = t.type_v = QUANT_F16;
        check_prompt(t, ends, 1 + i % COLS, 33, 1);
    }
}

/* Longer contexts have more splits, up to the limit; all lengths of a bucket have the same
 * number. */
static void test_attention_splits(void **state) {
    (void)state;
    assert_int_equal(gpu_attention_splits(1), 1);
    assert_int_equal(gpu_attention_splits(2 * GPU_ATTN_TILE), 1);
    assert_int_equal(gpu_attention_splits(2 * GPU_ATTN_TILE + 1), 2);
    assert_int_equal(gpu_attention_splits(4 * GPU_ATTN_TILE), 2);
    assert_int_equal(gpu_attention_splits(16 * GPU_ATTN_TILE), 8);
    assert_int_equal(gpu_attention_splits(2 * GPU_ATTN_SPLITS * GPU_ATTN_TILE), GPU_ATTN_SPLITS);
    assert_int_equal(gpu_attention_splits(1 << 20), GPU_ATTN_SPLITS);
    /* many columns: no more splits than fit */
    assert_int_equal(gpu_attention_splits_of(1 << 20, GPU_MAX_COLS), GPU_ATTN_SPLITS);
    assert_int_equal(gpu_attention_splits_of(1 << 20, 64), GPU_ATTN_SPLITS / 8);
    assert_int_equal(gpu_attention_splits_of(1 << 20, 512), 1);
}

/* ---- attention that applies RoPE itself ------------------------------------------------------ */

enum { TURNS_ALL, TURNS_NOTHING, STORES_NOTHING };

/* Compares attention of one token that applies RoPE itself with rope_store and attention, bit for
 * bit, results and cache. The token's place in the cache holds NaN before. Cases: without RoPE; a
 * layer that reads another layer's cache; values shorter than keys. */
static void check_turned(quant_type type_k, quant_type type_v, int dim, int v_dim, int group,
                         int n_splits, int32_t pos, head_norms norms, int form) {
    case_teardown(NULL);
    const int n_head = group * KV_HEADS, n = n_head * dim, n_out = n_head * v_dim;
    const int n_x = n + KV_HEADS * (dim + v_dim);
    const bool weighed = norms == NORMS_RMS || norms == NORMS_LAYER || norms == NORMS_LATE;
    caches s = make_caches(type_k, type_v, dim, v_dim, &pos, 1);
    fill_cache(&s, 0);
    for (int h = 0; h < 2 * KV_HEADS && form != STORES_NOTHING; h++) {
        uint8_t *own = (uint8_t *)(uintptr_t)head_at(&s, 0, h % 2 == 0, pos, h / 2);
        memset(own, 0xff, h % 2 == 0 ? head_size(type_k, dim) : head_size(type_v, v_dim));
    }
    const float *x = case_random(n_x, 1);
    float *norm = case_upload(case_random(n + 4, 1), (size_t)(n + 4) * 4);
    const size_t out_bytes = (size_t)n_out * 4, q8_bytes = n_out % 32 ? 0 : gpu_q8_bytes(n_out);
    int32_t *arrived = case_host((size_t)n_head * 4);
    gpu_attention a = {.q = case_alloc((size_t)n_x * 4),
                       .ldq = n_x,
                       .ldo = n_out,
                       .cols = s.device_cols,
                       .kv = s.kv,
                       .n_head = n_head,
                       .n_cols = 1,
                       .n_splits = n_splits,
                       .window = norms == NORMS_BARE ? 70 : 0,
                       .scale = q_scale,
                       .partial = case_alloc(gpu_attention_partial(1, n_head, n_splits, v_dim) * 4),
                       .arrived = case_upload(arrived, (size_t)n_head * 4),
                       .out = case_alloc(out_bytes),
                       .q8 = q8_bytes ? case_alloc(q8_bytes) : NULL};
    a.rope = (gpu_rope_store){.q = (float *)(uintptr_t)a.q,
                              .k = a.q + n,
                              .v = a.q + n + KV_HEADS * dim,
                              .ldq = n_x,
                              .ldk = n_x,
                              .ldv = n_x,
                              .q_norm = weighed ? norm : NULL,
                              .k_norm = weighed ? norm + 4 : NULL,
                              .norm_stride = norms == NORMS_LAYER ? dim : 0,
                              .norm = norms == NORMS_LAYER ? GPU_NORM_LAYER : GPU_NORM_RMS,
                              .norm_bare = norms == NORMS_BARE,
                              .norm_late = norms == NORMS_LATE,
                              .value_norm = norms == NORMS_LATE,
                              .eps = 1e-6f,
                              .cs = case_upload(case_random(dim, 1), (size_t)dim * 4),
                              .n_rot = group % 2 ? dim : dim / 2,
                              .n_head = n_head,
                              .n_cols = 1,
                              .neox = group > 1,
                              .cols = s.device_cols,
                              .kv = s.kv};
    if (form == TURNS_NOTHING) a.rope.cs = NULL;
    if (form == TURNS_NOTHING) a.rope.n_rot = 0;
    if (form == STORES_NOTHING) a.rope.kv.n_head_kv = 0;
    uint8_t *out[2], *q8[2], *cache[2];
    for (int i = 0; i < 2; i++) {
        out[i] = case_host(out_bytes);
        q8[i] = case_host(q8_bytes + 1);
        cache[i] = case_host(s.n_bytes[0]);
        the_case.b->upload(the_case.stream, a.rope.q, x, (size_t)n_x * 4);
        the_case.b->upload(the_case.stream, s.cols[0].kv, s.bytes[0], s.n_bytes[0]);
        a.turns = i == 1;
        if (!a.turns) OPS->rope_store(the_case.stream, &a.rope);
        OPS->attention(the_case.stream, &a);
        case_download(out[i], a.out, out_bytes);
        if (q8_bytes) case_download(q8[i], a.q8, q8_bytes);
        case_download(cache[i], s.cols[0].kv, s.n_bytes[0]);
    }
    assert_memory_equal(out[0], out[1], out_bytes);
    assert_memory_equal(q8[0], q8[1], q8_bytes + 1);
    assert_memory_equal(cache[0], cache[1], s.n_bytes[0]);
    assert_int_equal(memcmp(cache[0], s.bytes[0], s.n_bytes[0]) == 0, form == STORES_NOTHING);
}

static void test_attention_turns_more(void **state) {
    (void)state;
    static const int32_t ends[] = {683, 0, 64, 300, 65};
    static const int dims[][2] = {{64, 64}, {192, 128}, {64, 32}, {256, 96}, {512, 512}};
    for (int i = 0; i < 3 * MORE_TYPES; i++) {
        const quant_type type = more_types[i % MORE_TYPES];
        const quant_type other = i % 3 == 2 ? QUANT_F32 : more_types[i / 3 % MORE_TYPES];
        check_turned(type, other, dims[i % 5][0], dims[i % 5][1], 1 + i % 5, 1 + i % 4, ends[i % 5],
                     (head_norms)(i % HEAD_NORMS), i % 7 == 6 ? STORES_NOTHING : TURNS_ALL);
    }
}

static void test_attention_turns(void **state) {
    (void)state;
    static const int32_t ends[] = {0, 1, 63, 64, 65, 300, 683};
    static const int groups[] = {1, 3, 6}, splits[] = {1, 4, 32};
    for (int i = 0; i < 28; i++) {
        const quant_type type_k = cache_types[i % 3], type_v = cache_types[(i + i / 7) % 3];
        const int dim = i % 4 == 3 ? i % 8 == 3 ? GPU_MAX_HEAD : 256 : DIM;
        check_turned(type_k, type_v, dim, dim, groups[i / 2 % 3], splits[i / 3 % 3], ends[i % 7],
                     (head_norms)(i % HEAD_NORMS),
                     i < 21  ? TURNS_ALL
                     : i % 2 ? TURNS_NOTHING
                             : STORES_NOTHING);
    }
}

/* Values in all types, also shorter than keys, in whole and in partial groups of 32. */
static void test_attention_turns_values(void **state) {
    (void)state;
    static const int32_t ends[] = {683, 0, 64, 300, 65};
    static const int dims[][2] = {{192, 128}, {64, 32}, {256, 96}, {128, 64}, {40, 24}, {136, 8}};
    for (int i = 0; i < 18; i++) {
        const int *d = dims[i % 6], at = i + i / 6;
        const bool whole = i % 6 < 4;
        const int of_v = i < 9 ? at : at + 1;
        const quant_type type_k = cache_types[whole ? at % 3 : at % 2 * 2];
        const quant_type type_v = cache_types[whole ? of_v % 3 : of_v % 2 * 2];
        check_turned(type_k, type_v, d[0], d[1], 1 + at % 5, 1 + i % 4, ends[i / 2 % 5],
                     (head_norms)(i % HEAD_NORMS), i % 7 == 6 ? STORES_NOTHING : TURNS_ALL);
    }
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_norm),
    CASE_TEST(test_add),
    CASE_TEST(test_rope),
    CASE_TEST(test_attention),
    CASE_TEST(test_attention_turns),
    CASE_TEST(test_attention_turns_values),
    CASE_TEST(test_attention_turns_more),
    CASE_TEST(test_attention_types),
    CASE_TEST(test_attention_more),
    CASE_TEST(test_attention_prompts),
    CASE_TEST(test_attention_prompts_types),
    CASE_TEST(test_attention_prompts_split),
    CASE_TEST(test_attention_prompts_wide),
    CASE_TEST(test_attention_prompts_weak),
    CASE_TEST(test_attention_wide),
    CASE_TEST(test_attention_heads),
    CASE_TEST(test_attention_values),
    CASE_TEST(test_attention_splits),
};
CASE_MAIN(tests)
