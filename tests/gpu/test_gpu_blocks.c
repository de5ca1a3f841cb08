/* test_gpu_blocks.c: sparse attention on a device: the choice of blocks and of positions, compared
 * with its definition, and attention to chosen blocks and positions, compared with formulas in
 * double. */
#include <stdlib.h>

#include "gpu_case.h"

#define OPS (&the_case.b->ops)

enum { COLS = 5, N_CTX = 600, MOST_KV_HEADS = 2, MOST_DIM = 256 };

/* A session whose columns are [first, first + COLS) of its positions: a layer's keys and values,
 * index keys, and for each column the scores and lists of find_blocks. */
typedef struct session {
    gpu_kv_layout kv, index;
    gpu_sparse sparse;
    gpu_column cols[COLS];
    gpu_column *device_cols;
    uint8_t *bytes; /* what the device has at the beginning */
    size_t n_bytes, score_bytes /* of a column */;
    uint8_t *device;
} session;

static size_t row_bytes(quant_type type, int64_t n) {
    size_t n_bytes;
    assert_true(quant_row_bytes(type, (uint64_t)n, &n_bytes));
    return n_bytes;
}

static size_t align(size_t n) {
    return (n + GPU_ROW_ALIGN - 1) / GPU_ROW_ALIGN * GPU_ROW_ALIGN;
}

static int64_t n_blocks_of(const gpu_sparse *s) {
    return (N_CTX + s->size - 1) / s->size;
}

static session make_session(gpu_kv_layout kv, gpu_kv_layout index, gpu_sparse sparse, int first) {
    session s = {.kv = kv, .index = index, .sparse = sparse};
    const size_t entries = (size_t)(sparse.n_heads * (n_blocks_of(&sparse) + sparse.n_list));
    s.kv.v_offset = align(kv.k_row);
    s.index.k_offset = s.kv.v_offset + align(kv.v_row);
    s.sparse.offset = s.index.k_offset + align(index.k_row);
    s.score_bytes = entries * sizeof(float);
    s.n_bytes = N_CTX * s.sparse.offset + COLS * s.score_bytes;
    s.bytes = case_host(s.n_bytes);
    memset(s.bytes, 0xff, s.n_bytes); /* NaN where nothing is stored */
    s.device = case_alloc(s.n_bytes);
    for (int c = 0; c < COLS; c++)
        s.cols[c] = (gpu_column){
            .kv = s.device, .n_ctx = N_CTX, .pos = first + c, .at = c, .run = COLS};
    s.device_cols = case_upload(s.cols, sizeof s.cols);
    return s;
}

/* Writes a row and returns its values. whole: integers from -1 to 1, so that sums are exact. */
static void fill_row(uint8_t *to, quant_type type, int n, bool whole, float *values) {
    float x[MOST_DIM];
    const quant_traits *q = quant_find((uint32_t)type);
    for (int i = 0; i < n; i++)
        x[i] = whole ? (float)(rng_u64(&the_case.r) % 3) - 1 : rng_normal(&the_case.r);
    q->quantize(x, to, n, NULL);
    q->dequantize(to, values, n);
}

static float *scores_of(const session *s, uint8_t *memory, int c, int head) {
    const int64_t per_head = n_blocks_of(&s->sparse) + s->sparse.n_list;
    return (float *)(uintptr_t)(memory + N_CTX * s->sparse.offset + (size_t)c * s->score_bytes) +
           head * per_head;
}

/* ---- the choice ------------------------------------------------------------------------------ */

typedef struct choice_case {
    quant_type type;
    int dim, first; /* first: position of the first column */
    int size, top, local, n_heads;
    bool sums, weighs, whole; /* whole: keys and queries of integers, with many equal scores */
    int ratio, n_queries, n_parts;
} choice_case;

/* Puts `value` in place `at` of a heap of positions, the lowest score first: the gap sinks to a
 * leaf, to the lower child, of equal ones the second; then the value rises. */
static void put(int *heap, int n, const double *score, int at, int value) {
    const int from = at;
    while (2 * at + 1 < n) {
        int child = 2 * at + 1;
        if (child + 1 < n && score[heap[child + 1]] <= score[heap[child]]) child++;
        heap[at] = heap[child];
        at = child;
    }
    for (int up = (at - 1) / 2; at > from && score[heap[up]] > score[value]; up = (at - 1) / 2) {
        heap[at] = heap[up];
        at = up;
    }
    heap[at] = value;
}

/* Marks the positions that a heap of the `top` best so far keeps: the CPU's choice. */
static void keep_best(const double *score, int n, int top, bool *kept) {
    int *heap = case_host((size_t)top * sizeof *heap);
    for (int i = 0; i < top; i++) heap[i] = i;
    for (int i = top / 2 - 1; i >= 0; i--) put(heap, top, score, i, heap[i]);
    for (int i = top; i < n; i++)
        if (score[i] > score[heap[0]]) put(heap, top, score, 0, i);
    memset(kept, 0, (size_t)n * sizeof *kept);
    for (int i = 0; i < top; i++) kept[heap[i]] = true;
}

/* Marks the `top` best blocks, of equal ones the first. */
static void keep_first(const double *score, int n, int top, bool *kept) {
    memset(kept, 0, (size_t)n * sizeof *kept);
    for (int k = 0; k < top; k++) {
        int best = -1;
        for (int b = 0; b < n; b++)
            if (!kept[b] && (best < 0 || score[b] > score[best])) best = b;
        kept[best] = true;
    }
}

static double product(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* The score of every block of a column. keys: [N_CTX][dim]. */
static void score(const choice_case *t, int pos, int head, const float *q, const float *weights,
                  const float *keys, double *out) {
    const int per = t->ratio > 0 ? t->ratio : 1;
    for (int b = 0; b <= pos / t->size; b++) {
        out[b] = t->sums ? 0 : -INFINITY;
        if (b >= pos / t->size + 1 - t->local || (t->sums && b / per >= (pos + 1) / per)) {
            out[b] = INFINITY;
            continue;
        }
        for (int h = 0; t->sums && h < t->n_queries; h++)
            out[b] += (weights ? (double)weights[h] : 1) *
                      fmax(product(q + h * t->dim, keys + b / per * t->dim, t->dim), 0);
        for (int p = b * t->size; !t->sums && p < (b + 1) * t->size && p <= pos; p++)
            out[b] = fmax(out[b], product(q + head * t->dim, keys + p * t->dim, t->dim));
    }
}

/* Compares the marks of a head with the definition, and the list of positions with the marks.
 * Scores that a rounding error can swap may both be chosen. */
static void check_marks(const choice_case *t, const session *s, uint8_t *memory, int c, int head,
                        const double *want) {
    const float *got = scores_of(s, memory, c, head);
    const int n = s->cols[c].pos / t->size + 1;
    const int32_t *list = (const int32_t *)(const void *)(got + n_blocks_of(&s->sparse));
    static bool kept[N_CTX];
    double least = INFINITY, most = -INFINITY; /* of the chosen, of the others */
    int n_chosen = 0;
    if (t->sums)
        keep_best(want, n, t->top, kept);
    else
        keep_first(want, n, t->top, kept);
    for (int b = 0; b < n; b++) {
        const bool chosen = got[b] != GPU_LEFT_OUT;
        assert_true(got[b] == got[b]); /* no NaN */
        if (t->whole && chosen != kept[b])
            fail_msg("column %d, head %d: block %d of %d, score %g", c, head, b, n, want[b]);
        if (chosen && got[b] < INFINITY)
            case_near((double)got[b], want[b], fabs(want[b]) + 1, 1e-4, "score", b);
        if (chosen && t->sums) assert_int_equal(list[n_chosen], b);
        n_chosen += chosen;
        if (chosen)
            least = fmin(least, want[b]);
        else
            most = fmax(most, want[b]);
    }
    assert_int_equal(n_chosen, t->top);
    if (!(most <= least + 1e-4 * (fabs(least) + 1))) fail_msg("%g above %g", most, least);
}

static void check_choice(choice_case t) {
    case_teardown(NULL);
    const int n_queries = t.sums ? t.n_queries : t.n_heads, ldq = n_queries * t.dim + 4,
              ldw = n_queries + 3;
    const size_t row = row_bytes(t.type, t.dim);
    const gpu_kv_layout index = {
        .k_row = row, .type_k = t.type, .n_head_kv = 1, .head_dim = t.dim, .v_dim = t.dim};
    const gpu_sparse sparse = {
        .size = t.size, .top = t.top, .n_heads = t.n_heads, .n_list = t.sums ? t.top : 0};
    session s = make_session((gpu_kv_layout){0}, index, sparse, t.first);
    float *keys = case_host(sizeof *keys * (size_t)(N_CTX * t.dim));
    for (int p = 0; p <= t.first + COLS - 1; p++)
        fill_row(s.bytes + N_CTX * s.index.k_offset + (size_t)p * row, t.type, t.dim, t.whole,
                 keys + p * t.dim);
    float *q = case_random(COLS * ldq, 1), *weights = case_random(COLS * ldw, 1);
    for (int i = 0; t.whole && i < COLS * ldq; i++) q[i] = (float)(i * 7 % 5 % 3) - 1;
    for (int i = 0; t.whole && i < COLS * ldw; i++) weights[i] = (float)(i % 3) - 1;
    the_case.b->upload(the_case.stream, s.device, s.bytes, s.n_bytes);
    const gpu_find_blocks a = {.q = case_upload(q, (size_t)(COLS * ldq) * 4),
                               .ldq = ldq,
                               .sums = t.sums,
                               .ratio = t.ratio,
                               .weights = t.weighs ? case_upload(weights, (size_t)(COLS * ldw) * 4)
                                                   : NULL,
                               .ldw = ldw,
                               .cols = s.device_cols,
                               .kv = s.index,
                               .blocks = s.sparse,
                               .local = t.local,
                               .n_cols = COLS,
                               .n_queries = n_queries,
                               .n_parts = t.n_parts};
    OPS->find_blocks(the_case.stream, &a);
    uint8_t *memory = case_host(s.n_bytes);
    case_download(memory, s.device, s.n_bytes);
    assert_memory_equal(memory, s.bytes, N_CTX * s.sparse.offset); /* keys are only read */
    for (int c = 0; c < COLS; c++) {
        const bool all = s.cols[c].pos / t.size < t.top;
        for (int h = 0; h < t.n_heads; h++) {
            static double want[N_CTX];
            if (all) { /* nothing is written */
                const float *got = scores_of(&s, memory, c, h);
                assert_memory_equal(got, scores_of(&s, s.bytes, c, h),
                                    s.score_bytes / (size_t)t.n_heads);
                continue;
            }
            score(&t, s.cols[c].pos, h, q + c * ldq, t.weighs ? weights + c * ldw : NULL, keys,
                  want);
            check_marks(&t, &s, memory, c, h, want);
        }
    }
}

static void test_blocks(void **state) {
    (void)state;
    static const quant_type types[] = {QUANT_F16,  QUANT_F32,  QUANT_Q8_0,  QUANT_BF16,
                                       QUANT_Q4_0, QUANT_Q5_1, QUANT_IQ4_NL};
    static const int dims[] = {128, 64, 256, 32, 96}, sizes[] = {16, 128, 1, 7, 64};
    for (int i = 0; i < 20; i++) {
        const int size = sizes[i % 5], n = 580 / size; /* whole blocks at the last columns */
        check_choice(
            (choice_case){.type = types[i % 7],
                          .dim = dims[i % 5],
                          .first = i % 4 == 3 ? n / 2 * size - 2 : 580 - i,
                          .size = size,
                          .top = 1 + n / 2,
                          .local = i % 3 < n / 2 + 1 ? i % 3 : 0,
                          .n_heads = 1 + i % 4,
                          .whole = i % 2 && !quant_find((uint32_t)types[i % 7])->is_quantized,
                          .n_parts = 1 + i % 6});
    }
    check_choice((choice_case){.type = QUANT_F32,
                               .dim = 8,
                               .first = 300,
                               .size = 1,
                               .top = 300,
                               .n_heads = 2,
                               .n_parts = 3});
}

static void test_positions(void **state) {
    (void)state;
    static const quant_type types[] = {QUANT_F16, QUANT_F32, QUANT_Q8_0, QUANT_BF16, QUANT_Q4_0};
    static const int dims[] = {128, 64, 256, 32}, tops[] = {7, 64, 256, 300, 1, 511};
    for (int i = 0; i < 20; i++)
        check_choice(
            (choice_case){.type = types[i % 5],
                          .dim = dims[i % 4],
                          .first = i % 4 == 3 ? tops[i % 6] - 2 : 590 - 9 * (i % 3),
                          .size = 1,
                          .top = tops[i % 6],
                          .n_heads = 1,
                          .sums = true,
                          .weighs = i % 3 != 2,
                          .whole = i % 2 && !quant_find((uint32_t)types[i % 5])->is_quantized,
                          .ratio = i % 3 == 2 && tops[i % 6] > 4 ? 2 + i % 3 : 0,
                          .n_queries = 1 + i * 5 % 16,
                          .n_parts = 1 + i % 6});
}

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct attention_case {
    quant_type type_k, type_v;
    int dim, v_dim, group, kv_heads, first;
    int size, top;
    bool listed, latent; /* latent: MLA, the rows are keys and values */
    int n_splits;
    float softcap;
    bool forms; /* sinks, temperature; gates without MLA */
} attention_case;

enum { TEMPERATURE_LENGTH = 50 };

/* One head over the chosen positions. k, v: [N_CTX][...], of its KV head. */
static void attend(const attention_case *t, int pos, const bool *chosen, const float *q,
                   const float *k, const float *v, const float *sink, double *out) {
    static double p[N_CTX];
    double scale = 0.2, top = sink ? (double)*sink : -INFINITY, sum = 0;
    const int width = t->kv_heads * t->dim, v_width = t->latent ? width : t->kv_heads * t->v_dim;
    if (t->forms) scale *= 1 + 0.4 * log(1 + pos / TEMPERATURE_LENGTH);
    for (int j = 0; j <= pos; j++) {
        p[j] = scale * product(q, k + j * width, t->dim);
        if (t->softcap > 0) p[j] = (double)t->softcap * tanh(p[j] / (double)t->softcap);
        if (chosen[j]) top = fmax(top, p[j]);
    }
    if (sink) sum = exp((double)*sink - top);
    for (int i = 0; i < t->v_dim; i++) out[i] = 0;
    for (int j = 0; j <= pos; j++) {
        if (!chosen[j]) continue;
        sum += exp(p[j] - top);
        for (int i = 0; i < t->v_dim; i++) out[i] += exp(p[j] - top) * (double)v[j * v_width + i];
    }
    for (int i = 0; i < t->v_dim; i++) out[i] /= sum;
}

/* Chooses blocks of a column at random and writes the results of find_blocks: lists, and scores
 * that leave the other blocks out. */
static void choose(const attention_case *t, const session *s, int c, bool chosen[][N_CTX]) {
    const int pos = s->cols[c].pos, n = pos / t->size + 1;
    for (int h = 0; h < s->sparse.n_heads; h++) {
        float *to = scores_of(s, s->bytes, c, h);
        int32_t *list = (int32_t *)(void *)(to + n_blocks_of(&s->sparse));
        int left = t->top, n_listed = 0;
        if (n <= t->top) { /* attends to all: the scores stay NaN */
            for (int p = 0; p <= pos; p++) chosen[h][p] = true;
            continue;
        }
        for (int b = 0; b < n; b++) {
            const bool keep = (int)(rng_u64(&the_case.r) % (uint64_t)(n - b)) < left;
            left -= keep;
            to[b] = keep ? (float)b : GPU_LEFT_OUT;
            if (keep && t->listed) list[n_listed++] = b;
            for (int p = b * t->size; p < (b + 1) * t->size && p <= pos; p++) chosen[h][p] = keep;
        }
    }
}

static void check_attention(attention_case t) {
    case_teardown(NULL);
    const int n_head = t.group * t.kv_heads, ldq = n_head * t.dim + 8, ldo = n_head * t.v_dim + 4;
    const size_t k_row = row_bytes(t.type_k, t.kv_heads * t.dim),
                 v_row = t.latent ? 0 : row_bytes(t.type_v, t.kv_heads * t.v_dim);
    const gpu_kv_layout kv = {.k_row = k_row,
                              .v_row = v_row,
                              .type_k = t.type_k,
                              .type_v = t.type_v,
                              .n_head_kv = t.kv_heads,
                              .head_dim = t.dim,
                              .v_dim = t.v_dim};
    const gpu_sparse sparse = {.size = t.size,
                               .top = t.top,
                               .n_heads = t.listed ? 1 : t.kv_heads,
                               .n_list = t.listed ? t.top : 0};
    session s = make_session(kv, (gpu_kv_layout){0}, sparse, t.first);
    const int width = t.kv_heads * t.dim, v_width = t.kv_heads * t.v_dim;
    float *k = case_host(sizeof *k * (size_t)(N_CTX * width));
    float *v = t.latent ? k : case_host(sizeof *v * (size_t)(N_CTX * v_width));
    static bool chosen[COLS][MOST_KV_HEADS][N_CTX];
    for (int p = 0; p < t.first + COLS; p++) {
        fill_row(s.bytes + N_CTX * s.kv.k_offset + (size_t)p * k_row, t.type_k, width, false,
                 k + p * width);
        if (!t.latent)
            fill_row(s.bytes + N_CTX * s.kv.v_offset + (size_t)p * v_row, t.type_v, v_width, false,
                     v + p * v_width);
    }
    for (int c = 0; c < COLS; c++) choose(&t, &s, c, chosen[c]);
    the_case.b->upload(the_case.stream, s.device, s.bytes, s.n_bytes);
    const float *q = case_random(COLS * ldq, 1), *sinks = case_random(n_head, 2);
    const float *gate = case_random(COLS * ldo, 1);
    const bool gated = t.forms && !t.latent;
    const size_t partial = gpu_attention_partial(COLS, n_head, t.n_splits, t.v_dim) * 4;
    int32_t *arrived = case_host((size_t)(COLS * n_head) * 4);
    const bool quantizes = n_head * t.v_dim % 32 == 0 && !t.latent;
    const gpu_attention a = {.q = case_upload(q, (size_t)(COLS * ldq) * 4),
                             .ldq = ldq,
                             .ldo = ldo,
                             .cols = s.device_cols,
                             .kv = s.kv,
                             .n_head = n_head,
                             .n_cols = COLS,
                             .n_splits = t.n_splits,
                             .scale = 0.2f,
                             .softcap = t.softcap,
                             .temperature = t.forms ? 0.4f : 0,
                             .temperature_length = TEMPERATURE_LENGTH,
                             .sinks = t.forms ? case_upload(sinks, (size_t)n_head * 4) : NULL,
                             .gate = gated ? case_upload(gate, (size_t)(COLS * ldo) * 4) : NULL,
                             .ldg = ldo,
                             .partial = t.n_splits > 1 ? case_alloc(partial) : NULL,
                             .arrived = case_upload(arrived, (size_t)(COLS * n_head) * 4),
                             .out = case_alloc((size_t)(COLS * ldo) * 4),
                             .q8 = quantizes ? case_alloc(COLS * gpu_q8_bytes(n_head * t.v_dim))
                                             : NULL,
                             .sparse = s.sparse};
    float *got = case_host((size_t)(COLS * ldo) * 4);
    OPS->attention(the_case.stream, &a);
    case_download(got, a.out, (size_t)(COLS * ldo) * 4);
    for (int c = 0; c < COLS; c++) {
        for (int h = 0; h < n_head; h++) {
            const int kv_head = h / t.group, v_at = kv_head * (t.latent ? t.dim : t.v_dim);
            double want[MOST_DIM];
            attend(&t, s.cols[c].pos, chosen[c][t.listed ? 0 : kv_head], q + c * ldq + h * t.dim,
                   k + kv_head * t.dim, v + v_at, t.forms ? sinks + h : NULL, want);
            for (int i = 0; i < t.v_dim; i++) {
                const int at = c * ldo + h * t.v_dim + i;
                if (gated) want[i] /= 1 + exp(-(double)gate[at]);
                case_near((double)got[at], want[i], 1, 2e-5, "attention", at);
            }
        }
    }
    if (quantizes) case_quantized(a.q8, a.out, ldo, n_head * t.v_dim, COLS);
}

static const quant_type pairs[][2] = {{QUANT_F16, QUANT_F16},  {QUANT_F32, QUANT_F32},
                                      {QUANT_Q8_0, QUANT_F16}, {QUANT_BF16, QUANT_Q4_1},
                                      {QUANT_Q4_0, QUANT_F32}, {QUANT_F16, QUANT_Q8_0}};

static void test_attention_blocks(void **state) {
    (void)state;
    static const int dims[][2] = {{64, 64}, {128, 128}, {32, 32}, {192, 128}, {256, 256}};
    static const int sizes[] = {128, 16, 64, 7, 1, 100}, groups[] = {1, 2, 4, 7};
    for (int i = 0; i < 18; i++)
        check_attention((attention_case){.type_k = pairs[i % 6][0],
                                         .type_v = pairs[i % 6][1],
                                         .dim = dims[i % 5][0],
                                         .v_dim = dims[i % 5][1],
                                         .group = groups[i % 4],
                                         .kv_heads = dims[i % 5][0] > 128 ? 1 : 1 + i % 2,
                                         .first = i % 5 == 4 ? 4 * sizes[i % 6] - 2 : 590 - 3 * i,
                                         .size = sizes[i % 6],
                                         .top = i % 5 == 4 ? 4 : 1 + 290 / sizes[i % 6],
                                         .n_splits = 1,
                                         .softcap = i % 4 == 1 ? 2 : 0,
                                         .forms = i % 3 == 1});
}

static void test_attention_positions(void **state) {
    (void)state;
    static const int dims[] = {256, 72, 96, 32, 128}, tops[] = {64, 5, 300, 129, 65};
    for (int i = 0; i < 12; i++) {
        const bool latent = i % 3 != 2,
                   blocks = quant_find((uint32_t)pairs[i % 6][0])->is_quantized;
        const int dim = dims[i % 5] % 32 && (blocks || !latent) ? 64 : dims[i % 5];
        check_attention((attention_case){.type_k = pairs[i % 6][0],
                                         .type_v = pairs[i % 6][1],
                                         .dim = dim,
                                         .v_dim = dim,
                                         .group = 1 + i * 3 % 10,
                                         .kv_heads = latent || dim > 128 ? 1 : 2,
                                         .first = i % 4 == 3 ? tops[i % 5] - 2 : 590 - 7 * i,
                                         .size = 1,
                                         .top = tops[i % 5],
                                         .listed = true,
                                         .latent = latent,
                                         .n_splits = latent ? 1 + i % 3 : 1,
                                         .softcap = i % 4 == 1 ? 2 : 0,
                                         .forms = i % 2});
    }
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_blocks),
    CASE_TEST(test_positions),
    CASE_TEST(test_attention_blocks),
    CASE_TEST(test_attention_positions),
};
CASE_MAIN(tests)
