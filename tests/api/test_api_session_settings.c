/* test_api_session_settings.c: a model accepts a saved session only if it computes the same
 * function. With every key in hparams.c overridden in turn, and in every mode of sparse FFNs,
 * loading is refused, or the session continues like one that was fed all tokens. */
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "file.h"
#include "mem.h"
#include "powerinfer_metadata.h"
#include "powerinfer_session.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_api_session_settings.gguf"
#define MODELS     TEST_SOURCE_DIR "/tests/golden/reference/more/"

enum { N = 9, MAX_VOCAB = 320, MAX_KEYS = 256, KEY_BYTES = 64, STATE_BYTES = 1 << 20 };

static pi_error err;
static int32_t ids[N];
static uint8_t saved[STATE_BYTES];
static size_t n_saved;

/* Finds the keys in hparams.c: strings of lower-case letters with a dot or an underscore. Some
 * strings are not keys. */
static char keys[MAX_KEYS][KEY_BYTES];
static int n_keys;

static int read_keys(void **state) {
    (void)state;
    char *text;
    size_t n;
    if (file_read(TEST_SOURCE_DIR "/src/model/hparams.c", 1 << 20, &text, &n, &err)) return -1;
    for (char *p = text; (p = strchr(p, '"')); p++) {
        char *end = strchr(++p, '"');
        if (!end) break;
        bool named = end - p > 4 && end - p < KEY_BYTES - 2;
        for (char *c = p; c < end; c++)
            named &= islower(*c) || isdigit(*c) || *c == '_' || *c == '.';
        if (named && n_keys < MAX_KEYS)
            snprintf(keys[n_keys++], KEY_BYTES, "*.%.*s", (int)(end - p), p);
        p = end;
    }
    mem_free(text);
    return n_keys > 60 ? 0 : -1;
}

static pi_model *open_model(const char *path, const pi_metadata_override *override) {
    pi_model_options o = pi_model_default_options();
    pi_model *m = NULL;
    o.overrides = override;
    o.n_overrides = override ? 1 : 0;
    return pi_model_open(path, &o, &m, &err) == PI_OK ? m : NULL;
}

static run_model run_of(pi_model *m, const pi_context_options *o) {
    run_model r = {.model = m};
    pi_model_info info;
    pi_model_get_info(m, &info);
    r.n_vocab = info.n_vocab;
    assert_in_range(r.n_vocab, 1, MAX_VOCAB);
    if (pi_context_create(m, o, &r.context, &err)) fail_msg("%s", err.message);
    return r;
}

static void save_in(run_model *r, int n_ctx) {
    float logits[N * MAX_VOCAB];
    pi_session *s = run_session(r, n_ctx);
    run_feed(r, s, ids, N - 1, 0, logits);
    if (pi_session_get_state(s, ids, N - 1, saved, sizeof saved, &n_saved, &err))
        fail_msg("%s", err.message);
    pi_session_destroy(s);
}

/* True when the session is refused; an accepted session must continue like one that was fed all
 * tokens. */
static bool is_refused(run_model *r, int n_ctx, const char *what) {
    float want[N * MAX_VOCAB], got[MAX_VOCAB];
    int32_t tokens[N], n;
    pi_session *s = run_session(r, n_ctx);
    pi_status status = pi_session_set_state(s, saved, n_saved, tokens, N, &n, &err);
    if (status != PI_OK) {
        run_check_message(&err, status);
        assert_int_equal(status, PI_ERR_UNSUPPORTED);
        assert_true(strstr(err.message, "other settings") || strstr(err.message, "another model"));
    } else {
        run_tokens(r, ids, N, 0, want);
        run_feed(r, s, ids + N - 1, 1, 0, got);
        double nmse = run_nmse(got, want + (N - 1) * r->n_vocab, r->n_vocab);
        if (!(nmse < 1e-8)) fail_msg("%s: taken, NMSE %g", what, nmse);
    }
    pi_session_destroy(s);
    return status != PI_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static const pi_metadata_override values[] = {
    {.type = PI_VALUE_INT, .integer = 1},   {.type = PI_VALUE_INT, .integer = 3},
    {.type = PI_VALUE_FLOAT, .number = .5}, {.type = PI_VALUE_BOOL, .truth = 0},
    {.type = PI_VALUE_BOOL, .truth = 1},    {.type = PI_VALUE_TEXT, .text = "linear"},
};

static int refusals_of(const char *path, const char *key) {
    pi_context_options o = run_exact_options();
    int n = 0;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        pi_metadata_override value = values[i];
        value.key = key;
        pi_model *m = open_model(path, &value);
        if (!m) continue; /* another kind of value, or an invalid value */
        run_model r = run_of(m, &o);
        n += is_refused(&r, N, key);
        run_close(&r);
    }
    return n;
}

static void test_keys(void **state) {
    (void)state;
    static const char *const names[] = {"hy_v3-tiny", "minicpm3-tiny", "mellum-tiny"};
    static const char *const known[] = {"*.expert_used_count",
                                        "*.expert_weights_scale",
                                        "*.expert_weights_norm",
                                        "*.attention.sliding_window",
                                        "*.embedding_scale",
                                        "*.rope.freq_base_swa",
                                        "*.attention.scale",
                                        "*.residual_scale",
                                        "*.expert_group_count",
                                        "*.attn_logit_softcapping",
                                        "*.attention.temperature_scale"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        int n = 0;
        snprintf(path, sizeof path, MODELS "%s.gguf", names[i]);
        pi_context_options o = run_exact_options();
        run_model r = run_of(open_model(path, NULL), &o);
        run_random_tokens(3, r.n_vocab, ids, N);
        save_in(&r, N);
        assert_false(is_refused(&r, N, "as it was"));
        run_close(&r);
        for (int k = 0; k < n_keys; k++) n += refusals_of(path, keys[k]) > 0;
        print_message("%s: %d of %d keys refuse a session\n", names[i], n, n_keys);
        assert_true(n > n_keys / 2);
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        bool found = false;
        for (int k = 0; k < n_keys; k++) found |= strcmp(keys[k], known[i]) == 0;
        if (!found) fail_msg("%s was not tried", known[i]);
    }
}

/* ---- modes ----------------------------------------------------------------------------------- */

static void test_modes(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.activation = "relu";
    t.sparse = (tiny_sparse){.down_t = true, .predictor = "sign", .threshold = .5f, .cut = .1f};
    tiny_write(&t, MODEL_PATH);
    const struct {
        pi_mode mode;
        float threshold; /* NAN: the model's */
    } cases[] = {{PI_MODE_DENSE, NAN},
                 {PI_MODE_EXACT, NAN},
                 {PI_MODE_PREDICT, NAN},
                 {PI_MODE_PREDICT, 2},
                 {PI_MODE_THRESHOLD, NAN}};
    enum { N_CASES = sizeof cases / sizeof *cases };
    int n_refused = 0;
    for (int i = 0; i < N_CASES * N_CASES; i++) {
        pi_context_options from = run_exact_options(), to = from;
        from.mode = cases[i / N_CASES].mode;
        from.threshold = cases[i / N_CASES].threshold;
        to.mode = cases[i % N_CASES].mode;
        to.threshold = cases[i % N_CASES].threshold;
        run_model a = run_of(open_model(MODEL_PATH, NULL), &from);
        run_random_tokens(4, a.n_vocab, ids, N);
        save_in(&a, N);
        run_model b = run_of(open_model(MODEL_PATH, NULL), &to);
        n_refused += is_refused(&b, N, "mode");
        run_close(&b);
        run_close(&a);
    }
    /* Dense and exact mode compute equal results; every other mode differs from all others. */
    assert_int_equal(n_refused, N_CASES * N_CASES - N_CASES - 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_modes)};
    return cmocka_run_group_tests(tests, read_keys, NULL);
}
