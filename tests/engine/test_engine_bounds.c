/* test_engine_bounds.c: attention to the blocks whose keys can match best (attn_blocks). The blocks
 * that the last layer chooses and its sums match the plain definition in double precision; prefill
 * reads everything. Edited, copied and loaded sessions continue exactly like sessions whose bounds
 * are computed again. Results do not depend on threads or, with few_only, on how tokens are split.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "context.h"
#include "mem.h"
#include "run_engine.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_bounds.gguf"
#define SAVED_PATH TEST_BINARY_DIR "/test_engine_bounds.session"

enum {
    V = 40,
    LAYERS = 3,
    HEADS = 6,
    KV_HEADS = 2,
    DIM = 32,
    BLOCK = PLAN_BOUNDS_SIZE,
    N_CTX = 12 * BLOCK,
    N_TOKENS = N_CTX - 6,
    MAX_BLOCKS = N_CTX / BLOCK
};

static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * V], got[N_TOKENS * V];
static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

static model *open_model(void) {
    tiny_model t = tiny_default();
    t.n_layer = LAYERS;
    t.n_embd = 64;
    t.n_vocab = V;
    t.head_dim = DIM;
    t.n_rot = 16;
    t.n_ff[2] = t.n_ff[0];
    tiny_set_heads(&t, HEADS, KV_HEADS);
    run_random_tokens(7, V, tokens, N_TOKENS);
    return run_engine_open_tiny(&t, MODEL_PATH);
}

static engine_options options_for(cpu_tier tier, quant_type type, int attn_blocks) {
    engine_options o = run_engine_options(PI_MODE_DENSE, N_TOKENS, N_TOKENS);
    o.tier = tier;
    o.type_k = o.type_v = type;
    o.plan.attn_blocks = attn_blocks;
    return o;
}

/* ---- the definition -------------------------------------------------------------------------- */

/* A cached row as doubles; keys stay rotated, as queries are. */
static void row_of(const pi_session *s, kv_part part, int head, int64_t pos, double *out) {
    float single[DIM];
    quant_type type = part == KV_VALUES ? s->kv.type_v : s->kv.type_k;
    quant_find(type)->dequantize(kv_cache_row(&s->kv, LAYERS - 1, part, head, pos), single, DIM);
    if (part == KV_VALUES) kv_rotate(&s->context->cpu.kernels, type, single, DIM);
    for (int i = 0; i < DIM; i++) out[i] = (double)single[i];
}

static void query_of(const pi_session *s, int head, double *out) {
    float single[DIM];
    memcpy(single, s->context->cpu.buf[BUF_Q] + head * DIM, sizeof single);
    kv_rotate(&s->context->cpu.kernels, s->kv.type_k, single, DIM);
    for (int i = 0; i < DIM; i++) out[i] = (double)single[i];
}

static double product(const double *a, const double *b) {
    double sum = 0;
    for (int i = 0; i < DIM; i++) sum += a[i] * b[i];
    return sum;
}

/* The highest product that a head's query can have with a key of the block; *size: the sum of
 * absolute values, for errors. */
static double bound_of(const pi_session *s, int head, int block, double *size) {
    double q[DIM], key[DIM], least[DIM], most[DIM], sum = 0;
    *size = 0;
    query_of(s, head, q);
    for (int i = 0; i < BLOCK; i++) {
        row_of(s, KV_KEYS, head / (HEADS / KV_HEADS), block * BLOCK + i, key);
        for (int k = 0; k < DIM; k++) {
            least[k] = i == 0 ? key[k] : fmin(least[k], key[k]);
            most[k] = i == 0 ? key[k] : fmax(most[k], key[k]);
        }
    }
    for (int k = 0; k < DIM; k++) {
        sum += fmax(q[k] * least[k], q[k] * most[k]);
        *size += fabs(q[k]) * fmax(fabs(least[k]), fabs(most[k]));
    }
    return sum;
}

/* Scores of the blocks before `own`; returns the largest `size`. */
static double scores_of(const pi_session *s, int kv_head, int own, double score[MAX_BLOCKS]) {
    const int group = HEADS / KV_HEADS;
    double largest = 0;
    for (int b = 0; b < own; b++) score[b] = -INFINITY;
    for (int g = 0; g < group; g++) {
        double bound[MAX_BLOCKS], size, best = -INFINITY;
        for (int b = 0; b < own; b++) {
            bound[b] = bound_of(s, kv_head * group + g, b, &size);
            best = fmax(best, bound[b]);
            largest = fmax(largest, size);
        }
        for (int b = 0; b < own; b++) score[b] = fmax(score[b], bound[b] - best);
    }
    return largest;
}

/* The session's last token was fed alone. Blocks are stored in eight bits and queries are
 * quantized, so a block that was left out may be better than a chosen one, but by little. */
static void check_choice(const pi_session *s, int kv_head, int top, bool chosen[MAX_BLOCKS]) {
    const int own = (int)((s->length - 1) / BLOCK);
    const float *kept = s->blocks.data + (int64_t)kv_head * (HEADS / KV_HEADS) * s->blocks.n_blocks;
    double score[MAX_BLOCKS], worst = INFINITY, best = -INFINITY;
    double size = scores_of(s, kv_head, own, score);
    int n = 0;
    for (int b = 0; b <= own; b++) {
        chosen[b] = kept[b] != -INFINITY;
        n += chosen[b];
    }
    assert_int_equal(n, top);
    assert_true(chosen[0] && chosen[own - 1] && chosen[own]);
    for (int b = 1; b < own - 1; b++) {
        if (chosen[b] && score[b] < worst) worst = score[b];
        if (!chosen[b] && score[b] > best) best = score[b];
    }
    if (best - worst > 0.02 * size) fail_msg("left out %g, chose %g of %g", best, worst, size);
}

static void check_sums(const pi_session *s, int head, const bool *chosen) {
    double q[DIM], row[DIM], sum[DIM] = {0}, all = 0;
    float exact[DIM];
    query_of(s, head, q);
    for (int64_t p = 0; p < s->length; p++) {
        if (!chosen[p / BLOCK]) continue;
        row_of(s, KV_KEYS, head / (HEADS / KV_HEADS), p, row);
        double weight = exp(product(q, row) / sqrt(DIM));
        row_of(s, KV_VALUES, head / (HEADS / KV_HEADS), p, row);
        for (int i = 0; i < DIM; i++) sum[i] += weight * row[i];
        all += weight;
    }
    for (int i = 0; i < DIM; i++) exact[i] = (float)(sum[i] / all);
    double nmse = run_nmse(s->context->cpu.buf[BUF_ATTN] + head * DIM, exact, DIM);
    if (!(nmse <= 1e-10)) fail_msg("head %d: NMSE %g", head, nmse);
}

static void test_definition(void **state) {
    (void)state;
    static const quant_type types[] = {QUANT_F32, QUANT_F16, QUANT_Q8_0, QUANT_Q4_0};
    model *m = open_model();
    for (int i = 0; i < 8; i++) {
        engine_options o = options_for(i % 2 ? CPU_TIER_AUTO : CPU_TIER_SCALAR, types[i / 2],
                                       4 + i % 4);
        engine_context *c = run_engine_context(m, &o);
        pi_session *s = run_engine_session(c, N_CTX);
        run_engine_feed(c, s, tokens, 8 * BLOCK, i % 2, NULL); /* at once, or one by one */
        for (int at = 8 * BLOCK; at < N_TOKENS; at++) {        /* across borders of blocks */
            run_engine_feed(c, s, tokens + at, 1, 0, NULL);
            for (int kv_head = 0; kv_head < KV_HEADS; kv_head++) {
                bool chosen[MAX_BLOCKS];
                check_choice(s, kv_head, o.plan.attn_blocks, chosen);
                for (int g = 0; g < HEADS / KV_HEADS; g++)
                    check_sums(s, kv_head * (HEADS / KV_HEADS) + g, chosen);
            }
        }
        engine_session_destroy(s);
        engine_context_destroy(c);
    }
    model_close(m);
}

/* ---- what stays as it is --------------------------------------------------------------------- */

static void logits_of(const model *m, const engine_options *o, int piece, float *out) {
    engine_context *c = run_engine_context(m, o);
    run_engine_tokens(c, N_CTX, tokens, N_TOKENS, piece, out);
    engine_context_destroy(c);
}

/* Prefill, and decode with at most attn_blocks blocks, give the results of all positions. */
static void test_all_positions(void **state) {
    (void)state;
    model *m = open_model();
    for (int piece = 0; piece < 2; piece++) {
        engine_options all = options_for(CPU_TIER_AUTO, QUANT_F16, 0);
        engine_options some = options_for(CPU_TIER_AUTO, QUANT_F16, piece ? MAX_BLOCKS : 4);
        logits_of(m, &all, piece, want);
        logits_of(m, &some, piece, got);
        assert_memory_equal(got, want, sizeof want);
    }
    engine_options few = options_for(CPU_TIER_AUTO, QUANT_F16, 4);
    logits_of(m, &few, 1, got);
    assert_memory_equal(got, want, (size_t)4 * BLOCK * V * sizeof *got);
    assert_memory_not_equal(got + 6 * BLOCK * V, want + 6 * BLOCK * V, V * sizeof *got);
    model_close(m);
}

/* A layer with a window has no bounds. */
static void test_other_layers(void **state) {
    (void)state;
    model *m = open_model();
    engine_options o = options_for(CPU_TIER_AUTO, QUANT_F16, 4);
    m->layers[1].hp.window = 20;
    engine_context *c = run_engine_context(m, &o);
    const plan *p = engine_plan(c);
    assert_true(plan_attention_blocks(p, 0).bounds);
    assert_int_equal(plan_attention_blocks(p, 1).size, 0);
    engine_context_destroy(c);
    model_close(m);

    tiny_model t = tiny_default();
    t.arch = "minimax-m3"; /* its first layer has no index */
    t.n_layer = LAYERS;
    t.head_dim = DIM;
    t.experts = (tiny_experts){.n = 4, .n_used = 2, .n_ff = 32, .n_dense = 1};
    t.index = (tiny_index){.dim = DIM, .size = 64, .top = 4, .local = 1};
    m = run_engine_open_tiny(&t, MODEL_PATH);
    c = run_engine_context(m, &o);
    assert_int_equal(plan_attention_blocks(engine_plan(c), 0).size, 0);
    assert_false(plan_attention_blocks(engine_plan(c), 1).bounds);
    run_random_tokens(7, V, tokens, N_TOKENS);
    run_engine_tokens(c, N_CTX, tokens, N_TOKENS, 1, NULL);
    engine_context_destroy(c);
    model_close(m);
}

/* ---- ways of feeding ------------------------------------------------------------------------- */

static void test_threads(void **state) {
    (void)state;
    model *m = open_model();
    engine_options o = options_for(CPU_TIER_AUTO, QUANT_F16, 5);
    o.n_threads = 1;
    logits_of(m, &o, 3, want);
    o.n_threads = o.n_threads_batch = 3;
    logits_of(m, &o, 3, got);
    assert_memory_equal(got, want, sizeof want);
    model_close(m);
}

static void near(const char *what, const float *a, const float *b, int64_t n) {
    double nmse = run_nmse(a, b, n);
    if (!(nmse <= 1e-8)) fail_msg("%s: NMSE %g", what, nmse);
}

/* Pieces of several tokens, and two sessions in a call, select blocks as single tokens do, also in
 * ubatches of FORM_MANY. */
static void test_pieces(void **state) {
    (void)state;
    enum { HALF = N_TOKENS / 2, STEP = 8 };
    model *m = open_model();
    engine_options o = options_for(CPU_TIER_SCALAR, QUANT_F32, 4);
    logits_of(m, &o, 1, want);
    logits_of(m, &o, 5, got);
    near("pieces of 5", got, want, N_TOKENS * V);
    logits_of(m, &o, PLAN_DECODE_TOKENS, got);
    near("pieces of 16", got, want, N_TOKENS * V);
    engine_context *c = run_engine_context(m, &o);
    pi_session *s[2] = {run_engine_session(c, N_CTX), run_engine_session(c, N_CTX)};
    run_engine_feed(c, s[1], tokens, HALF, 1, NULL);
    for (int at = 0; at + HALF + STEP <= N_TOKENS; at += STEP) {
        pi_input in[2];
        for (int k = 0; k < 2; k++)
            in[k] = (pi_input){.session = s[k],
                               .tokens = tokens + at + k * HALF,
                               .n_tokens = STEP,
                               .logits = PI_LOGITS_ALL};
        run_engine_forward(c, in, 2);
        for (int k = 0; k < 2; k++)
            near("two sessions", engine_logits(c, k * STEP), want + (at + k * HALF) * V, STEP * V);
    }
    engine_session_destroy(s[0]);
    engine_session_destroy(s[1]);
    engine_context_destroy(c);
    model_close(m);
}

/* With few_only a token's result does not depend on how the text is split. */
static void test_few_only(void **state) {
    (void)state;
    model *m = open_model();
    engine_options o = options_for(CPU_TIER_AUTO, QUANT_Q8_0, 4);
    o.plan.few_only = true;
    logits_of(m, &o, 0, want);
    logits_of(m, &o, 5, got);
    assert_memory_equal(got, want, sizeof want);
    model_close(m);
}

/* ---- sessions -------------------------------------------------------------------------------- */

/* A session that is loaded makes all its bounds from the cache. It must go on as the session that
 * was saved, whatever was done to that one; both are fed the tokens from `at` on. */
static void check_same(engine_context *c, pi_session *s, int at) {
    enum { MORE = BLOCK + 3 };
    int32_t read[N_CTX];
    int64_t n;
    pi_session *fresh = run_engine_session(c, N_CTX);
    ok(session_save(s, SAVED_PATH, tokens, s->length, &err));
    ok(session_load(fresh, SAVED_PATH, read, N_CTX, &n, &err));
    run_engine_feed(c, s, tokens + at, MORE, 1, want);
    run_engine_feed(c, fresh, tokens + at, MORE, 1, got);
    assert_memory_equal(got, want, MORE * V * sizeof *got);
    engine_session_destroy(fresh);
}

static void test_sessions(void **state) {
    (void)state;
    model *m = open_model();
    engine_options o = options_for(CPU_TIER_AUTO, QUANT_F16, 4);
    engine_context *c = run_engine_context(m, &o);
    pi_session *s = run_engine_session(c, N_CTX), *other = run_engine_session(c, N_CTX);
    run_engine_feed(c, s, tokens, 4 * BLOCK + 1, 1, NULL); /* the last one selects blocks */
    check_same(c, s, 2);
    ok(session_rewind(s, 0, &err));
    run_engine_feed(c, s, tokens, 6 * BLOCK, 0, NULL);
    run_engine_feed(c, s, tokens + 6 * BLOCK, 2 * BLOCK, 1, NULL);
    ok(session_rewind(s, 7 * BLOCK - 5, &err)); /* other tokens replace those behind it */
    check_same(c, s, 3);
    ok(session_rewind(s, 4 * BLOCK, &err));
    run_engine_feed(c, s, tokens + 9, 3 * BLOCK, 0, NULL); /* replaced by prefill */
    check_same(c, s, 4);
    ok(session_remove(s, BLOCK + 1, 2 * BLOCK, &err));
    check_same(c, s, 5);
    run_engine_feed(c, other, tokens + 40, 6 * BLOCK, 1, NULL); /* has bounds of other keys */
    ok(session_copy(other, s, 7 * BLOCK, &err));
    check_same(c, other, 6);
    ok(session_rewind(s, BLOCK, &err));
    run_engine_feed(c, s, tokens + 50, 8 * BLOCK, 1, NULL);
    ok(session_load(s, SAVED_PATH, (int32_t[N_CTX]){0}, N_CTX, &(int64_t){0}, &err));
    check_same(c, s, 7);
    engine_session_destroy(s);
    engine_session_destroy(other);
    engine_context_destroy(c);
    model_close(m);
    remove(SAVED_PATH);
}

/* ---- bytes and memory ------------------------------------------------------------------------ */

/* One more token reads 4 blocks of F16 and rows of Q8_0 with two values per element. */
static void test_bytes(void **state) {
    (void)state;
    const uint64_t row = 2 * DIM * 2, bounds = 2 * DIM / 32 * 34;
    model *m = open_model();
    engine_options o = options_for(CPU_TIER_AUTO, QUANT_F16, 4);
    engine_context *c = run_engine_context(m, &o);
    pi_session *s = run_engine_session(c, N_CTX);
    run_engine_feed(c, s, tokens, 10 * BLOCK, 0, NULL);
    assert_int_equal(engine_get_counters(c).kv_bytes, LAYERS * KV_HEADS * 10 * BLOCK * row);
    uint64_t before = engine_get_counters(c).kv_bytes;
    run_engine_feed(c, s, tokens, 1, 0, NULL);
    assert_int_equal(engine_get_counters(c).kv_bytes - before,
                     LAYERS * KV_HEADS * (4 * BLOCK * row + 10 * bounds));
    engine_session_destroy(s);
    engine_context_destroy(c);
    model_close(m);
}

static void test_no_memory(void **state) {
    (void)state;
    model *m = open_model();
    engine_options o = options_for(CPU_TIER_AUTO, QUANT_F16, 4);
    engine_context *c = run_engine_context(m, &o);
    pi_status status = PI_ERR_NOMEM;
    for (int n = 1; status == PI_ERR_NOMEM; n++) {
        pi_session *s;
        assert_true(n < 50);
        mem_fail_at(n);
        status = engine_session_create(c, N_CTX, &s, &err);
        mem_fail_at(0);
        if (status == PI_OK) engine_session_destroy(s);
    }
    ok(status);
    engine_context_destroy(c);
    model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),   cmocka_unit_test(test_all_positions),
        cmocka_unit_test(test_other_layers), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_pieces),       cmocka_unit_test(test_few_only),
        cmocka_unit_test(test_sessions),     cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
