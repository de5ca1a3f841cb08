/* test_gpu_experts.c: operations of mixtures of experts on a device, compared with formulas in
 * double: the router's choice with every gating function, with groups, ties and sorted experts;
 * products of every type with the rows of chosen experts; weighted sums. */
#include "gpu_case.h"

#include <stdlib.h>

#define OPS (&the_case.b->ops)

static const int column_counts[] = {1, 3, GPU_MAX_COLS + 1, 37};
enum { COUNTS = sizeof column_counts / sizeof column_counts[0], MAX_EXPERT = 70, MAX_USED = 8 };

/* ---- choices --------------------------------------------------------------------------------- */

typedef struct expected {
    int expert[MAX_USED]; /* stored index */
    double weight[MAX_USED];
} expected;

static double probability(const gpu_route *a, const double *score, int i) {
    double all = 0;
    for (int k = 0; k < a->n_expert; k++) all += exp(score[k]);
    if (a->gating == GPU_GATING_SOFTMAX) return exp(score[i]) / all;
    return a->gating == GPU_GATING_SIGMOID ? 1 / (1 + exp(-score[i])) : score[i];
}

/* Rank of a group by the sum of its two best scores. */
static bool in_best_groups(const gpu_route *a, const double *value, int expert) {
    int n = a->n_group > 1 ? a->n_expert / a->n_group : a->n_expert, better = 0;
    if (a->n_group <= 1) return true;
    double of[MAX_EXPERT];
    for (int g = 0; g < a->n_group; g++) {
        double first = -1e9, second = -1e9;
        for (int i = g * n; i < (g + 1) * n; i++) {
            if (value[i] > first)
                second = first, first = value[i];
            else if (value[i] > second)
                second = value[i];
        }
        of[g] = first + second;
    }
    for (int g = 0; g < a->n_group; g++) better += of[g] > of[expert / n];
    return better < a->n_group_used;
}

/* Choices by repeated search, in the order of the source. */
static expected expect_choice(const gpu_route *a, const double *score, const double *bias,
                              const int32_t *place) {
    double p[MAX_EXPERT], value[MAX_EXPERT], sum = 0, all = 0;
    bool taken[MAX_EXPERT] = {false};
    expected out = {{0}, {0}};
    for (int i = 0; i < a->n_expert; i++) {
        p[i] = probability(a, score, i);
        value[i] = p[i] + bias[i];
    }
    for (int k = 0; k < a->n_used; k++) {
        int best = -1;
        for (int i = 0; i < a->n_expert; i++)
            if (!taken[i] && in_best_groups(a, value, i) && (best < 0 || value[i] > value[best]))
                best = i;
        taken[best] = true;
        out.expert[k] = place[best];
        out.weight[k] = a->gating == GPU_GATING_SOFTMAX_CHOSEN ? exp(score[best]) : p[best];
        all += out.weight[k];
    }
    for (int k = 0; k < a->n_used && a->gating == GPU_GATING_SOFTMAX_CHOSEN; k++)
        out.weight[k] /= all;
    for (int k = 0; k < a->n_used; k++) sum += out.weight[k];
    for (int k = 0; k < a->n_used; k++) out.weight[k] *= (double)a->scale / (a->norm ? sum : 1);
    return out;
}

static void check_route(gpu_route a, bool sorted, bool biased, bool ties) {
    float *scores = case_random((int64_t)a.n_cols * a.n_expert, 1.5f);
    float *bias = case_random(a.n_expert, biased ? 0.3f : 0);
    int32_t perm[MAX_EXPERT], place[MAX_EXPERT];
    for (int i = 0; i < a.n_expert; i++) perm[i] = sorted ? (i * 9 + 3) % a.n_expert : i;
    for (int i = 0; i < a.n_expert; i++) place[perm[i]] = i;
    for (int i = 0; i < a.n_cols * a.n_expert && ties; i++) scores[i] = (float)(i % 3);
    size_t n_words = (size_t)(a.n_cols * a.n_used * GPU_CHOICE_WORDS);
    a.scores = case_upload(scores, (size_t)(a.n_cols * a.n_expert) * sizeof *scores);
    a.select_bias = biased ? case_upload(bias, (size_t)a.n_expert * sizeof *bias) : NULL;
    a.perm = sorted ? case_upload(perm, (size_t)a.n_expert * sizeof *perm) : NULL;
    a.lds = a.n_expert;
    a.choices = case_alloc(n_words * sizeof *a.choices);
    int32_t uses[MAX_EXPERT] = {0}, slots[MAX_EXPERT];
    for (int i = 0; i < a.n_expert; i++) slots[i] = 2 * i + 1;
    a.uses = case_upload(uses, sizeof uses);
    if (ties) a.slots = case_upload(slots, sizeof slots);
    OPS->route(the_case.stream, &a);
    uint32_t *got = case_host(n_words * sizeof *got);
    case_download(got, a.choices, n_words * sizeof *got);
    for (int c = 0; c < a.n_cols; c++) {
        double score[MAX_EXPERT], added[MAX_EXPERT];
        for (int i = 0; i < a.n_expert; i++) {
            score[perm[i]] = (double)scores[c * a.n_expert + i];
            added[perm[i]] = (double)bias[i];
        }
        expected want = expect_choice(&a, score, added, place);
        for (int k = 0; k < a.n_used; k++) {
            const uint32_t *choice = got + (c * a.n_used + k) * GPU_CHOICE_WORDS;
            float weight;
            memcpy(&weight, &choice[1], sizeof weight);
            assert_int_equal(choice[0], ties ? slots[want.expert[k]] : want.expert[k]);
            uses[want.expert[k]]--;
            case_near((double)weight, want.weight[k], 1, 1e-5, "weight", c);
        }
    }
    int32_t counted[MAX_EXPERT];
    case_download(counted, a.uses, sizeof counted);
    for (int i = 0; i < a.n_expert; i++) assert_int_equal(counted[i] + uses[i], 0);
}

static void test_route(void **state) {
    (void)state;
    static const gpu_gating gatings[] = {GPU_GATING_SOFTMAX, GPU_GATING_SIGMOID,
                                         GPU_GATING_SOFTMAX_CHOSEN};
    for (int i = 0; i < 3 * COUNTS; i++) {
        case_teardown(NULL);
        gpu_route a = {.n_expert = i % 2 ? 70 : 28,
                       .n_used = 1 + i % MAX_USED,
                       .n_cols = column_counts[i % COUNTS],
                       .gating = gatings[i / COUNTS],
                       .norm = i % 2,
                       .scale = 1.5f};
        check_route(a, false, false, false);
        check_route(a, true, true, false);
        check_route(a, true, false, true);
        a.n_group = 7;
        a.n_group_used = 3;
        check_route(a, false, true, false);
        check_route(a, true, false, false);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

enum { N_EXPERT = 6, N_OWN = 4, N_USED = 3, N_OUT = 23 };

/* Random choices with weights. */
static uint32_t *make_choices(int n_cols) {
    uint32_t *choices = case_host((size_t)(n_cols * N_USED * GPU_CHOICE_WORDS) * sizeof *choices);
    for (int i = 0; i < n_cols * N_USED; i++) {
        float weight = 0.25f + (float)(i % 5);
        choices[GPU_CHOICE_WORDS * i] = (uint32_t)(rng_u64(&the_case.r) % N_EXPERT);
        memcpy(&choices[GPU_CHOICE_WORDS * i + 1], &weight, sizeof weight);
    }
    return choices;
}

static float weight_at(const uint32_t *choices, size_t pair) {
    float weight;
    memcpy(&weight, &choices[GPU_CHOICE_WORDS * pair + 1], sizeof weight);
    return weight;
}

static void check_matvec(quant_type type, int n_cols, bool extras) {
    int n_pairs = n_cols * N_USED;
    int64_t n_in = case_width(type, 96), ldy = N_OUT + 1;
    case_mat w = case_weights(type, N_OWN * N_OUT, n_in);
    case_columns x = case_input(n_in, n_pairs);
    float *bias = case_random(N_OWN * N_OUT, 1), *scales = case_random(N_OWN, 1);
    uint32_t *choices = make_choices(n_cols);
    gpu_expert_matvec a = {.w = w.mat,
                           .choices = case_upload(choices, (size_t)n_pairs * GPU_CHOICE_WORDS * 4),
                           .in = x.in,
                           .n_pairs = n_pairs,
                           .n_own = N_OWN,
                           .y = case_alloc((size_t)(n_pairs * ldy) * sizeof(float)),
                           .ldy = ldy};
    a.w.n_out = N_OUT;
    if (extras) a.bias = case_upload(bias, N_OWN * N_OUT * sizeof *bias);
    if (extras) a.scales = case_upload(scales, N_OWN * sizeof *scales);
    OPS->expert_matvec(the_case.stream, &a);
    float *y = case_host((size_t)(n_pairs * ldy) * sizeof *y);
    case_download(y, a.y, (size_t)(n_pairs * ldy) * sizeof *y);
    for (int pair = 0; pair < n_pairs; pair++) {
        int64_t e = choices[GPU_CHOICE_WORDS * pair];
        const float *seen = case_seen(&x, type, pair);
        for (int64_t r = 0; r < N_OUT; r++) {
            double want = 0, size = 1e-3;
            for (int64_t k = 0; k < n_in && e < N_OWN; k++) {
                double term = (double)w.values[(e * N_OUT + r) * n_in + k] * (double)seen[k];
                want += term;
                size += fabs(term);
            }
            if (extras && e < N_OWN) want = want * (double)scales[e] + (double)bias[e * N_OUT + r];
            case_near((double)y[pair * ldy + r], want, size + fabs(want), 1e-5, "expert product",
                      pair);
        }
    }
}

static void test_matvec(void **state) {
    (void)state;
    for (int i = 0; i < case_n_types; i++) {
        case_teardown(NULL);
        check_matvec(case_types[i], column_counts[i % COUNTS], i % 3 == 0);
    }
}

/* ---- gate and up ----------------------------------------------------------------------------- */

enum { N_FF = 64, FF_STEP = N_FF + 3 };

/* A matrix of all experts, with the scales of its products. */
typedef struct ff_matrix {
    case_mat w;
    float *bias, *scales; /* NULL: none */
} ff_matrix;

static ff_matrix make_matrix(quant_type type, int64_t n_in, bool extras) {
    ff_matrix m = {.w = case_weights(type, N_OWN * FF_STEP, n_in)};
    if (extras) m.bias = case_random(N_OWN * N_FF, 1);
    if (extras) m.scales = case_random(N_OWN, 1);
    return m;
}

/* Value of neuron i of expert e; *size: scale of its error. */
static double product(const ff_matrix *m, const case_columns *x, int c, int64_t e, int64_t i,
                      double weight, double *size) {
    const float *seen = case_seen(x, m->w.mat.type, c);
    int64_t n = m->w.mat.n_in;
    double sum = 0;
    *size = 1e-3;
    for (int64_t k = 0; k < n; k++) {
        double term = weight * (double)m->w.values[(e * FF_STEP + i) * n + k] * (double)seen[k];
        sum += term;
        *size += fabs(term);
    }
    if (m->scales) sum *= (double)m->scales[e];
    if (m->scales) *size *= fabs((double)m->scales[e]);
    if (m->bias) sum += (double)m->bias[e * N_FF + i];
    *size += fabs(sum);
    return sum;
}

typedef enum { FF_SILU, FF_CLAMP, FF_SKIP, FF_ALONE, FF_KINDS } ff_kind;

/* silu(g) u, the form of gpt-oss, u where g exceeds a threshold, and relu(u) without a gate. */
static double hidden(ff_kind kind, double g, double u) {
    if (kind == FF_SILU) return g / (1 + exp(-g)) * u;
    if (kind == FF_SKIP) return g > 0.25 ? g * u : 0;
    if (kind == FF_ALONE) return u > 0 ? u : 0;
    g = fmin(g, 7);
    return g / (1 + exp(-1.702 * g)) * (fmax(-7, fmin(u, 7)) + 1);
}

static void check_in(quant_type gate_type, quant_type up_type, int n_cols, ff_kind kind,
                     bool extras) {
    static const activation functions[FF_KINDS] = {ACTIVATION_SILU, ACTIVATION_SILU,
                                                   ACTIVATION_FATRELU, ACTIVATION_RELU};
    int64_t n_in = case_width(gate_type, case_width(up_type, 96)), ldh = N_FF + 4;
    size_t n_pairs = (size_t)(n_cols * N_USED);
    ff_matrix gate = make_matrix(gate_type, n_in, extras), up = make_matrix(up_type, n_in, extras);
    case_columns x = case_input(n_in, n_cols);
    uint32_t *choices = make_choices(n_cols);
    int32_t fired = 3, most = 3, least = 3;
    gpu_expert_in a = {.up = up.w.mat,
                       .n = N_FF,
                       .step = FF_STEP,
                       .choices = case_upload(choices, n_pairs * GPU_CHOICE_WORDS * 4),
                       .in = x.in,
                       .weigh = extras,
                       .skip = kind == FF_SKIP,
                       .clamp = kind == FF_CLAMP,
                       .n_used = N_USED,
                       .n_own = N_OWN,
                       .n_cols = n_cols,
                       .f = functions[kind],
                       .threshold = 0.25f,
                       .fired = case_upload(&fired, sizeof fired),
                       .h = case_alloc(n_pairs * (size_t)ldh * sizeof(float)),
                       .ldh = ldh,
                       .q8 = case_alloc(n_pairs * gpu_q8_bytes(N_FF))};
    if (kind != FF_ALONE) a.gate = gate.w.mat;
    if (extras) {
        a.gate_bias = case_upload(gate.bias, N_OWN * N_FF * sizeof(float));
        a.up_bias = case_upload(up.bias, N_OWN * N_FF * sizeof(float));
        a.gate_scales = case_upload(gate.scales, N_OWN * sizeof(float));
        a.up_scales = case_upload(up.scales, N_OWN * sizeof(float));
    }
    OPS->expert_in(the_case.stream, &a);
    float *h = case_host(n_pairs * (size_t)ldh * sizeof *h);
    case_download(h, a.h, n_pairs * (size_t)ldh * sizeof *h);
    for (size_t at = 0; at < n_pairs * N_FF; at++) {
        size_t pair = at / N_FF;
        int64_t e = choices[GPU_CHOICE_WORDS * pair], i = (int64_t)(at % N_FF);
        double weight = extras ? (double)weight_at(choices, pair) : 1, g = 0, u = 0;
        double g_size = 0, u_size = 0;
        int c = (int)pair / N_USED;
        if (e < N_OWN) {
            g = product(&gate, &x, c, e, i, weight, &g_size);
            u = product(&up, &x, c, e, i, weight, &u_size);
        }
        bool near = kind == FF_SKIP && fabs(g - 0.25) < 1e-4 * g_size; /* either result is right */
        most += e < N_OWN && (kind != FF_SKIP || g > 0.25 || near);
        least += e < N_OWN && (kind != FF_SKIP || (g > 0.25 && !near));
        double want = e < N_OWN ? hidden(kind, g, u) : 0;
        double size = 1e-3 + (fabs(g) + 1) * u_size + (fabs(u) + 2) * g_size;
        if (!near)
            case_near((double)h[pair * (size_t)ldh + (size_t)i], want, size, 2e-5, "hidden",
                      (int64_t)at);
    }
    case_download(&fired, a.fired, sizeof fired);
    assert_in_range(fired, least, most);
    case_quantized(a.q8, a.h, ldh, N_FF, (int)n_pairs);
}

static void test_in(void **state) {
    (void)state;
    for (int i = 0; i < case_n_types; i++) {
        case_teardown(NULL);
        quant_type type = case_types[i], other = case_types[(i + 1) % case_n_types];
        int n_cols = i % 5 == 4 ? GPU_MAX_COLS + 1 : 1 + i % 2;
        check_in(type, type, n_cols, (ff_kind)(i % FF_KINDS), i % 3 == 0);
        check_in(type, type, 1, FF_SKIP, i % 3 == 1);
        check_in(type, other, 2, (ff_kind)(i % FF_ALONE), i % 3 == 2);
    }
}

/* Down matrices with a row per neuron. */
static void check_down(quant_type type, int n_cols, bool extras) {
    enum { N_ROWS = 45 };
    int64_t n = case_width(type, 96);
    case_mat w = case_weights(type, N_OWN * N_ROWS, n);
    int n_pairs = n_cols * N_USED;
    float *h = case_random((int64_t)n_pairs * N_ROWS, 1), *bias = case_random(N_OWN * n, 1);
    float *scales = case_random(N_OWN, 1);
    uint32_t *choices = make_choices(n_cols);
    int32_t fired = 7, active = 7;
    for (int i = 0; i < n_pairs * N_ROWS; i++) h[i] = h[i] > 0.5f ? h[i] : 0;
    gpu_expert_down a = {.w = w.mat,
                         .n = N_ROWS,
                         .choices = case_upload(choices, (size_t)n_pairs * GPU_CHOICE_WORDS * 4),
                         .h = case_upload(h, (size_t)(n_pairs * N_ROWS) * sizeof *h),
                         .ldh = N_ROWS,
                         .n_used = N_USED,
                         .n_own = N_OWN,
                         .n_cols = n_cols,
                         .fired = case_upload(&fired, sizeof fired),
                         .y = case_alloc((size_t)(n_pairs * n) * sizeof(float)),
                         .ldy = n};
    if (extras) a.bias = case_upload(bias, (size_t)(N_OWN * n) * sizeof *bias);
    if (extras) a.scales = case_upload(scales, N_OWN * sizeof *scales);
    OPS->expert_down(the_case.stream, &a);
    float *y = case_host((size_t)(n_pairs * n) * sizeof *y);
    case_download(y, a.y, (size_t)(n_pairs * n) * sizeof *y);
    case_download(&fired, a.fired, sizeof fired);
    for (int pair = 0; pair < n_pairs; pair++) {
        int64_t e = choices[GPU_CHOICE_WORDS * pair];
        for (int i = 0; i < N_ROWS && e < N_OWN; i++) active += h[pair * N_ROWS + i] != 0;
        for (int64_t j = 0; j < n; j++) {
            double want = 0, size = 1e-3;
            for (int64_t i = 0; i < N_ROWS && e < N_OWN; i++) {
                double term = (double)h[pair * N_ROWS + i] *
                              (double)w.values[(e * N_ROWS + i) * n + j];
                want += term;
                size += fabs(term);
            }
            if (extras && e < N_OWN) want = want * (double)scales[e] + (double)bias[e * n + j];
            case_near((double)y[pair * n + j], want, size + fabs(want), 1e-5, "rows of down", pair);
        }
    }
    assert_int_equal(fired, active);
}

static void test_down(void **state) {
    (void)state;
    for (int i = 0; i < case_n_types; i++) {
        case_teardown(NULL);
        check_down(case_types[i], i % 3 + 1, i % 2);
    }
    check_down(QUANT_Q8_0, GPU_MAX_COLS + 1, true);
}

/* More pairs than a grid's second dimension has room for: 65,535. The interpreter of PTX checks
 * grids too, but takes minutes for so many. */
static void test_down_most(void **state) {
    (void)state;
#ifdef TEST_SAMPLED
    skip();
#endif
    if (getenv("PTX_FILES")) skip();
    check_down(QUANT_Q8_0, 65536 / N_USED + 1, false);
}

static void test_sum(void **state) {
    (void)state;
    enum { N = 301 };
    for (int i = 0; i < COUNTS; i++) {
        case_teardown(NULL);
        int n_cols = column_counts[i], n_pairs = n_cols * N_USED, own = 0;
        float *x = case_random((int64_t)n_pairs * N, 1), *y = case_random((int64_t)n_cols * N, 1);
        uint32_t *choices = make_choices(n_cols);
        float *shared = case_random((int64_t)n_cols * N, 1), *score = case_random(2 * n_cols, 1);
        int32_t used = 5;
        gpu_expert_sum a = {.x = case_upload(x, (size_t)(n_pairs * N) * sizeof *x),
                            .choices = case_upload(choices, (size_t)n_pairs * 8),
                            .ldx = N,
                            .ldy = N,
                            .n = N,
                            .n_used = N_USED,
                            .n_own = N_OWN,
                            .n_cols = n_cols,
                            .set = i % 2,
                            .weighed = i == 2,
                            .scale = i == 3 ? 0.5f : 1,
                            .lds = N,
                            .ld_score = 2,
                            .used = case_upload(&used, sizeof used),
                            .y = case_upload(y, (size_t)(n_cols * N) * sizeof *y)};
        if (i > 0) a.shared = case_upload(shared, (size_t)(n_cols * N) * sizeof *shared);
        if (i > 1) a.shared_score = case_upload(score, (size_t)(2 * n_cols) * sizeof *score);
        OPS->expert_sum(the_case.stream, &a);
        float *got = case_host((size_t)(n_cols * N) * sizeof *got);
        case_download(got, a.y, (size_t)(n_cols * N) * sizeof *got);
        case_download(&used, a.used, sizeof used);
        for (int p = 0; p < n_pairs; p++) own += choices[GPU_CHOICE_WORDS * p] < N_OWN;
        assert_int_equal(used, 5 + own);
        for (int at = 0; at < n_cols * N; at++) {
            double want = 0, share = 1 / (1 + exp(-(double)score[at / N * 2]));
            if (i > 0) want = (double)shared[at] * (i > 1 ? share : 1);
            for (int k = 0; k < N_USED; k++) {
                int pair = at / N * N_USED + k;
                float weight;
                memcpy(&weight, &choices[GPU_CHOICE_WORDS * pair + 1], sizeof weight);
                if (i == 2) weight = 1;
                if (choices[GPU_CHOICE_WORDS * pair] < N_OWN)
                    want += (double)weight * (double)x[pair * N + at % N];
            }
            want = (double)a.scale * want + (a.set ? 0 : (double)y[at]);
            case_near((double)got[at], want, 10, 1e-6, "sum", at);
        }
    }
}

static const struct CMUnitTest tests[] = {CASE_TEST(test_route),     CASE_TEST(test_matvec),
                                          CASE_TEST(test_in),        CASE_TEST(test_down),
                                          CASE_TEST(test_down_most), CASE_TEST(test_sum)};
CASE_MAIN(tests)
