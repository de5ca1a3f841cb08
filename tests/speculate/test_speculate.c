/* test_speculate.c: compares n-gram drafts with a direct search, and the length of drafts with
 * known optima. Texts with drafts of any kind and length must equal plain decoding for all
 * samplers, and tokens after a draft must follow the model's distribution. The models are tiny and
 * run on the float reference kernels, where a step of up to eight tokens gives the same bits as
 * single tokens. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "draft_pace.h"
#include "failing.h"
#include "mem.h"
#include "ngram.h"
#include "powerinfer_speculate.h"
#include "powerinfer_tools.h"
#include "recurrent_model.h"
#include "rng.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH     TEST_BINARY_DIR "/test_speculate.gguf"
#define DRAFT_PATH     TEST_BINARY_DIR "/test_speculate_draft.gguf"
#define RECURRENT_PATH TEST_BINARY_DIR "/test_speculate_recurrent.gguf"
#define OTHER_PATH     TEST_BINARY_DIR "/test_speculate_other.gguf"

enum { N_VOCAB = RECURRENT_VOCAB, N_CTX = 160, N_LOGITS = 24 };

static pi_error err;
static run_model model, draft;
static const run_model *target = &model; /* the model that writes the texts */

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

/* ---- n-grams --------------------------------------------------------------------------------- */

static void test_ngrams_by_hand(void **state) {
    (void)state;
    const int32_t text[] = {1, 2, 3, 4, 9, 2, 3, 5, 7, 1, 2, 3};
    int32_t next = -1, drafted[6];
    assert_int_equal(ngram_find(text, 12, &next), 3); /* 1 2 3, longer than the later 2 3 */
    assert_int_equal(next, 3);
    ngram_continue(text, 12, next, drafted, 6);
    assert_memory_equal(drafted, &text[3], sizeof drafted);
    assert_int_equal(ngram_find(text, 7, &next), 2);
    assert_int_equal(next, 3);
    assert_int_equal(ngram_find(text, 10, &next), 0); /* 1 alone is too short */
    assert_int_equal(ngram_find(text, 1, &next), 0);
    const int32_t twice[] = {8, 6, 1, 8, 6, 2, 8, 6}; /* the latest of equal matches */
    assert_int_equal(ngram_find(twice, 8, &next), 2);
    assert_int_equal(next, 5);
    const int32_t run[] = {5, 5, 5}; /* a repetition continues */
    assert_int_equal(ngram_find(run, 3, &next), 2);
    ngram_continue(run, 3, next, drafted, 6);
    for (int i = 0; i < 6; i++) assert_int_equal(drafted[i], 5);
    const int32_t pair[] = {4, 6, 4, 6, 4, 6};
    assert_int_equal(ngram_find(pair, 6, &next), 4);
    ngram_continue(pair, 6, next, drafted, 6);
    for (int i = 0; i < 6; i++) assert_int_equal(drafted[i], pair[i]);
}

/* Returns the number of tokens before `at` that equal the last tokens of the text, up to
 * NGRAM_MAX. */
static int32_t same_at(const int32_t *text, int32_t n, int32_t at) {
    int32_t longest = 0;
    for (int32_t m = 1; m <= at && m <= NGRAM_MAX; m++)
        if (memcmp(text + at - m, text + n - m, (size_t)m * sizeof *text) == 0) longest = m;
    return longest;
}

static void test_ngrams_by_definition(void **state) {
    (void)state;
    rng random;
    rng_seed(&random, 3);
    for (int round = 0; round < 2000; round++) {
        int32_t text[64], n = (int32_t)(rng_u64(&random) % 63) + 1, next = -1;
        uint64_t letters = 2 + rng_u64(&random) % 4;
        for (int i = 0; i < n; i++) text[i] = (int32_t)(rng_u64(&random) % letters);
        int32_t best = 0, where = -1;
        for (int32_t at = 1; at < n; at++) {
            if (same_at(text, n, at) < best) continue;
            best = same_at(text, n, at);
            where = at;
        }
        int32_t found = ngram_find(text, n, &next);
        assert_int_equal(found, best < NGRAM_MIN ? 0 : best);
        /* Matches of at least NGRAM_MAX tokens are equal; the latest wins. */
        if (found) assert_int_equal(next, where);
    }
}

/* ---- lengths --------------------------------------------------------------------------------- */

static void measure(pace_costs *c, int32_t most, double first, double each) {
    for (int times = 0; times < 3; times++)
        for (int32_t n = 1; n <= most; n++) pace_measured(c, n, first + each * (n - 1));
}

static void test_lengths(void **state) {
    (void)state;
    static pace_costs c;
    const pace_step one = {.n_tokens = 1, .n_expected = 1};
    memset(&c, 0, sizeof c);
    measure(&c, 17, 1, 0); /* further tokens cost nothing */
    assert_int_equal(pace_choose(&c, &one, 0.9, 16).n, 16);
    memset(&c, 0, sizeof c);
    measure(&c, 17, 1, 1); /* as much as the first token: no draft pays */
    assert_int_equal(pace_choose(&c, &one, 1, 16).n, 0);
    memset(&c, 0, sizeof c);
    measure(&c, 17, 1, 0.2);
    /* With a chance of 0.5, 0 to 3 drafted tokens give 1, 1.5, 1.75, 1.875 tokens in 1, 1.2, 1.4,
     * 1.6 seconds; the best rate is 1.25, twice. */
    pace_choice half = pace_choose(&c, &one, 0.5, 16);
    assert_in_range(half.n, 1, 2);
    assert_true(fabs(half.gain - 1.25) < 1e-9);
    assert_int_equal(pace_choose(&c, &one, 0.2, 16).n, 0);
    pace_step dear = one;
    dear.draft_seconds = 0.4;
    assert_int_equal(pace_choose(&c, &dear, 0.5, 16).n, 0);
    assert_int_equal(pace_choose(&c, &one, 1, 3).n, 3);
    /* Missing costs are interpolated, or assumed to be low. */
    memset(&c, 0, sizeof c);
    pace_measured(&c, 2, 3);
    pace_measured(&c, 6, 5);
    assert_true(pace_cost(&c, 4) == 4 && pace_cost(&c, 6) == 5);
    assert_true(pace_cost(&c, 12) < 10 && pace_cost(&c, 1) < 3);
    assert_false(pace_knows(&c, 2));
    pace_measured(&c, 2, 2); /* the minimum of the first measurements */
    assert_true(pace_knows(&c, 2) && pace_cost(&c, 2) == 2);
    for (int i = 0; i < 600; i++) pace_measured(&c, 1, 1);
    assert_false(pace_knows(&c, 2)); /* the measurement is too old */
    assert_true(pace_cost(&c, 100000) > 0);
}

static void test_chances(void **state) {
    (void)state;
    pace_hits h = {0};
    double at_first = pace_chance(&h);
    for (int i = 0; i < 50; i++) pace_checked(&h, 4, 0);
    assert_true(pace_chance(&h) > 0.95);
    for (int i = 0; i < 60; i++) pace_checked(&h, 0, 1);
    assert_true(pace_chance(&h) < 0.25);
    for (int i = 0; i < 400; i++) pace_idle(&h); /* forgotten: drafts get another chance */
    assert_true(fabs(pace_chance(&h) - at_first) < 0.15);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static run_model open_tiny(const char *path, int n_vocab, const char *type) {
    tiny_model t = tiny_default();
    pi_context_options o = run_exact_options();
    t.n_vocab = n_vocab;
    t.vocabulary = true;
    t.type = type;
    tiny_write(&t, path);
    o.n_logits = N_LOGITS;
    return run_open(path, &o);
}

static int open_models(void **state) {
    (void)state;
    model = open_tiny(MODEL_PATH, N_VOCAB, "f32");
    draft = open_tiny(DRAFT_PATH, N_VOCAB, "q4_0"); /* the same weights, quantized */
    return 0;
}

static int close_models(void **state) {
    (void)state;
    run_close(&model);
    run_close(&draft);
    return 0;
}

/* lookup: n-gram drafts; by: the draft model or NULL. */
static pi_speculator_options speculator_options(bool lookup, const run_model *by, int32_t n_min,
                                                int32_t n_max) {
    pi_speculator_options o = pi_speculator_default_options();
    o.model = target->model;
    o.ngrams = lookup;
    o.draft_model = by ? by->model : NULL;
    o.draft_context = by ? by->context : NULL;
    o.n_texts = 3;
    o.n_ctx = N_CTX;
    o.n_min = n_min;
    o.n_max = n_max;
    return o;
}

static pi_speculator *make_speculator(bool lookup, const run_model *by, int32_t n_min,
                                      int32_t n_max) {
    const pi_speculator_options o = speculator_options(lookup, by, n_min, n_max);
    pi_speculator *s;
    ok(pi_speculator_create(&o, &s, &err));
    return s;
}

static pi_sampler *make_sampler(const pi_sampler_options *o) {
    pi_sampler *s;
    ok(pi_sampler_create(target->model, o, &s, &err));
    return s;
}

static int32_t n_again; /* tokens that were fed again, total */

/* Extends tokens from n_prompt to n_all, with drafts of text number `text`, or without drafts (s
 * NULL). */
static pi_draft_counts write_text(pi_speculator *s, int32_t text, const pi_sampler_options *o,
                                  int32_t *tokens, int32_t n_prompt, int32_t n_all) {
    pi_sampler *sampler = make_sampler(o);
    pi_session *session = run_session(target, N_CTX);
    int32_t n = n_prompt, row = 0;
    pi_input in = {.session = session, .tokens = tokens, .n_tokens = n};
    in.logits = PI_LOGITS_LAST;
    for (int32_t i = 0; i < n; i++) pi_sampler_accept(sampler, tokens[i]);
    ok(pi_forward(target->context, &in, 1, &err));
    if (s) ok(pi_speculator_begin(s, text, tokens, n, sampler, &err));
    while (n < n_all) {
        tokens[n] = pi_sampler_sample(sampler, pi_logits(target->context, row++));
        assert_true(tokens[n] >= 0);
        if (s && pi_speculator_accept(s, text, tokens[n++])) continue;
        n += !s;
        int32_t step[PI_DRAFT_MAX + 1 + PI_DRAFT_MAX];
        int32_t point = pi_session_rewind_point(session, n - 1), sure = n - point;
        pi_draft d = {.text = text, .room = N_CTX - n < N_LOGITS - 1 ? N_CTX - n : N_LOGITS - 1};
        d.session = session;
        ok(pi_session_rewind(session, point, &err));
        assert_in_range(sure, 1, target == &model ? 1 : 1 + PI_DRAFT_MAX);
        d.n_again = sure - 1;
        n_again += sure - 1;
        if (s) ok(pi_speculator_draft(s, &d, 1, 0, &err));
        assert_in_range(d.n, 0, d.room);
        memcpy(step, tokens + point, (size_t)sure * sizeof *step);
        if (d.n) memcpy(step + sure, d.tokens, (size_t)d.n * sizeof *step);
        in = (pi_input){.session = session,
                        .tokens = step,
                        .n_tokens = sure + d.n,
                        .logits = PI_LOGITS_LAST,
                        .n_drafts = d.n};
        ok(pi_forward(target->context, &in, 1, &err));
        if (s) pi_speculator_measured(s, in.n_tokens, 1 + 0.1 * (in.n_tokens - 1));
        row = 0;
    }
    pi_session_destroy(session);
    pi_sampler_destroy(sampler);
    return s ? pi_speculator_counts(s, text) : (pi_draft_counts){0};
}

static const int32_t prompt[] = {1, 70, 71, 72, 73, 70, 71, 72, 73, 70, 71, 72, 73, 70};
enum { N_PROMPT = sizeof prompt / sizeof *prompt, N_ALL = 60 };

/* Checks that the text with drafts of every kind equals the text without drafts. Returns the share
 * of correct drafts when the model is its own draft model. */
static double check_same(const pi_sampler_options *o) {
    int32_t plain[N_ALL], tokens[N_ALL];
    memcpy(plain, prompt, sizeof prompt);
    memcpy(tokens, prompt, sizeof prompt);
    write_text(NULL, 0, o, plain, N_PROMPT, N_ALL);
    pi_speculator *all[] = {make_speculator(true, NULL, 3, 5), make_speculator(true, NULL, 0, 7),
                            make_speculator(false, &draft, 4, 4),
                            make_speculator(true, &draft, 0, 8),
                            make_speculator(false, target, 6, 6)};
    enum { N_ALL_KINDS = sizeof all / sizeof *all };
    pi_draft_counts counts = {0};
    for (int i = 0; i < N_ALL_KINDS; i++) {
        for (int32_t text = 2; text >= 0; text -= 2) { /* 0: a second text on the same speculator */
            memset(tokens + N_PROMPT, 0, sizeof tokens - sizeof prompt);
            counts = write_text(all[i], text, o, tokens, N_PROMPT, N_ALL);
            assert_memory_equal(tokens, plain, sizeof plain);
            assert_true(counts.accepted <= counts.drafted);
        }
        pi_speculator_destroy(all[i]);
    }
    return (double)counts.accepted / (double)counts.drafted;
}

static pi_sampler_options options_of(float temp) {
    pi_sampler_options o = pi_sampler_default_options();
    o.temp = temp;
    o.seed = 12;
    o.ignore_eos = true;
    return o;
}

static void test_greedy_is_the_same(void **state) {
    (void)state;
    pi_sampler_options o = options_of(0);
    assert_true(check_same(&o) > 0.9); /* the end of the text truncates the last draft */
    o.repeat_penalty = 1.3f;
    assert_true(check_same(&o) > 0.9);
}

static void test_sampled_is_the_same(void **state) {
    (void)state;
    pi_sampler_options o = options_of(1);
    assert_true(check_same(&o) > 0.9);
    o.repeat_penalty = 1.2f;
    o.repeat_last_n = 20;
    o.frequency_penalty = 0.3f;
    o.dry_multiplier = 0.8f;
    o.xtc_probability = 0.5f;
    assert_true(check_same(&o) > 0.9);
    o = options_of(1);
    o.top_k = 0;
    o.top_p = o.min_p = 1;
    o.min_p = 0;
    o.mirostat = 2;
    assert_true(check_same(&o) > 0.9);
    o.mirostat = 1;
    assert_true(check_same(&o) > 0.9);
}

static void test_grammar_is_the_same(void **state) {
    (void)state;
    static const char gbnf[] = "root ::= (\"ab\" | [c-f] \"x\")+ \"!\"{0,60}";
    pi_sampler_options o = options_of(1);
    ok(pi_grammar_create(model.model, gbnf, sizeof gbnf - 1, NULL, &o.grammar, &err));
    assert_true(check_same(&o) > 0.9);
    o.temp = 0;
    assert_true(check_same(&o) > 0.9);
    pi_grammar_free(o.grammar);
}

/* Simulates steps that cost 1 + 0.15 per further token, on a text where look-ups often match.
 * Returns the time relative to single-token steps. right: the chance that a drafted token is
 * correct. */
static double relative_time(double right, int32_t n_tokens) {
    enum { FIRST = 8 };
    const double each = 0.15;
    pi_speculator_options o = pi_speculator_default_options();
    pi_sampler_options options = options_of(0);
    pi_sampler *sampler = make_sampler(&options);
    pi_speculator *s;
    rng random;
    double seconds = 0;
    int32_t n = 0;
    rng_seed(&random, 17);
    o.model = model.model;
    o.ngrams = true;
    o.n_ctx = n_tokens + FIRST + PI_DRAFT_MAX;
    ok(pi_speculator_create(&o, &s, &err));
    ok(pi_speculator_begin(s, 0, (const int32_t[FIRST]){10, 11, 12, 13, 10, 11, 12, 13}, FIRST,
                           sampler, &err));
    while (n < n_tokens) {
        pi_draft d = {.text = 0, .room = 16};
        ok(pi_speculator_draft(s, &d, 1, 0, &err));
        for (int32_t i = 0;; i++) {
            bool as_drafted = i < d.n && rng_uniform(&random) < right;
            int32_t other = 10 + (int32_t)(rng_u64(&random) % 4);
            if (!as_drafted && i < d.n && other == d.tokens[i]) other++;
            n++;
            if (!pi_speculator_accept(s, 0, as_drafted ? d.tokens[i] : other)) break;
        }
        pi_speculator_measured(s, 1 + d.n, 1 + each * d.n);
        seconds += 1 + each * d.n;
    }
    pi_speculator_destroy(s);
    pi_sampler_destroy(sampler);
    return seconds / n;
}

static void test_what_it_costs(void **state) {
    (void)state;
    const double never = relative_time(0, 2000), seldom = relative_time(0.1, 2000);
    const double often = relative_time(0.8, 2000), always = relative_time(1, 2000);
    print_message("time per token if drafts are never, seldom, often, always correct: "
                  "%.3f %.3f %.3f %.3f\n",
                  never, seldom, often, always);
    assert_true(never < 1.03 && seldom < 1.03);
    assert_true(often < 0.6 && always < 0.3);
}

/* ---- distribution ---------------------------------------------------------------------------- */

enum { TOP = 6 };

/* Stores the TOP most likely tokens after `tokens`: ids and probabilities. */
static void know(const int32_t *tokens, int32_t n, int32_t *ids, double *p) {
    static float all[(N_PROMPT + 1) * N_VOCAB];
    run_tokens(&model, tokens, n, 0, all);
    const float *logits = all + (n - 1) * N_VOCAB;
    double sum = 0;
    for (int k = 0; k < TOP; k++) {
        ids[k] = -1;
        for (int32_t i = 0; i < N_VOCAB; i++) {
            bool taken = false;
            for (int j = 0; j < k; j++) taken = taken || ids[j] == i;
            if (!taken && (ids[k] < 0 || logits[i] > logits[ids[k]])) ids[k] = i;
        }
        p[k] = exp((double)logits[ids[k]]);
        sum += p[k];
    }
    for (int k = 0; k < TOP; k++) p[k] /= sum;
}

static int index_of(const int32_t *ids, int32_t token) {
    for (int k = 0; k < TOP; k++)
        if (ids[k] == token) return k;
    fail_msg("token %d is not among the most likely", token);
    return 0;
}

/* Samples pairs of tokens with drafts of another model, in one step, or in two if the first draft
 * is rejected; compares all pairs with the model's probabilities by chi squared. */
static void test_distribution(void **state) {
    (void)state;
    enum { DRAWS = 8000 };
    int32_t tokens[N_PROMPT + 2], first[TOP], second[TOP][TOP], step[2], counts[TOP][TOP] = {{0}};
    double p[TOP], q[TOP][TOP], chi = 0;
    memcpy(tokens, prompt, sizeof prompt);
    know(tokens, N_PROMPT, first, p);
    for (int k = 0; k < TOP; k++) {
        tokens[N_PROMPT] = first[k];
        know(tokens, N_PROMPT + 1, second[k], q[k]);
    }
    pi_sampler_options o = options_of(1);
    o.top_k = TOP;
    o.top_p = 1;
    o.min_p = 0;
    o.ignore_eos = false;
    pi_speculator *s = make_speculator(false, &draft, 1, 1);
    pi_session *session = run_session(&model, N_CTX);
    run_feed(&model, session, prompt, N_PROMPT - 1, 0, (float[(N_PROMPT - 1) * N_VOCAB]){0});
    uint64_t right = 0;
    for (int i = 0; i < DRAWS; i++) {
        o.seed = 1000 + (uint64_t)i;
        pi_sampler *sampler = make_sampler(&o);
        pi_draft d = {.text = 1, .room = 1};
        ok(pi_speculator_begin(s, 1, prompt, N_PROMPT, sampler, &err));
        ok(pi_speculator_draft(s, &d, 1, 0, &err));
        step[0] = prompt[N_PROMPT - 1];
        if (d.n) step[1] = d.tokens[0];
        pi_input in = {
            .session = session, .tokens = step, .n_tokens = 1 + d.n, .logits = PI_LOGITS_ALL};
        ok(pi_forward(model.context, &in, 1, &err));
        int32_t a = pi_sampler_sample(sampler, pi_logits(model.context, 0)), row = 1;
        bool hit = pi_speculator_accept(s, 1, a);
        right += hit;
        if (!hit) {
            ok(pi_session_rewind(session, N_PROMPT, &err));
            in = (pi_input){
                .session = session, .tokens = &a, .n_tokens = 1, .logits = PI_LOGITS_LAST};
            ok(pi_forward(model.context, &in, 1, &err));
            row = 0;
        }
        int32_t b = pi_sampler_sample(sampler, pi_logits(model.context, row));
        int k = index_of(first, a);
        counts[k][index_of(second[k], b)]++;
        ok(pi_session_rewind(session, N_PROMPT - 1, &err));
        pi_sampler_destroy(sampler);
    }
    for (int k = 0; k < TOP; k++) {
        for (int m = 0; m < TOP; m++) {
            double expected = DRAWS * p[k] * q[k][m];
            chi += (counts[k][m] - expected) * (counts[k][m] - expected) / expected;
        }
    }
    /* The limit is 35 degrees of freedom plus five standard deviations of 8.4. */
    if (chi > 35 + 5 * sqrt(70)) fail_msg("chi squared is %.1f", chi);
    assert_true(right > 0 && right < DRAWS);
    pi_session_destroy(session);
    pi_speculator_destroy(s);
}

/* ---- several texts, failures ----------------------------------------------------------------- */

/* Three texts drafted together get the drafts that each gets alone. */
static void test_together(void **state) {
    (void)state;
    pi_sampler_options o = options_of(1);
    pi_sampler *samplers[3];
    pi_draft together[3], alone;
    pi_speculator *s = make_speculator(false, &draft, 5, 5), *other;
    int32_t drafts[3][5];
    for (int i = 0; i < 3; i++) {
        o.seed = (uint64_t)i;
        samplers[i] = make_sampler(&o);
        ok(pi_speculator_begin(s, i, prompt, N_PROMPT - i, samplers[i], &err));
        together[i] = (pi_draft){.text = i, .room = 5 + i};
    }
    ok(pi_speculator_draft(s, together, 3, 0, &err));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(together[i].n, 5);
        memcpy(drafts[i], together[i].tokens, sizeof drafts[i]);
        other = make_speculator(false, &draft, 5, 5);
        ok(pi_speculator_begin(other, 0, prompt, N_PROMPT - i, samplers[i], &err));
        alone = (pi_draft){.text = 0, .room = 9};
        ok(pi_speculator_draft(other, &alone, 1, 0, &err));
        assert_int_equal(alone.n, 5);
        assert_memory_equal(alone.tokens, drafts[i], sizeof drafts[i]);
        pi_speculator_destroy(other);
    }
    together[1].room = 0; /* no room, or less than n_min: no draft */
    together[2].room = 4;
    ok(pi_speculator_draft(s, together, 3, 0, &err));
    assert_true(together[0].n == 5 && together[1].n == 0 && together[2].n == 0);
    for (int i = 0; i < 3; i++) pi_sampler_destroy(samplers[i]);
    pi_speculator_destroy(s);
}

/* A long text is read in pieces; drafts start when all of it has been read. */
static void test_pieces(void **state) {
    (void)state;
    pi_speculator_options o = pi_speculator_default_options();
    pi_sampler_options options = options_of(0);
    pi_sampler *sampler = make_sampler(&options);
    pi_speculator *s;
    o.model = model.model;
    o.draft_model = draft.model;
    o.draft_context = draft.context;
    o.n_ctx = N_CTX;
    o.n_min = o.n_max = 2;
    o.n_piece = 5;
    ok(pi_speculator_create(&o, &s, &err));
    ok(pi_speculator_begin(s, 0, prompt, N_PROMPT, sampler, &err));
    for (int i = 0; i < 3; i++) {
        pi_draft d = {.text = 0, .room = 10};
        ok(pi_speculator_draft(s, &d, 1, 0, &err));
        assert_int_equal(d.n, i < 2 ? 0 : 2); /* 14 tokens are read as 5, 5 and 4 */
    }
    /* A second begin with the same text reads nothing, unless the text was forgotten. */
    for (int forgotten = 0; forgotten < 2; forgotten++) {
        pi_draft d = {.text = 0, .room = 10};
        if (forgotten) pi_speculator_forget(s, 0);
        ok(pi_speculator_begin(s, 0, prompt, N_PROMPT, sampler, &err));
        ok(pi_speculator_draft(s, &d, 1, 0, &err));
        assert_int_equal(d.n, forgotten ? 0 : 2);
    }
    assert_int_equal(pi_speculator_begin(s, 0, prompt, N_CTX + 1, sampler, &err), PI_ERR_LIMIT);
    pi_sampler_destroy(sampler);
    pi_speculator_destroy(s);
}

/* Tests p_min: no token reaches it, or every token. */
static void test_least_probability(void **state) {
    (void)state;
    pi_speculator_options o = pi_speculator_default_options();
    pi_sampler_options options = options_of(0);
    pi_sampler *sampler = make_sampler(&options);
    o.model = model.model;
    o.draft_model = draft.model;
    o.draft_context = draft.context;
    o.n_ctx = N_CTX;
    o.n_min = 1;
    o.n_max = 2;
    for (int i = 0; i < 2; i++) {
        pi_speculator *s;
        o.p_min = i ? 0.9999f : 1e-6f;
        ok(pi_speculator_create(&o, &s, &err));
        ok(pi_speculator_begin(s, 0, prompt, N_PROMPT, sampler, &err));
        pi_draft d = {.text = 0, .room = 10};
        ok(pi_speculator_draft(s, &d, 1, 0, &err));
        assert_true(i ? d.n == 0 : d.n > 0);
        pi_speculator_destroy(s);
    }
    pi_sampler_destroy(sampler);
}

static void test_refused(void **state) {
    (void)state;
    run_model other = open_tiny(OTHER_PATH, N_VOCAB - 1, "f32");
    pi_speculator_options good = pi_speculator_default_options(), o;
    pi_speculator *s;
    good.model = model.model;
    good.ngrams = true;
    good.n_ctx = N_CTX;
    const struct {
        int32_t n_texts, n_ctx, n_max, n_min, n_piece;
        float p_min;
        bool ngrams;
    } bad[] = {{0, 8, 4, 0, 8, 0, true},   {PI_SPECULATE_TEXTS + 1, 8, 4, 0, 8, 0, true},
               {1, 0, 4, 0, 8, 0, true},   {1, 8, 0, 0, 8, 0, true},
               {1, 8, -4, 0, 8, 0, true},  {1, 8, PI_DRAFT_MAX + 1, 0, 8, 0, true},
               {1, 8, 4, -1, 8, 0, true},  {1, 8, 4, 5, 8, 0, true},
               {1, 8, 4, 0, 0, 0, true},   {1, 8, 4, 0, 8, -0.5f, true},
               {1, 8, 4, 0, 8, NAN, true}, {1, 8, 4, 0, 8, 0, false}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o = good;
        o.n_texts = bad[i].n_texts;
        o.n_ctx = bad[i].n_ctx;
        o.n_max = bad[i].n_max;
        o.n_min = bad[i].n_min;
        o.n_piece = bad[i].n_piece;
        o.p_min = bad[i].p_min;
        o.ngrams = bad[i].ngrams;
        assert_int_equal(pi_speculator_create(&o, &s, &err), PI_ERR_ARG);
        assert_null(s);
    }
    o = good;
    o.draft_model = other.model;
    o.draft_context = other.context;
    assert_int_equal(pi_speculator_create(&o, &s, &err), PI_ERR_ARG);
    assert_string_equal(err.message,
                        "vocabularies differ: draft model: token 287 is not the model's: use a "
                        "draft model of the same family");
    run_close(&other);
}

/* Recurrent layers rewind to the state before the drafts and read the accepted tokens again. A
 * recurrent model can also draft. */
static void test_recurrent(void **state) {
    (void)state;
    run_model recurrent;
    pi_context_options context = run_exact_options();
    pi_sampler_options sampling = options_of(1);
    int32_t plain[N_ALL], tokens[N_ALL];
    pi_speculator *s;
    context.n_logits = N_LOGITS;
    n_again = 0;
    for (int a = 0; a < RECURRENT_ARCHS; a++) {
        pi_sampler_options greedy = options_of(0);
        recurrent_write(recurrent_archs[a], NULL, RECURRENT_PATH);
        recurrent = run_open(RECURRENT_PATH, &context);
        target = &recurrent;
        check_same(&greedy);
        check_same(&sampling);
        target = &model;
        run_close(&recurrent);
    }
    assert_true(n_again > 0);
    recurrent_write(recurrent_archs[0], NULL, RECURRENT_PATH);
    recurrent = run_open(RECURRENT_PATH, &context);
    memcpy(plain, prompt, sizeof prompt);
    memcpy(tokens, prompt, sizeof prompt);
    write_text(NULL, 0, &sampling, plain, N_PROMPT, N_ALL);
    s = make_speculator(false, &recurrent, 3, 3);
    pi_draft_counts n = write_text(s, 0, &sampling, tokens, N_PROMPT, N_ALL);
    assert_memory_equal(tokens, plain, sizeof plain);
    assert_true(n.drafted > 0 && n.accepted < n.drafted);
    pi_speculator_destroy(s);
    run_close(&recurrent);
}

/* ---- heads ----------------------------------------------------------------------------------- */

#define HEAD_PATH TEST_BINARY_DIR "/test_speculate_head.gguf"

/* A model of MODEL_PATH and its head, which is in the same file or in an EAGLE-3 file. */
typedef struct headed {
    run_model model, head;
    run_model chain[PI_DRAFT_HEADS];
    pi_context *contexts[PI_DRAFT_HEADS]; /* of the chain */
    int32_t n_chain;
} headed;

static headed open_headed(bool eagle) {
    headed h = {.model = {.n_vocab = N_VOCAB}, .head = {.n_vocab = N_VOCAB}};
    pi_context_options o = run_exact_options();
    o.n_logits = N_LOGITS;
    ok(pi_model_open(OTHER_PATH, NULL, &h.model.model, &err));
    ok(pi_model_open_drafter(h.model.model, eagle ? HEAD_PATH : NULL, 0, &h.head.model, &err));
    ok(pi_context_create(h.head.model, &o, &h.head.context, &err));
    pi_model_info info;
    pi_model_get_info(h.head.model, &info);
    for (; h.n_chain + 1 < info.n_draft_layer; h.n_chain++) {
        run_model *next = &h.chain[h.n_chain];
        ok(pi_model_open_drafter(h.model.model, NULL, h.n_chain + 1, &next->model, &err));
        ok(pi_context_create(next->model, &o, &next->context, &err));
        h.contexts[h.n_chain] = next->context;
    }
    o.drafter = h.head.model;
    ok(pi_context_create(h.model.model, &o, &h.model.context, &err));
    return h;
}

static void close_headed(headed *h) {
    pi_context_destroy(h->model.context);
    run_close(&h->head);
    for (int32_t i = 0; i < h->n_chain; i++) run_close(&h->chain[i]);
    pi_model_close(h->model.model);
}

static pi_speculator *make_headed_speculator(const headed *h, int32_t n) {
    pi_speculator_options o = speculator_options(false, &h->head, n, n);
    pi_speculator *s;
    o.chain = h->contexts;
    o.n_chain = h->n_chain;
    ok(pi_speculator_create(&o, &s, &err));
    return s;
}

/* Texts with drafts of the head equal texts without; returns the share of accepted drafts. */
static double check_head(const headed *h, const pi_sampler_options *o) {
    int32_t plain[N_ALL], tokens[N_ALL];
    pi_draft_counts all = {0};
    target = &h->model;
    memcpy(plain, prompt, sizeof prompt);
    memcpy(tokens, prompt, sizeof prompt);
    write_text(NULL, 0, o, plain, N_PROMPT, N_ALL);
    for (int32_t n = 1; n < 8; n += 3) {
        pi_speculator *s = make_headed_speculator(h, n);
        for (int32_t text = 2; text >= 0; text -= 2) {
            memset(tokens + N_PROMPT, 0, sizeof tokens - sizeof prompt);
            pi_draft_counts counts = write_text(s, text, o, tokens, N_PROMPT, N_ALL);
            assert_memory_equal(tokens, plain, sizeof plain);
            assert_true(counts.drafted > 0);
            all.drafted += counts.drafted;
            all.accepted += counts.accepted;
        }
        pi_speculator_destroy(s);
    }
    target = &model;
    return (double)all.accepted / (double)all.drafted;
}

/* The head of a model whose blocks do nothing drafts what the model says; other heads are random.
 */
static void test_heads(void **state) {
    (void)state;
    pi_sampler_options greedy = options_of(0), sampled = options_of(1);
    for (int kind = 0; kind < 5; kind++) { /* the last two: chains */
        bool eagle = kind == 2, agrees = kind == 1 || kind == 4;
        tiny_model t = tiny_default(), e = tiny_default();
        t.n_vocab = e.n_vocab = N_VOCAB;
        t.vocabulary = true;
        t.draft.n = eagle ? 0 : kind > 2 ? 3 : 1;
        if (kind > 2) t.n_layer = 1;
        t.draft.agrees = agrees;
        tiny_write(&t, OTHER_PATH);
        e.arch = "eagle3";
        e.n_layer = 1;
        e.two_norms = true;
        e.draft = (tiny_draft){.reads = {0, 1, 2}, .n_target = t.n_embd, .n_ids = N_VOCAB / 2};
        tiny_write(&e, HEAD_PATH);
        headed h = open_headed(eagle);
        double share = check_head(&h, &greedy), also = check_head(&h, &sampled);
        assert_true(!agrees || (share > 0.9 && also > 0.9));
        close_headed(&h);
    }
}

/* DeepSeek-V4: the features are all residual streams, and rejected drafts leave no trace in the
 * sums of compressed keys. The text is longer than the window, than the positions that an index
 * selects and than those of the longest compressed key. The head is random, but it samples with the
 * model's random numbers, so some drafts are accepted. */
static void test_head_of_streams(void **state) {
    (void)state;
    enum { N_READ = 110, N_LONG = 150, N_DRAFTS = 4 };
    int32_t plain[N_LONG], tokens[N_LONG];
    pi_synth_options o = pi_synth_default_options();
    o.shape = "tiny-csa-moe";
    o.type = "f32";
    o.plain = true;
    o.n_mtp = 1;
    ok(pi_synth(OTHER_PATH, &o, &err));
    headed h = open_headed(false);
    target = &h.model;
    for (int temp = 0; temp <= 4; temp += 4) {
        const pi_sampler_options options = options_of((float)temp);
        pi_speculator *s = make_headed_speculator(&h, N_DRAFTS);
        run_random_tokens(5, N_VOCAB, plain, N_READ);
        memcpy(tokens, plain, sizeof plain);
        write_text(NULL, 0, &options, plain, N_READ, N_LONG);
        pi_draft_counts n = write_text(s, 0, &options, tokens, N_READ, N_LONG);
        assert_memory_equal(tokens, plain, sizeof plain);
        print_message("temperature %d: %d of %d drafts accepted\n", temp, (int)n.accepted,
                      (int)n.drafted);
        assert_true(n.accepted < n.drafted && (temp == 0 || n.accepted > 0));
        pi_speculator_destroy(s);
    }
    target = &model;
    close_headed(&h);
}

static int32_t best_of(const float *logits) {
    int32_t best = 0;
    for (int32_t i = 1; i < N_VOCAB; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* The draft of head n of a chain. A new session reads tokens[n_tokens], without the first one, with
 * the model's features, then the earlier drafts with the features of the heads that drafted them,
 * features[n_tokens - 1] to [n_tokens + n - 2]. Adds this head's features. */
static int32_t draft_of_head(const headed *h, int n, const int32_t *tokens, int32_t n_tokens,
                             float *features) {
    const int32_t width = tiny_default().n_embd;
    pi_context *c = n == 0 ? h->head.context : h->contexts[n - 1];
    pi_session *s;
    ok(pi_session_create(c, N_CTX, &s, &err));
    const pi_input in = {.session = s,
                         .tokens = tokens + 1,
                         .n_tokens = n_tokens - 1 + n,
                         .logits = PI_LOGITS_LAST,
                         .features = features};
    ok(pi_forward(c, &in, 1, &err));
    memcpy(features + (n_tokens - 1 + n) * width, pi_session_features(s, n_tokens - 2 + n),
           (size_t)width * sizeof *features);
    const int32_t best = best_of(pi_logits(c, 0));
    pi_session_destroy(s);
    return best;
}

/* A chain drafts one token with each head in order, also after drafts that needed only the first
 * head. */
static void test_chain(void **state) {
    (void)state;
    enum { N_HEADS = 3 };
    tiny_model t = tiny_default();
    t.n_vocab = N_VOCAB;
    t.vocabulary = true;
    t.n_layer = 1;
    t.draft.n = N_HEADS;
    tiny_write(&t, OTHER_PATH);
    headed h = open_headed(false);
    assert_int_equal(h.n_chain, N_HEADS - 1);
    target = &h.model;
    pi_sampler_options greedy = options_of(0);
    pi_sampler *sampler = make_sampler(&greedy);
    pi_speculator_options o = speculator_options(false, &h.head, 1, 9);
    pi_speculator *s;
    o.chain = h.contexts;
    o.n_chain = h.n_chain;
    ok(pi_speculator_create(&o, &s, &err));
    pi_session *session = run_session(&h.model, N_CTX);
    float *logits = mem_calloc(N_PROMPT * N_VOCAB, sizeof *logits);
    float *features = mem_calloc(N_ALL * (size_t)t.n_embd, sizeof *features);
    int32_t tokens[N_ALL], n = 5, seen[N_HEADS + 1] = {0};
    memcpy(tokens, prompt, sizeof prompt);
    run_feed(&h.model, session, tokens, n - 1, 0, logits);
    ok(pi_speculator_begin(s, 1, tokens, n, sampler, &err));
    while (n + N_HEADS < N_ALL) {
        pi_draft d = {.text = 1, .room = n % 3 == 0 ? 1 : 9, .session = session};
        ok(pi_speculator_draft(s, &d, 1, 0, &err));
        assert_in_range(d.n, 1, N_HEADS);
        seen[d.n]++;
        for (int32_t i = 0; i + 1 < n; i++)
            memcpy(features + i * t.n_embd, pi_session_features(session, i),
                   (size_t)t.n_embd * sizeof *features);
        for (int32_t k = 0; k < d.n; k++) {
            tokens[n + k] = draft_of_head(&h, k, tokens, n, features);
            assert_int_equal(d.tokens[k], tokens[n + k]);
        }
        const int32_t taken = d.n > 1 ? d.n - n % 2 : 1;
        for (int32_t k = 0; k < taken; k++) pi_speculator_accept(s, 1, tokens[n + k]);
        pi_speculator_measured(s, 1 + d.n, 1 + 0.01 * d.n);
        run_feed(&h.model, session, tokens + n - 1, taken, 0, logits);
        n += taken;
    }
    assert_true(seen[1] > 0 && seen[N_HEADS] > 0);
    mem_free(features);
    mem_free(logits);
    pi_session_destroy(session);
    pi_speculator_destroy(s);
    pi_sampler_destroy(sampler);
    close_headed(&h);
    target = &model;
}

/* A head begins where the text's session keeps features, and continues after a rewind. */
static void test_head_of_loaded_session(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.n_vocab = N_VOCAB;
    t.vocabulary = true;
    t.draft = (tiny_draft){.n = 1, .agrees = true};
    tiny_write(&t, OTHER_PATH);
    headed h = open_headed(false);
    target = &h.model;
    pi_sampler_options greedy = options_of(0);
    pi_sampler *sampler = make_sampler(&greedy);
    pi_speculator *s = make_speculator(false, &h.head, 2, 2);
    pi_session *whole = run_session(&h.model, N_CTX), *copy = run_session(&h.model, N_CTX);
    float *logits = mem_calloc(N_PROMPT * N_VOCAB, sizeof *logits);
    run_feed(&h.model, whole, prompt, N_PROMPT - 1, 0, logits);
    ok(pi_session_copy(copy, whole, N_PROMPT - 1, &err));
    ok(pi_speculator_begin(s, 0, prompt, N_PROMPT, sampler, &err));
    pi_draft d = {.text = 0, .room = 9, .session = copy};
    ok(pi_speculator_draft(s, &d, 1, 0, &err));
    assert_int_equal(d.n, 0); /* nothing is known of the token before the last */
    ok(pi_session_rewind(copy, N_PROMPT - 4, &err));
    run_feed(&h.model, copy, prompt + N_PROMPT - 4, 3, 0, logits);
    int32_t first[2];
    for (int i = 0; i < 2; i++) { /* the second time from the session that has all features */
        ok(pi_speculator_draft(s, &d, 1, 0, &err));
        assert_int_equal(d.n, 2);
        if (i) assert_memory_equal(d.tokens, first, sizeof first);
        memcpy(first, d.tokens, sizeof first);
        pi_speculator_forget(s, 0);
        ok(pi_speculator_begin(s, 0, prompt, N_PROMPT, sampler, &err));
        d.session = whole;
    }
    mem_free(logits);
    pi_session_destroy(whole);
    pi_session_destroy(copy);
    pi_speculator_destroy(s);
    pi_sampler_destroy(sampler);
    close_headed(&h);
    target = &model;
}

static pi_status create_and_begin(const pi_sampler *sampler) {
    pi_speculator_options o = pi_speculator_default_options();
    pi_speculator *s;
    o.model = model.model;
    o.draft_model = draft.model;
    o.draft_context = draft.context;
    o.n_ctx = N_CTX;
    o.n_texts = 2;
    pi_status status = pi_speculator_create(&o, &s, &err);
    if (status != PI_OK) return status;
    status = pi_speculator_begin(s, 1, prompt, N_PROMPT, sampler, &err);
    pi_speculator_destroy(s);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    pi_sampler_options o = options_of(1);
    o.repeat_penalty = 1.1f;
    o.dry_multiplier = 1;
    ok(pi_grammar_create(model.model, "root ::= .*", 11, NULL, &o.grammar, &err));
    pi_sampler *sampler = make_sampler(&o);
    for (failing f = failing_each(1); failing_next(&f);)
        failing_hit(&f, create_and_begin(sampler), &err);
    pi_sampler_destroy(sampler);
    pi_grammar_free(o.grammar);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ngrams_by_hand),
                                       cmocka_unit_test(test_ngrams_by_definition),
                                       cmocka_unit_test(test_lengths),
                                       cmocka_unit_test(test_chances),
                                       cmocka_unit_test(test_greedy_is_the_same),
                                       cmocka_unit_test(test_sampled_is_the_same),
                                       cmocka_unit_test(test_grammar_is_the_same),
                                       cmocka_unit_test(test_what_it_costs),
                                       cmocka_unit_test(test_distribution),
                                       cmocka_unit_test(test_together),
                                       cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_least_probability),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_recurrent),
                                       cmocka_unit_test(test_heads),
                                       cmocka_unit_test(test_head_of_streams),
                                       cmocka_unit_test(test_chain),
                                       cmocka_unit_test(test_head_of_loaded_session),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, open_models, close_models);
}
