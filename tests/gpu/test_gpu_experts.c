/* test_gpu_experts.c: operations of mixtures of experts on a device, compared with formulas in
 * double: the router's choice with every gating function, with groups, ties and sorted experts;
 * products of every type with the rows of chosen experts, one pair at a time and in tiles of pairs
 * sorted by expert; weighted sums. */
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
    if (a->gating == GPU_GATING_SQRT_SOFTPLUS) return sqrt(log1p(exp(score[i])));
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

enum { N_VOCAB = 11 };

/* The experts of a token in a table. */
static int32_t expert_of(const gpu_route *a, int32_t token, int k) {
    return (token * 5 + k * (token % 3 + 1)) % a->n_expert;
}

/* Experts by a table of tokens, weighted by their probabilities. */
static void check_table(gpu_route a, bool sorted) {
    float *scores = case_random((int64_t)a.n_cols * a.n_expert, 1.5f);
    int32_t perm[MAX_EXPERT], place[MAX_EXPERT], table[N_VOCAB * MAX_USED];
    gpu_column *cols = case_host((size_t)a.n_cols * sizeof *cols);
    for (int i = 0; i < a.n_expert; i++) perm[i] = sorted ? (i * 9 + 3) % a.n_expert : i;
    for (int i = 0; i < a.n_expert; i++) place[perm[i]] = i;
    for (int i = 0; i < N_VOCAB * a.n_used; i++)
        table[i] = expert_of(&a, i / a.n_used, i % a.n_used);
    for (int c = 0; c < a.n_cols; c++) cols[c].token = (c * 7 + 2) % N_VOCAB;
    size_t n_words = (size_t)(a.n_cols * a.n_used * GPU_CHOICE_WORDS);
    a.scores = case_upload(scores, (size_t)(a.n_cols * a.n_expert) * sizeof *scores);
    a.perm = sorted ? case_upload(perm, (size_t)a.n_expert * sizeof *perm) : NULL;
    a.by_token = case_upload(table, sizeof table);
    a.cols = case_upload(cols, (size_t)a.n_cols * sizeof *cols);
    a.lds = a.n_expert;
    a.choices = case_alloc(n_words * sizeof *a.choices);
    OPS->route(the_case.stream, &a);
    uint32_t *got = case_host(n_words * sizeof *got);
    case_download(got, a.choices, n_words * sizeof *got);
    for (int c = 0; c < a.n_cols; c++) {
        double score[MAX_EXPERT], sum = 0;
        for (int i = 0; i < a.n_expert; i++) score[perm[i]] = (double)scores[c * a.n_expert + i];
        for (int k = 0; k < a.n_used; k++)
            sum += probability(&a, score, expert_of(&a, cols[c].token, k));
        for (int k = 0; k < a.n_used; k++) {
            const uint32_t *choice = got + (c * a.n_used + k) * GPU_CHOICE_WORDS;
            const int32_t expert = expert_of(&a, cols[c].token, k);
            double want = probability(&a, score, expert) * (double)a.scale / (a.norm ? sum : 1);
            float weight;
            memcpy(&weight, &choice[1], sizeof weight);
            assert_int_equal(choice[0], place[expert]);
            case_near((double)weight, want, 1, 1e-5, "weight", c);
        }
    }
}

static void test_route_table(void **state) {
    (void)state;
    for (int i = 0; i < COUNTS; i++) {
        case_teardown(NULL);
        const gpu_route a = {.n_expert = 28,
                             .n_used = 1 + i % 3,
                             .n_cols = column_counts[i],
                             .gating = i % 2 ? GPU_GATING_SIGMOID : GPU_GATING_SQRT_SOFTPLUS,
                             .norm = i % 2 == 0,
                             .scale = 1.5f};
        check_table(a, i % 2);
    }
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
                                         GPU_GATING_SOFTMAX_CHOSEN, GPU_GATING_SQRT_SOFTPLUS};
    for (int i = 0; i < (int)(sizeof gatings / sizeof *gatings) * COUNTS; i++) {
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

/* Which experts the tokens choose. */
typedef enum spread {
    ANY,      /* at random, also others than own ones, and none (as in an empty message) */
    ALL_ONE,  /* always expert 2 */
    SOME_OWN, /* experts 1 and 3: others are empty */
    NONE_OWN, /* none of this device */
    SPREADS
} spread;

/* Random choices with weights. */
static uint32_t *make_spread(int n_cols, spread how) {
    uint32_t *choices = case_host((size_t)(n_cols * N_USED * GPU_CHOICE_WORDS) * sizeof *choices);
    for (int i = 0; i < n_cols * N_USED; i++) {
        float weight = 0.25f + (float)(i % 5);
        uint32_t expert = (uint32_t)(rng_u64(&the_case.r) % N_EXPERT);
        if (how == ALL_ONE) expert = 2;
        if (how == SOME_OWN) expert = 1 + 2 * (expert % 2);
        if (how == NONE_OWN) expert = N_OWN + expert % 2;
        if (how == ANY && i % 17 == 5) expert = UINT32_MAX;
        choices[GPU_CHOICE_WORDS * i] = expert;
        memcpy(&choices[GPU_CHOICE_WORDS * i + 1], &weight, sizeof weight);
    }
    return choices;
}

static uint32_t *make_choices(int n_cols) {
    return make_spread(n_cols, ANY);
}

static float weight_at(const uint32_t *choices, size_t pair) {
    float weight;
    memcpy(&weight, &choices[GPU_CHOICE_WORDS * pair + 1], sizeof weight);
    return weight;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* The lists of pairs that `expert_group` makes. */
static gpu_expert_lists make_lists(const uint32_t *choices, int n_cols, int n_used, int n_own) {
    const int32_t n_pairs = n_cols * n_used;
    gpu_expert_group a = {.choices = choices, .n_used = n_used, .n_own = n_own, .n_cols = n_cols};
    a.lists = gpu_expert_lists_at(case_alloc(gpu_expert_lists_bytes(n_pairs, n_own)), n_pairs,
                                  n_own);
    OPS->expert_group(the_case.stream, &a);
    return a.lists;
}

/* Errors of tiles, relative to the size of the terms: tensor cores take 16-bit activations and
 * weights, or int8 activations, which are rounded to 1/127 of the largest one of a group. The NMSE
 * over many products is far below the square. */
static double tile_tolerance(quant_type type, bool precise, bool by_rows) {
    gpu_info info;
    pi_error err;
    if (the_case.b->describe(0, &info, &err)) fail_msg("%s", err.message);
    if (!info.tensor_cores && info.int8_prompts && gpu_type_wants_q8(type) && !by_rows)
        return 1.0 / 127;
    if (!info.tensor_cores || type == QUANT_F32 || (precise && type == QUANT_F16)) return 1e-5;
    if (gpu_matmul_rounding(type, precise, by_rows) == GPU_ROUND_INT8) return 1.0 / 127;
    return ldexp(1, type == QUANT_BF16 ? -8 : -11); /* half: 2^-12 for each of the two */
}

/* The error and the power of many results. */
typedef struct nmse {
    double error, power;
} nmse;

static void nmse_add(nmse *n, double got, double want) {
    n->error += (got - want) * (got - want);
    n->power += want * want;
}

/* Errors of the terms add up like random ones, and so do the terms. */
static void nmse_check(const nmse *n, quant_type type, double tolerance) {
    if (n->error <= tolerance * tolerance * n->power) return;
    fail_msg("%s: NMSE %.3g", quant_find((uint32_t)type)->name, n->error / n->power);
}

/* Sanitizers run every fourth case, other kinds of tensor cores every CASE_EVERY-th. */
static bool is_sampled(int i) {
    const char *every = getenv("CASE_EVERY");
#ifdef TEST_SAMPLED
    const long n = 4;
#else
    const long n = 1;
#endif
    return i % (every ? strtol(every, NULL, 10) : n) == 0;
}

static void check_lists(int n_cols, int n_used, int n_own, int n_expert, int first) {
    const int n_pairs = n_cols * n_used;
    uint32_t *choices = case_host((size_t)(n_pairs * GPU_CHOICE_WORDS) * sizeof *choices);
    int32_t *want = case_host((size_t)(n_pairs + 1) * sizeof *want);
    for (int i = 0; i < n_pairs; i++)
        choices[GPU_CHOICE_WORDS * i] = (uint32_t)first +
                                        (uint32_t)(rng_u64(&the_case.r) % (uint64_t)n_expert);
    const size_t n_bytes = (size_t)n_pairs * GPU_CHOICE_WORDS * sizeof *choices;
    const gpu_expert_lists l = make_lists(case_upload(choices, n_bytes), n_cols, n_used, n_own);
    const int n_tiles = gpu_expert_tiles(n_pairs, n_own);
    gpu_expert_tile *tile = case_host((size_t)n_tiles * sizeof *tile);
    int32_t *pair = case_host((size_t)n_pairs * sizeof *pair), n_listed, t = 0, n = 0;
    int32_t *column = case_host((size_t)n_pairs * sizeof *column);
    case_download(tile, l.tile, (size_t)n_tiles * sizeof *tile);
    case_download(pair, l.pair, (size_t)n_pairs * sizeof *pair);
    case_download(column, l.column, (size_t)n_pairs * sizeof *column);
    case_download(&n_listed, l.n_listed, sizeof n_listed);
    for (int e = 0; e < n_own; e++) {
        const int begin = n;
        for (int i = 0; i < n_pairs; i++)
            if (choices[GPU_CHOICE_WORDS * i] == (uint32_t)e) want[n++] = i;
        for (int at = begin; at < n; at += GPU_TILE_COLS, t++) {
            assert_in_range(t, 0, n_tiles - 1);
            assert_int_equal(tile[t].expert, e);
            assert_int_equal(tile[t].first, at);
            assert_int_equal(tile[t].n, n - at < GPU_TILE_COLS ? n - at : GPU_TILE_COLS);
        }
    }
    for (; t < n_tiles; t++) assert_int_equal(tile[t].n, 0);
    assert_int_equal(n_listed, n);
    for (int i = 0; i < n; i++) assert_int_equal(pair[i], want[i]);
    for (int i = 0; i < n; i++) assert_int_equal(column[i], want[i] / n_used);
}

/* The sorted list is stable and complete, and tiles are whole: with experts of other devices, with
 * one expert, with none of the own ones, with more experts than pairs, and with as many tiles as
 * there is memory for. */
static void test_tiles_list(void **state) {
    (void)state;
    static const struct {
        int n_cols, n_used, n_own, n_expert, first;
    } cases[] = {{1, 1, 1, 1, 0},      {9, 3, 4, 6, 0},       {37, 8, 33, 70, 0},
                 {70, 3, 128, 128, 0}, {130, 2, 1, 1, 0},     {40, 2, 3, 2, 3},
                 {50, 4, 7, 2, 3},     {9, 2, 1024, 1024, 0}, {512, 8, 96, 128, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        case_teardown(NULL);
        check_lists(cases[i].n_cols, cases[i].n_used, cases[i].n_own, cases[i].n_expert,
                    cases[i].first);
    }
    assert_int_equal(gpu_expert_tiles(4096, 128), 190);
    assert_int_equal(gpu_expert_tiles(5, 128), 5); /* five experts */
    assert_int_equal(gpu_expert_tiles(65, 1), 2);
    assert_int_equal(gpu_expert_tiles(64 + 2, 3), 3);
}

/* Matrices of n_out rows per expert; by_rows: a row per neuron. */
static void check_tiles(quant_type type, int n_cols, spread how, bool by_rows, bool extras,
                        bool precise) {
    const int n_pairs = n_cols * N_USED;
    const int64_t n_rows = by_rows ? 75 : extras ? 141 : N_OUT, step = n_rows + 2;
    const int64_t n_in = case_width(type, extras ? 180 : 100);
    const int64_t n_y = by_rows ? n_in : n_rows, n_sum = by_rows ? n_rows : n_in, ldy = n_y + 3;
    const bool of_pairs = extras || by_rows;
    case_mat w = case_weights(type, N_OWN * step, n_in);
    case_columns x = case_input(n_sum, of_pairs ? n_pairs : n_cols);
    float *bias = case_random(N_OWN * n_y, 1), *scales = case_random(N_OWN, 1);
    uint32_t *choices = make_spread(n_cols, how);
    float *y = case_random(n_pairs * ldy, 1), *before = case_host((size_t)(n_pairs * ldy) * 4);
    memcpy(before, y, (size_t)(n_pairs * ldy) * sizeof *y);
    gpu_expert_matmul a = {.w = w.mat,
                           .step = step,
                           .choices = case_upload(choices, (size_t)n_pairs * GPU_CHOICE_WORDS * 4),
                           .in = x.in,
                           .by_rows = by_rows,
                           .of_pairs = of_pairs,
                           .precise = precise,
                           .n_used = N_USED,
                           .n_own = N_OWN,
                           .n_cols = n_cols,
                           .result = GPU_EXPERT_PRODUCT,
                           .y = case_upload(y, (size_t)(n_pairs * ldy) * sizeof *y),
                           .ldy = ldy,
                           .scratch = case_alloc(gpu_matmul_columns(n_sum, x.in.n_cols))};
    a.w.n_out = n_rows;
    a.lists = make_lists(a.choices, n_cols, N_USED, N_OWN);
    if (extras) a.bias = case_upload(bias, (size_t)(N_OWN * n_y) * sizeof *bias);
    if (extras) a.scales = case_upload(scales, N_OWN * sizeof *scales);
    OPS->expert_matmul(the_case.stream, &a);
    case_download(y, a.y, (size_t)(n_pairs * ldy) * sizeof *y);
    const double tolerance = tile_tolerance(type, precise, by_rows);
    nmse sum = {0, 0};
    for (int pair = 0; pair < n_pairs; pair++) {
        const uint32_t e = choices[GPU_CHOICE_WORDS * pair];
        const float *column = x.x + (of_pairs ? pair : pair / N_USED) * x.ldx;
        const int64_t n_unchanged = e < N_OWN ? ldy - n_y : ldy;
        assert_memory_equal(y + (pair + 1) * ldy - n_unchanged,
                            before + (pair + 1) * ldy - n_unchanged,
                            (size_t)n_unchanged * sizeof *y);
        for (int64_t o = 0; o < n_y && e < N_OWN; o++) {
            double want = 0, size = 0;
            for (int64_t k = 0; k < n_sum; k++) {
                const int64_t row = e * step + (by_rows ? k : o);
                double term = (double)w.values[row * n_in + (by_rows ? o : k)] * (double)column[k];
                want += term;
                size += fabs(term);
            }
            if (extras) {
                want = want * (double)scales[e] + (double)bias[e * n_y + o];
                size = size * fabs((double)scales[e]) + fabs((double)bias[e * n_y + o]);
            }
            case_near((double)y[pair * ldy + o], want, size, tolerance, "tile", pair);
            nmse_add(&sum, (double)y[pair * ldy + o], want);
        }
    }
    nmse_check(&sum, type, tolerance);
}

/* Every type, both ways of storing down, all spreads; tiles of one pair, of several, and more than
 * one tile per expert. */
static bool has_tiles(quant_type type, bool by_rows) {
    return case_has(GPU_OP_EXPERT_MATMUL, type) && (!by_rows || case_has(GPU_OP_EXPERT_DOWN, type));
}

static void test_tiles(void **state) {
    (void)state;
    static const int counts[] = {1, 9, 37, 90};
    for (int i = 0; i < 2 * case_n_types; i++) {
        if (!is_sampled(i / 2 + i % 2) || !has_tiles(case_types[i / 2], i % 2 == 1)) continue;
        case_teardown(NULL);
        check_tiles(case_types[i / 2], counts[(i / 2) % 3], (spread)(i / 2 % SPREADS), i % 2 == 1,
                    i / 2 % 3 == 1, false);
    }
    for (int i = 0; i < 2 * SPREADS; i++) {
        case_teardown(NULL);
        if (!has_tiles(i % 3 ? QUANT_Q4_0 : QUANT_F16, i % 2 == 1)) continue;
        check_tiles(i % 3 ? QUANT_Q4_0 : QUANT_F16, counts[3], (spread)(i / 2), i % 2 == 1, i % 2,
                    i % 4 == 3);
    }
}

/* A pair's result has the same bits whatever other pairs there are. */
static void test_tiles_alone(void **state) {
    (void)state;
    enum { COLS = 90, N_IN = 160 };
    static const quant_type types[] = {QUANT_F16, QUANT_Q8_0, QUANT_F32, QUANT_BF16};
    for (int i = 0; i < 4; i++) {
        case_teardown(NULL);
        case_mat w = case_weights(types[i], N_OWN * N_OUT, N_IN);
        case_columns x = case_input(N_IN, COLS);
        uint32_t *choices = make_choices(COLS);
        float *y = case_host(COLS * N_USED * N_OUT * 4), alone[N_USED * N_OUT];
        gpu_expert_matmul a = {
            .w = w.mat,
            .step = N_OUT,
            .choices = case_upload(choices, COLS * N_USED * GPU_CHOICE_WORDS * 4),
            .in = x.in,
            .n_used = N_USED,
            .n_own = N_OWN,
            .n_cols = COLS,
            .result = GPU_EXPERT_PRODUCT,
            .y = case_upload(y, COLS * N_USED * N_OUT * 4),
            .ldy = N_OUT,
            .scratch = case_alloc(gpu_matmul_columns(N_IN, COLS))};
        a.w.n_out = N_OUT;
        a.lists = make_lists(a.choices, COLS, N_USED, N_OWN);
        OPS->expert_matmul(the_case.stream, &a);
        case_download(y, a.y, COLS * N_USED * N_OUT * 4);
        for (int c = 3; c < COLS; c += 43) {
            gpu_expert_matmul one = a;
            one.choices = a.choices + c * N_USED * GPU_CHOICE_WORDS;
            one.in.x = x.in.x + c * x.ldx;
            one.in.n_cols = one.n_cols = 1;
            one.lists = make_lists(one.choices, 1, N_USED, N_OWN);
            memset(alone, 0, sizeof alone);
            one.y = case_upload(alone, sizeof alone);
            OPS->expert_matmul(the_case.stream, &one);
            case_download(alone, one.y, sizeof alone);
            assert_memory_equal(alone, y + c * N_USED * N_OUT, sizeof alone);
        }
    }
}

/* ---- pairs one by one ------------------------------------------------------------------------ */

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
        if (!case_has(GPU_OP_EXPERT_MATVEC, case_types[i])) continue;
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

/* Value of neuron i of expert e; *size: scale of its error. Tiles read floats. */
static double product(const ff_matrix *m, const case_columns *x, bool tiles, int c, int64_t e,
                      int64_t i, double weight, double *size) {
    const float *seen = tiles ? x->x + c * x->ldx : case_seen(x, m->w.mat.type, c);
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

typedef enum { FF_SILU, FF_CLAMP, FF_LIMIT, FF_SKIP, FF_ALONE, FF_KINDS } ff_kind;

/* silu(g) u, the form of gpt-oss, silu(g) u with limits, u where g exceeds a threshold, and relu(u)
 * without a gate. */
static double hidden(ff_kind kind, double g, double u) {
    if (kind == FF_SILU) return g / (1 + exp(-g)) * u;
    if (kind == FF_SKIP) return g > 0.25 ? g * u : 0;
    if (kind == FF_ALONE) return u > 0 ? u : 0;
    g = fmin(g, 7);
    u = fmax(-7, fmin(u, 7));
    return kind == FF_LIMIT ? g / (1 + exp(-g)) * u : g / (1 + exp(-1.702 * g)) * (u + 1);
}

/* expert_in in tiles: gate, then up. */
static void run_in_tiles(const gpu_expert_in *in, bool precise) {
    gpu_expert_matmul a = {.step = in->step,
                           .choices = in->choices,
                           .in = in->in,
                           .weigh = in->weigh,
                           .precise = precise,
                           .n_used = in->n_used,
                           .n_own = in->n_own,
                           .n_cols = in->n_cols,
                           .result = GPU_EXPERT_ACTIVATED,
                           .clamp = in->clamp,
                           .f = in->f,
                           .threshold = in->threshold,
                           .y = in->h,
                           .ldy = in->ldh,
                           .scratch = case_alloc(gpu_matmul_columns(in->up.n_in, in->n_cols))};
    a.lists = make_lists(in->choices, in->n_cols, in->n_used, in->n_own);
    gpu_rounding before = GPU_ROUND_NOT;
    if (in->gate.data) {
        a.w = in->gate;
        a.w.n_out = in->n;
        a.bias = in->gate_bias;
        a.scales = in->gate_scales;
        before = gpu_matmul_rounding(a.w.type, precise, false);
        OPS->expert_matmul(the_case.stream, &a);
        a.result = GPU_EXPERT_GATED;
    }
    a.w = in->up;
    a.w.n_out = in->n;
    a.bias = in->up_bias;
    a.scales = in->up_scales;
    a.rounded = before != GPU_ROUND_NOT && before == gpu_matmul_rounding(a.w.type, precise, false);
    OPS->expert_matmul(the_case.stream, &a);
}

typedef enum { ONE_BY_ONE, IN_TILES, IN_PRECISE_TILES } in_form;

static void check_in(quant_type gate_type, quant_type up_type, int n_cols, ff_kind kind,
                     bool extras, in_form form) {
    static const activation functions[FF_KINDS] = {
        ACTIVATION_SILU, ACTIVATION_SILU, ACTIVATION_SILU, ACTIVATION_FATRELU, ACTIVATION_RELU};
    int64_t n_in = case_width(gate_type, case_width(up_type, 96)), ldh = N_FF + 4;
    size_t n_pairs = (size_t)(n_cols * N_USED);
    ff_matrix gate = make_matrix(gate_type, n_in, extras), up = make_matrix(up_type, n_in, extras);
    case_columns x = case_input(n_in, n_cols);
    uint32_t *choices = make_choices(n_cols);
    int32_t fired = 3, most = 3, least = 3;
    const bool tiles = form != ONE_BY_ONE;
    double tolerance = 2e-5, near_tolerance = 1e-4;
    if (tiles) {
        const bool precise = form == IN_PRECISE_TILES;
        tolerance = 2 * fmax(tile_tolerance(gate_type, precise, false),
                             tile_tolerance(up_type, precise, false));
        near_tolerance = tolerance;
    }
    nmse sum = {0, 0};
    gpu_expert_in a = {
        .up = up.w.mat,
        .n = N_FF,
        .step = FF_STEP,
        .choices = case_upload(choices, n_pairs * GPU_CHOICE_WORDS * 4),
        .in = x.in,
        .weigh = extras,
        .skip = kind == FF_SKIP,
        .clamp = {kind == FF_CLAMP || kind == FF_LIMIT ? 7 : 0, kind == FF_CLAMP, false},
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
    if (tiles)
        run_in_tiles(&a, form == IN_PRECISE_TILES);
    else
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
            g = product(&gate, &x, tiles, c, e, i, weight, &g_size);
            u = product(&up, &x, tiles, c, e, i, weight, &u_size);
        }
        bool near = kind == FF_SKIP &&
                    fabs(g - 0.25) < near_tolerance * g_size; /* either result is right */
        most += e < N_OWN && (kind != FF_SKIP || g > 0.25 || near);
        least += e < N_OWN && (kind != FF_SKIP || (g > 0.25 && !near));
        double want = e < N_OWN ? hidden(kind, g, u) : 0;
        double size = 1e-3 + (fabs(g) + 1) * u_size + (fabs(u) + 2) * g_size;
        const double got = (double)h[pair * (size_t)ldh + (size_t)i];
        if (near || (tiles && e >= N_OWN)) continue; /* tiles leave other experts' rows alone */
        case_near(got, want, size, tolerance, "hidden", (int64_t)at);
        nmse_add(&sum, got, want);
    }
    if (tiles) {
        nmse_check(&sum, gate_type, 2 * tolerance); /* activations add to the errors */
        return;
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
        if (!case_has(GPU_OP_EXPERT_IN, type)) continue;
        if (!case_has(GPU_OP_EXPERT_IN, other)) other = QUANT_F16;
        int n_cols = i % 5 == 4 ? GPU_MAX_COLS + 1 : 1 + i % 2;
        check_in(type, type, n_cols, (ff_kind)(i % FF_KINDS), i % 3 == 0, ONE_BY_ONE);
        check_in(type, type, 1, FF_SKIP, i % 3 == 1, ONE_BY_ONE);
        check_in(type, other, 2, (ff_kind)(i % FF_ALONE), i % 3 == 2, ONE_BY_ONE);
    }
}

/* All activations, gate and up of one type (columns are rounded once) and of two. */
static void test_tiles_in(void **state) {
    (void)state;
    for (int i = 0; i < case_n_types; i++) {
        if (!is_sampled(i)) continue;
        case_teardown(NULL);
        quant_type type = case_types[i], other = case_types[(i + 1) % case_n_types];
        if (!has_tiles(type, false)) continue;
        if (!has_tiles(other, false)) other = QUANT_F16;
        check_in(type, type, 9 + i, (ff_kind)(i % FF_KINDS), i % 3 == 0, IN_TILES);
        check_in(type, other, 11, (ff_kind)(i % FF_ALONE), i % 3 == 2, IN_TILES);
    }
    for (int kind = 0; kind < FF_KINDS; kind++) {
        case_teardown(NULL);
        check_in(QUANT_F16, QUANT_F16, 70, (ff_kind)kind, kind % 2, IN_PRECISE_TILES);
        check_in(QUANT_F32, QUANT_Q8_0, 33, (ff_kind)kind, kind % 2 == 0, IN_TILES);
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
        if (!case_has(GPU_OP_EXPERT_DOWN, case_types[i])) continue;
        check_down(case_types[i], i % 3 + 1, i % 2);
    }
    if (!case_has(GPU_OP_EXPERT_DOWN, QUANT_Q8_0)) skip();
    check_down(QUANT_Q8_0, GPU_MAX_COLS + 1, true);
}

/* More pairs than a grid's second dimension has room for: 65,535. The interpreter of PTX checks
 * grids too, but takes minutes for so many. */
static void test_down_most(void **state) {
    (void)state;
    if (!case_has(GPU_OP_EXPERT_DOWN, QUANT_Q8_0)) skip();
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

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_route), CASE_TEST(test_route_table), CASE_TEST(test_matvec),
    CASE_TEST(test_in),    CASE_TEST(test_down),        CASE_TEST(test_down_most),
    CASE_TEST(test_sum),   CASE_TEST(test_tiles_alone), CASE_TEST(test_tiles_list),
    CASE_TEST(test_tiles), CASE_TEST(test_tiles_in)};
CASE_MAIN(tests)
