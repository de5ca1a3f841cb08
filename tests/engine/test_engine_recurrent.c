/* test_engine_recurrent.c: models with recurrent layers: the logits depend only on the tokens, for
 * every way of feeding them, with other sessions in one step, and after going back to a snapshot,
 * copying, saving and loading. The kernels' tests and the recorded logits of the conformance data
 * check the formulas themselves; this test checks those of Mamba-2. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gguf_writer.h"
#include "mem.h"
#include "recurrent_model.h"
#include "recurrent_state.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_recurrent.gguf"
#define OLDER_PATH TEST_BINARY_DIR "/test_engine_recurrent_older.gguf"
#define SAVED_PATH TEST_BINARY_DIR "/test_engine_recurrent.session"

enum { N_TOKENS = 40, V = RECURRENT_VOCAB };

static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * V], got[N_TOKENS * V];
static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

static void refused(pi_status status, pi_status wanted, const char *text) {
    assert_int_equal(status, wanted);
    run_check_message(&err, status);
    if (!strstr(err.message, text)) fail_msg("no '%s' in: %s", text, err.message);
}

/* Logits of tokens [first, end) in `got` equal those of a pass over the whole text. */
static void check(const char *what, int first, int end) {
    double nmse = run_nmse(got, want + first * V, (int64_t)(end - first) * V);
    if (!(nmse <= 1e-10)) fail_msg("%s: NMSE %g", what, nmse);
}

/* The model; `want` receives the logits of all tokens fed at once to a separate session. */
static run_model open_arch(const char *arch, const pi_context_options *options) {
    recurrent_write(arch, NULL, MODEL_PATH);
    run_random_tokens(5, V, tokens, N_TOKENS);
    run_model r = run_open(MODEL_PATH, options);
    run_tokens(&r, tokens, N_TOKENS, 0, want);
    for (int i = 0; i < N_TOKENS * V; i++) assert_true(isfinite(want[i]));
    return r;
}

static void feed(const run_model *r, pi_session *s, int first, int end, int piece) {
    run_feed(r, s, tokens + first, end - first, piece, got);
}

/* ---- ways of feeding ------------------------------------------------------------------------- */

static void test_pieces(void **state) {
    (void)state;
    static const int pieces[] = {1, 2, 5, 17};
    pi_context_options o = run_exact_options();
    for (int a = 0; a < RECURRENT_ARCHS; a++) {
        run_model r = open_arch(recurrent_archs[a], &o);
        for (int i = 0; i < 4; i++) {
            run_tokens(&r, tokens, N_TOKENS, pieces[i], got);
            check(recurrent_archs[a], 0, N_TOKENS);
        }
        run_close(&r);
        o.n_batch = 7; /* several ubatches in a call */
        r = run_open(MODEL_PATH, &o);
        pi_session *s = run_session(&r, N_TOKENS);
        for (int done = 0; done < N_TOKENS; done += 20) {
            pi_input in = {
                .session = s, .tokens = tokens + done, .n_tokens = 20, .logits = PI_LOGITS_LAST};
            ok(pi_forward(r.context, &in, 1, &err));
            memcpy(got, pi_logits(r.context, 0), V * sizeof *got);
            check("ubatches", done + 19, done + 20);
        }
        assert_int_equal(pi_session_rewind_point(s, 39), 39);
        assert_int_equal(pi_session_rewind_point(s, 38), 20); /* before the last call */
        o.n_batch = 64;
        pi_session_destroy(s);
        run_close(&r);
    }
}

/* The CPU's own kernels and several threads. */
static void test_threads(void **state) {
    (void)state;
    pi_context_options exact = run_exact_options(), o = exact;
    o.kernels = PI_KERNELS_AUTO;
    o.n_threads = 3;
    for (int a = 0; a < RECURRENT_ARCHS; a++) {
        run_model r = open_arch(recurrent_archs[a], &exact);
        run_close(&r);
        r = run_open(MODEL_PATH, &o);
        for (int piece = 0; piece < 8; piece += 3) {
            run_tokens(&r, tokens, N_TOKENS, piece, got);
            check(recurrent_archs[a], 0, N_TOKENS);
        }
        run_close(&r);
    }
}

/* Two sessions in one step, one behind the other. */
static void test_sessions(void **state) {
    (void)state;
    enum { BEHIND = 6, STEP = 3 };
    pi_context_options o = run_exact_options();
    for (int a = 0; a < RECURRENT_ARCHS; a++) {
        run_model r = open_arch(recurrent_archs[a], &o);
        pi_session *s[2] = {run_session(&r, N_TOKENS), run_session(&r, N_TOKENS)};
        feed(&r, s[1], 0, BEHIND, 0);
        for (int at = 0; at + BEHIND + STEP <= N_TOKENS; at += STEP) {
            pi_input in[2] = {
                {.session = s[0], .tokens = tokens + at, .n_tokens = STEP, .logits = PI_LOGITS_ALL},
                {.session = s[1],
                 .tokens = tokens + at + BEHIND,
                 .n_tokens = STEP,
                 .logits = PI_LOGITS_ALL}};
            ok(pi_forward(r.context, in, 2, &err));
            for (int k = 0; k < 2; k++) {
                for (int i = 0; i < STEP; i++)
                    memcpy(got + i * V, pi_logits(r.context, k * STEP + i), V * sizeof *got);
                check(recurrent_archs[a], at + k * BEHIND, at + k * BEHIND + STEP);
            }
        }
        pi_session_destroy(s[0]);
        pi_session_destroy(s[1]);
        run_close(&r);
    }
}

/* ---- going back ------------------------------------------------------------------------------ */

static void go_back(const run_model *r, pi_session *s, int length, int point) {
    assert_int_equal(pi_session_rewind_point(s, length), point);
    if (point != length) {
        int before = pi_session_length(s);
        refused(pi_session_rewind(s, length, &err), PI_ERR_UNSUPPORTED, "the nearest one before");
        assert_int_equal(pi_session_length(s), before);
    }
    ok(pi_session_rewind(s, point, &err));
    assert_int_equal(pi_session_length(s), point);
    feed(r, s, point, N_TOKENS, 0);
    check("after going back", point, N_TOKENS);
}

static void test_rewind(void **state) {
    (void)state;
    pi_context_options o = run_exact_options();
    for (int a = 0; a < RECURRENT_ARCHS; a++) {
        run_model r = open_arch(recurrent_archs[a], &o);
        pi_session *s = run_session(&r, N_TOKENS);
        feed(&r, s, 0, 12, 0);
        feed(&r, s, 12, 30, 0);
        feed(&r, s, 30, N_TOKENS, 1);
        assert_int_equal(pi_session_rewind_point(s, N_TOKENS), N_TOKENS);
        go_back(&r, s, N_TOKENS - 1, N_TOKENS - 1); /* one token back */
        go_back(&r, s, 35, 29);                     /* before the last token of the second piece */
        go_back(&r, s, 28, 11);
        go_back(&r, s, 5, 0);
        assert_int_equal(pi_session_rewind_point(s, N_TOKENS + 5), N_TOKENS);
        assert_int_equal(pi_session_rewind_point(s, -3), 0);
        pi_session_destroy(s);
        run_close(&r);
    }
}

/* Drafted tokens have rows of logits like the token before them, and can be taken back. */
static void test_drafts(void **state) {
    (void)state;
    enum { FED = 10, STEP = 12 };
    static const int drafts[] = {1, 4, STEP - 1};
    for (int a = 0; a < RECURRENT_ARCHS; a++) {
        pi_context_options o = run_exact_options();
        o.n_logits = N_TOKENS;
        for (o.n_batch = 4; o.n_batch <= 64; o.n_batch += 60) {
            run_model r = open_arch(recurrent_archs[a], &o);
            pi_session *s = run_session(&r, N_TOKENS);
            for (int i = 0; i < 3; i++) {
                ok(pi_session_rewind(s, 0, &err));
                feed(&r, s, 0, FED, 0);
                pi_input in = {.session = s,
                               .tokens = tokens + FED,
                               .n_tokens = STEP,
                               .logits = PI_LOGITS_LAST,
                               .n_drafts = drafts[i]};
                ok(pi_forward(r.context, &in, 1, &err));
                assert_int_equal(pi_logits_rows(r.context), 1 + drafts[i]);
                memcpy(got, pi_logits(r.context, 0), (size_t)(1 + drafts[i]) * V * sizeof *got);
                check("drafts", FED + STEP - 1 - drafts[i], FED + STEP);
                go_back(&r, s, FED + STEP - 1, FED + STEP - drafts[i]);
            }
            pi_input in = {.session = s, .tokens = tokens, .n_tokens = 2, .n_drafts = 2};
            ok(pi_session_rewind(s, 0, &err));
            refused(pi_forward(r.context, &in, 1, &err), PI_ERR_ARG, "2 of 2 tokens");
            in.n_drafts = -1;
            refused(pi_forward(r.context, &in, 1, &err), PI_ERR_ARG, "bad number of drafts");
            pi_session_destroy(s);
            run_close(&r);
        }
    }
}

/* A cancelled call, or one with a token that does not exist, changes nothing. */
static void test_failed_call(void **state) {
    (void)state;
    pi_context_options o = run_exact_options();
    run_model r = open_arch("qwen3next", &o);
    pi_session *s = run_session(&r, N_TOKENS);
    feed(&r, s, 0, 10, 0);
    for (int i = 0; i < 3; i++) {
        pi_input in = {.session = s, .tokens = tokens + 20, .n_tokens = 5};
        pi_context_cancel(r.context);
        assert_int_equal(pi_forward(r.context, &in, 1, &err), PI_ERR_CANCELLED);
        assert_int_equal(pi_session_length(s), 10);
    }
    feed(&r, s, 10, N_TOKENS, 4);
    check("after cancelled calls", 10, N_TOKENS);
    pi_session_destroy(s);
    run_close(&r);
}

/* Long texts keep snapshots that are spread over them, and the latest one. */
static void test_slots(void **state) {
    (void)state;
    enum { PROMPTS = 9, PIECE = 100, GENERATED = 2000 };
    recurrent_state s;
    int64_t length = 0;
    ok(recurrent_create(&s, 1, &err));
    for (int i = 0; i < PROMPTS; i++) {
        recurrent_begin(&s, PIECE, 0);
        recurrent_end(&s, length += PIECE);
        assert_int_equal(recurrent_point(&s, length), length);
        assert_int_equal(recurrent_point(&s, length - 1), length - 1);
    }
    assert_true(recurrent_point(&s, length / 2) > 0); /* not only the latest snapshots */
    enum { DRAFTED = 5 };
    for (int i = 0; i < GENERATED; i++) { /* drafts leave no snapshots */
        recurrent_begin(&s, 1 + DRAFTED, DRAFTED);
        recurrent_end(&s, length + 1 + DRAFTED);
        assert_int_equal(recurrent_point(&s, length + DRAFTED), length + 1);
        recurrent_rewind(&s, length);
        recurrent_begin(&s, 1, 0);
        *recurrent_floats(&s, s.next) = (float)(length + 1);
        recurrent_end(&s, ++length);
        assert_int_equal(recurrent_point(&s, length - 1), length - 1);
    }
    int64_t point = recurrent_point(&s, length - 2);
    assert_in_range(point, length - 2 * RECURRENT_INTERVAL, length - 2);
    assert_true(*recurrent_at(&s, point) == (float)point);
    assert_true(recurrent_point(&s, length / 2) > 0);
    recurrent_rewind(&s, point);
    assert_int_equal(recurrent_point(&s, length), point);
    assert_null(recurrent_at(&s, 0));
    recurrent_free(&s);
}

/* ---- copies and files ------------------------------------------------------------------------ */

static void test_copy(void **state) {
    (void)state;
    pi_context_options o = run_exact_options();
    for (int a = 0; a < RECURRENT_ARCHS; a++) {
        run_model r = open_arch(recurrent_archs[a], &o);
        pi_session *from = run_session(&r, N_TOKENS), *to = run_session(&r, N_TOKENS);
        feed(&r, from, 0, 20, 0);
        feed(&r, to, 3, 9, 2); /* something else */
        for (int length = 19; length <= 20; length++) {
            ok(pi_session_copy(to, from, length, &err));
            feed(&r, to, length, N_TOKENS, 0);
            check("copy", length, N_TOKENS);
        }
        refused(pi_session_copy(to, from, 15, &err), PI_ERR_UNSUPPORTED, "before is at 0");
        assert_int_equal(pi_session_length(to), N_TOKENS);
        ok(pi_session_copy(from, from, 19, &err));
        feed(&r, from, 19, N_TOKENS, 0);
        check("copy onto itself", 19, N_TOKENS);
        refused(pi_session_remove(from, 2, 5, &err), PI_ERR_UNSUPPORTED, "cannot remove tokens");
        refused(pi_session_remove(from, 2, -1, &err), PI_ERR_UNSUPPORTED, "rewind to 0");
        ok(pi_session_remove(from, N_TOKENS - 1, -1, &err));
        feed(&r, from, N_TOKENS - 1, N_TOKENS, 0);
        check("removed to the end", N_TOKENS - 1, N_TOKENS);
        pi_session_destroy(from);
        pi_session_destroy(to);
        run_close(&r);
    }
}

static void test_files(void **state) {
    (void)state;
    int32_t loaded[N_TOKENS], n;
    pi_context_options o = run_exact_options();
    for (int a = 0; a < RECURRENT_ARCHS; a++) {
        run_model r = open_arch(recurrent_archs[a], &o);
        pi_session *s = run_session(&r, N_TOKENS), *other = run_session(&r, N_TOKENS);
        feed(&r, s, 0, 21, 0);
        refused(pi_session_save(s, SAVED_PATH, tokens, 12, &err), PI_ERR_UNSUPPORTED,
                "before is at 0");
        for (int length = 20; length <= 21; length++) {
            ok(pi_session_save(s, SAVED_PATH, tokens, length, &err));
            ok(pi_session_load(other, SAVED_PATH, loaded, N_TOKENS, &n, &err));
            assert_int_equal(n, length);
            assert_memory_equal(loaded, tokens, (size_t)length * sizeof *tokens);
            feed(&r, other, length, N_TOKENS, 0);
            check("loaded", length, N_TOKENS);
        }
        refused(pi_session_load(other, SAVED_PATH, loaded, 20, &n, &err), PI_ERR_LIMIT,
                "use a larger context");
        assert_int_equal(pi_session_length(other), N_TOKENS); /* unchanged */
        size_t n_bytes;
        assert_int_equal(pi_session_get_state(s, tokens, 21, NULL, 0, &n_bytes, &err),
                         PI_ERR_LIMIT);
        uint8_t *bytes = mem_alloc(n_bytes);
        assert_non_null(bytes);
        ok(pi_session_get_state(s, tokens, 21, bytes, n_bytes, &n_bytes, &err));
        ok(pi_session_set_state(other, bytes, n_bytes, loaded, N_TOKENS, &n, &err));
        feed(&r, other, 21, N_TOKENS, 0);
        check("from memory", 21, N_TOKENS);
        bytes[n_bytes - 1] ^= 1;
        refused(pi_session_set_state(other, bytes, n_bytes, loaded, N_TOKENS, &n, &err),
                PI_ERR_FORMAT, "damaged");
        refused(pi_session_set_state(other, bytes, n_bytes - 4, loaded, N_TOKENS, &n, &err),
                PI_ERR_FORMAT, "wrong length");
        mem_free(bytes);
        pi_session_destroy(s);
        pi_session_destroy(other);
        run_close(&r);
    }
}

/* ---- bad files, no memory -------------------------------------------------------------------- */

static void test_bad_keys(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        recurrent_keys keys;
        const char *text;
    } bad[] = {
        {"lfm2", {.taps = 1}, "lfm2.shortconv.l_cache is 1, not in 2..64"},
        {"lfm2",
         {.taps = 5},
         "blk.0.shortconv.conv.weight is [3, 32], the hyperparameters need [5"},
        {"lfm2", {.kv_heads = 3}, "attention.head_count_kv is 3 in layer 1"},
        {"mamba2", {.taps = 65}, "mamba2.ssm.conv_kernel is 65, not in 2..64"},
        {"mamba2", {.heads = 5}, "ssm.time_step_rank does not divide ssm.inner_size"},
        {"mamba2", {.groups = 3}, "ssm.group_count does not divide ssm.time_step_rank"},
        {"mamba2", {.state = 16}, "blk.0.ssm_in.weight is [32, 100], the hyperparameters need"},
        {"mamba2", {.inner = 64}, "blk.0.ssm_in.weight is [32, 100], the hyperparameters need"},
        {"qwen35", {.state = 1 << 20, .groups = 4, .heads = 4}, "the hyperparameters need"},
        {"qwen35",
         {.inner = 1 << 20, .state = 1 << 20, .groups = 1 << 20, .heads = 1 << 20},
         "qwen35.ssm.state_size is too large"},
        {"mamba", {.taps = 1}, "mamba.ssm.conv_kernel is 1, not in 2..64"},
        {"plamo2", {.groups = 1}, "plamo2.ssm.group_count is 1, not in 0..0"},
        {"plamo2", {.heads = 5}, "ssm.time_step_rank does not divide ssm.inner_size"},
        {"qwen3next", {.groups = 1 << 21}, "ssm.group_count is 2097152, not in 1..1048576"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        pi_model *m;
        recurrent_write(bad[i].arch, &bad[i].keys, MODEL_PATH);
        refused(pi_model_open(MODEL_PATH, NULL, &m, &err), PI_ERR_FORMAT, bad[i].text);
        assert_null(m);
    }
}

/* ---- Qwen3-Next's older files ---------------------------------------------------------------- */

static bool ends(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

/* Two heads of keys of 8 elements, with two heads of values of 8 elements each: their query, key,
 * values and gates follow each other. */
static void write_heads(gguf_writer *w, const gguf_tensor *qkv, const gguf_tensor *gate) {
    const size_t row = (size_t)qkv->dims[0] * sizeof(float);
    assert_int_equal(qkv->dims[1], 2 * 8 + 2 * 8 + 4 * 8);
    assert_int_equal(gate->dims[1], 4 * 8);
    for (size_t head = 0; head < 2; head++) {
        ok(gguf_write_data(w, qkv->data + head * 8 * row, 8 * row, &err));
        ok(gguf_write_data(w, qkv->data + (16 + head * 8) * row, 8 * row, &err));
        ok(gguf_write_data(w, qkv->data + (32 + head * 16) * row, 16 * row, &err));
        ok(gguf_write_data(w, gate->data + head * 16 * row, 16 * row, &err));
    }
}

/* The file with ssm_in instead of attn_qkv and attn_gate. */
static void write_older(void) {
    gguf_file *g;
    gguf_writer *w;
    ok(gguf_open(MODEL_PATH, NULL, &g, &err));
    ok(gguf_writer_create(OLDER_PATH, &w, &err));
    for (uint64_t i = 0; i < gguf_n_values(g); i++) gguf_put_value(w, gguf_value_at(g, i));
    for (int data = 0; data < 2; data++) {
        for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
            const gguf_tensor *t = gguf_tensor_at(g, i), *gate = NULL;
            char name[64];
            uint64_t dims[2] = {t->dims[0], t->dims[1]};
            snprintf(name, sizeof name, "%s", t->name);
            if (ends(name, ".attn_gate.weight")) continue;
            if (ends(name, ".attn_qkv.weight")) {
                snprintf(strrchr(name, '.') - strlen("attn_qkv"), 20, "attn_gate.weight");
                gate = gguf_find_tensor(g, name);
                assert_non_null(gate);
                snprintf(strrchr(name, '.') - strlen("attn_gate"), 20, "ssm_in.weight");
                dims[1] += gate->dims[1];
            }
            if (!data)
                ok(gguf_add_tensor(w, name, t->type, t->n_dims, gate ? dims : t->dims, &err));
            else if (gate)
                write_heads(w, t, gate);
            else
                ok(gguf_write_data(w, t->data, t->n_bytes, &err));
        }
        if (!data) ok(gguf_writer_begin_data(w, &err));
    }
    ok(gguf_writer_finish(w, &err));
    gguf_close(g);
}

static void test_older_files(void **state) {
    (void)state;
    pi_context_options o = run_exact_options();
    run_model r = open_arch("qwen3next", &o);
    run_close(&r);
    write_older();
    r = run_open(OLDER_PATH, &o);
    run_tokens(&r, tokens, N_TOKENS, 0, got);
    assert_memory_equal(got, want, sizeof want);
    run_close(&r);
    for (int64_t n = 1;; n++) {
        pi_model *m;
        mem_fail_at(n);
        pi_status status = pi_model_open(OLDER_PATH, NULL, &m, &err);
        mem_fail_at(0);
        if (status == PI_OK) {
            pi_model_close(m);
            assert_true(n > 10);
            break;
        }
        refused(status, PI_ERR_NOMEM, "out of memory");
    }
}

static void test_no_memory(void **state) {
    (void)state;
    pi_context_options o = run_exact_options();
    run_model r = open_arch("falcon-h1", &o);
    int failures = 0;
    for (int64_t n = 1;; n++, failures++) {
        pi_session *s;
        mem_fail_at(n);
        pi_status status = pi_session_create(r.context, N_TOKENS, &s, &err);
        mem_fail_at(0);
        if (status == PI_OK) {
            pi_session_destroy(s);
            break;
        }
        refused(status, PI_ERR_NOMEM, "out of memory");
        assert_null(s);
    }
    assert_in_range(failures, 4, 20); /* session, offsets, cache, state */
    run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),    cmocka_unit_test(test_threads),
        cmocka_unit_test(test_sessions),  cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_drafts),    cmocka_unit_test(test_failed_call),
        cmocka_unit_test(test_slots),     cmocka_unit_test(test_copy),
        cmocka_unit_test(test_files),     cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_older_files),
    };
    return cmocka_run_group_tests_name("engine_recurrent", tests, NULL, NULL);
}
