/* test_tune.c: tunes small models, and reads the settings back. Speeds are never compared: only
 * that the choice follows from them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu_features.h"
#include "cpu_topology.h"
#include "prepare_files.h"
#include "sparse_keys.h"
#include "tune.h"

#define IN_PATH   TEST_BINARY_DIR "/test_tune.in.gguf"
#define OUT_PATH  TEST_BINARY_DIR "/test_tune.out.gguf"
#define BACK_PATH TEST_BINARY_DIR "/test_tune.back.gguf"
#define TEXT_PATH TEST_BINARY_DIR "/test_tune.txt"

enum { MAX_TRIALS = 32 };

typedef struct notes {
    pi_tune_trial trials[MAX_TRIALS];
    int n;
    char said[512]; /* the last message */
    bool stops;
} notes;

static void keep_trial(void *user, const pi_tune_trial *t) {
    notes *n = user;
    if (n->n < MAX_TRIALS) n->trials[n->n++] = *t;
}

static void keep_message(void *user, const char *line) {
    snprintf(((notes *)user)->said, sizeof((notes *)user)->said, "%s", line);
}

static bool go_on(void *user, const char *stage, double fraction) {
    (void)stage;
    (void)fraction;
    return !((notes *)user)->stops;
}

static pi_tune_options options_of(notes *n, double max_loss) {
    pi_tune_options o = pi_tune_default_options();
    *n = (notes){.n = 0};
    o.calibration = TEXT_PATH;
    o.calibration_tokens = 1024;
    o.max_loss = max_loss;
    o.n_ctx = 64;
    o.trial = keep_trial;
    o.progress = go_on;
    o.message = keep_message;
    o.user = n;
    return o;
}

static pi_tune_result tune(const char *in, double max_loss, notes *n) {
    pi_tune_result r;
    pi_error err;
    pi_tune_options o = options_of(n, max_loss);
    if (pi_tune(in, OUT_PATH, &o, &r, &err) != PI_OK) fail_msg("%s", err.message);
    return r;
}

static const pi_tune_trial *find(const notes *n, bool prepared, const char *mode) {
    for (int i = 0; i < n->n; i++)
        if (n->trials[i].prepared == prepared && strcmp(n->trials[i].mode, mode) == 0)
            return &n->trials[i];
    return NULL;
}

/* Settings with other numbers of threads. */
static int n_thread_trials(void) {
    return (cpu_count_available() > cpu_count_physical()) + (cpu_count_physical() >= 4);
}

/* One setting is chosen, whose loss is allowed. */
static void check_choice(const notes *n, const pi_tune_result *r, double max_loss) {
    int n_chosen = 0;
    for (int i = 0; i < n->n; i++) {
        const pi_tune_trial *t = &n->trials[i];
        n_chosen += t->chosen;
        assert_true(t->reason[0] || (t->tps > 0 && t->rounds > 0 && t->bytes_per_token > 0));
        if (!t->reason[0]) assert_true(t->loss <= max_loss);
    }
    assert_int_equal(n_chosen, 1);
    assert_true(r->after.chosen && !r->before.prepared);
    assert_string_equal(r->before.mode, "auto");
    assert_string_equal(r->cpu, cpu_model_name());
}

/* A context with default options runs as the file says. */
static void check_context(const char *path, const pi_tune_trial *t) {
    pi_model *m;
    pi_context *c;
    pi_error err;
    if (pi_model_open(path, NULL, &m, &err) != PI_OK) fail_msg("%s", err.message);
    if (pi_context_create(m, NULL, &c, &err) != PI_OK) fail_msg("%s", err.message);
    if (strcmp(t->mode, "auto") != 0) assert_string_equal(pi_context_mode(c), t->mode);
    assert_int_equal(pi_context_threads(c), t->threads);
    assert_int_equal(pi_context_attn_blocks(c), t->attn_blocks);
    pi_context_destroy(c);
    pi_model_close(m);
}

/* Without allowed loss a ReLU model has exact modes only, before and after prepare. */
static void test_relu(void **state) {
    (void)state;
    notes n;
    tiny_model tiny = files_tiny("f16");
    tiny_write(&tiny, IN_PATH);
    pi_tune_result r = tune(IN_PATH, 0, &n);
    check_choice(&n, &r, 0);
    assert_non_null(find(&n, false, "dense"));
    assert_non_null(find(&n, false, "exact"));
    assert_non_null(find(&n, true, "exact"));
    assert_null(find(&n, true, "predict"));
    check_context(OUT_PATH, &r.after);
    /* Dense reads all weights, exact fewer. */
    assert_true(find(&n, true, "exact")->bytes_per_token <
                find(&n, false, "dense")->bytes_per_token);

    r = tune(IN_PATH, 10, &n);
    check_choice(&n, &r, 10);
    assert_non_null(find(&n, true, "predict"));
}

/* Prepares IN_PATH with a predictor whose loss is said to be 2%, into BACK_PATH. */
static void write_lossy(void) {
    pi_error err;
    gguf_writer *w;
    prepare_notes said;
    pi_prepare_options o = files_options(TEXT_PATH, &said);
    o.predictor = "sign";
    files_prepare(IN_PATH, OUT_PATH, &o);
    gguf_file *f = files_open(OUT_PATH);
    if (gguf_writer_create(BACK_PATH, &w, &err) != PI_OK) fail_msg("%s", err.message);
    for (uint64_t i = 0; i < gguf_n_values(f); i++) gguf_put_value(w, gguf_value_at(f, i));
    gguf_put_f32(w, SPARSE_KEY_CALIBRATION_LOSS, 0.02f);
    files_copy_tensors(f, w);
}

/* A prepared input is not prepared again. A loss above the limit is reported and not timed. */
static void test_prepared(void **state) {
    (void)state;
    notes n;
    tiny_model tiny = files_tiny("f16");
    tiny_write(&tiny, IN_PATH);
    write_lossy();
    pi_tune_result r = tune(BACK_PATH, 0.01, &n);
    check_choice(&n, &r, 0.01);
    assert_int_equal(n.n, 4 + n_thread_trials());
    assert_string_equal(find(&n, false, "predict")->reason, "its loss is too large");
    assert_true(find(&n, false, "predict")->tps == 0);
    r = tune(BACK_PATH, 0.03, &n);
    check_choice(&n, &r, 0.03);
    assert_true(find(&n, false, "predict")->tps > 0);
    assert_true(fabs(find(&n, false, "predict")->loss - 0.02) < 1e-6);
}

static void test_silu(void **state) {
    (void)state;
    notes n;
    tiny_model tiny = files_tiny("f32");
    tiny.activation = "silu";
    tiny_write(&tiny, IN_PATH);
    pi_tune_result r = tune(IN_PATH, 0, &n);
    check_choice(&n, &r, 0);
    assert_int_equal(n.n, 2 + n_thread_trials());
    assert_non_null(strstr(n.said, "not prepared: its activations are never zero"));
    check_context(OUT_PATH, &r.after);
    /* The output is the input with more keys. */
    gguf_file *in = files_open(IN_PATH), *out = files_open(OUT_PATH);
    assert_int_equal(gguf_n_tensors(in), gguf_n_tensors(out));
    for (uint64_t i = 0; i < gguf_n_tensors(in); i++) {
        const gguf_tensor *a = gguf_tensor_at(in, i), *b = gguf_tensor_at(out, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->n_bytes, b->n_bytes);
        assert_memory_equal(a->data, b->data, a->n_bytes);
    }
    gguf_close(in);
    gguf_close(out);
}

/* ---- the keys -------------------------------------------------------------------------------- */

/* Writes IN_PATH with settings for a machine into OUT_PATH. */
static void write_keys(const char *cpu, const char *mode, int threads, int blocks, double loss) {
    pi_error err;
    progress silent = {.fn = NULL};
    pi_tune_result r = {.before.tps = 1};
    tune_setting s = {
        .trial = {.mode = mode, .threads = threads, .attn_blocks = blocks, .loss = loss, .tps = 2}};
    snprintf(r.cpu, sizeof r.cpu, "%s", cpu);
    if (tune_write(IN_PATH, OUT_PATH, &s, &r, 4096, &silent, &err) != PI_OK)
        fail_msg("%s", err.message);
}

typedef struct applied {
    char mode[16];
    int threads, blocks;
    double loss;
} applied;

static applied apply(const pi_context_options *options) {
    applied a;
    pi_model *m;
    pi_context *c;
    pi_error err;
    if (pi_model_open(OUT_PATH, NULL, &m, &err) != PI_OK) fail_msg("%s", err.message);
    if (pi_context_create(m, options, &c, &err) != PI_OK) fail_msg("%s", err.message);
    snprintf(a.mode, sizeof a.mode, "%s", pi_context_mode(c));
    a.threads = pi_context_threads(c);
    a.blocks = pi_context_attn_blocks(c);
    a.loss = pi_context_loss(c);
    pi_context_destroy(c);
    pi_model_close(m);
    return a;
}

static void test_keys(void **state) {
    (void)state;
    pi_context_options o = pi_context_default_options(), more = o, longer = o, own = o;
    tiny_model tiny = files_tiny("f16");
    tiny_write(&tiny, IN_PATH);
    o.n_ctx = 64;
    more.n_ctx = 64;
    more.max_loss = 0.05f;
    longer.n_ctx = 8192;
    longer.max_loss = 0.05f;
    own.n_ctx = 64;
    own.mode = PI_MODE_EXACT;
    own.n_threads = cpu_count_available() > 1 ? 2 : 1;
    own.attn_blocks = 0;

    write_keys(cpu_model_name(), "dense", 1, 8, 0.02);
    assert_int_equal(apply(&o).threads, 1);
    assert_string_equal(apply(&o).mode, "exact"); /* 2% is more than the default of 1% */
    assert_true(apply(&o).loss == 0);
    assert_string_equal(apply(&more).mode, "dense");
    assert_true(fabs(apply(&more).loss - 0.02) < 1e-6);
    assert_string_equal(apply(&longer).mode, "dense"); /* a longer context than the tuned one */
    assert_true(apply(&longer).loss == 0);
    assert_string_equal(apply(&own).mode, "exact"); /* options that are given win */
    assert_int_equal(apply(&own).threads, own.n_threads);
    assert_true(apply(&own).loss == 0);
    own.attn_blocks = PI_ATTN_BLOCKS_AUTO; /* blocks belong to the tuned mode */
    assert_int_equal(apply(&own).blocks, 0);
    assert_int_equal(apply(&more).blocks, 8);
    assert_int_equal(apply(&o).blocks, 0);
    more.deterministic = true;
    assert_int_equal(apply(&more).blocks, 0);
    more.deterministic = false;

    write_keys("another machine", "dense", 1, 0, 0);
    assert_string_equal(apply(&more).mode, "exact");
    assert_int_equal(apply(&more).threads, cpu_count_physical());

    /* Modes that the model cannot run in, or that this version does not know. */
    write_keys(cpu_model_name(), "predict", 1, 0, 0);
    assert_string_equal(apply(&o).mode, "exact");
    write_keys(cpu_model_name(), "magic", 0, 0, 0);
    assert_string_equal(apply(&o).mode, "exact");
    assert_int_equal(apply(&o).threads, cpu_count_physical());
    /* More threads than this process may use: of a larger machine, or outside a container. */
    write_keys(cpu_model_name(), "dense", cpu_count_available() + 1, 0, 0);
    assert_int_equal(apply(&o).threads, cpu_count_physical());
}

/* Other weights have another speed. */
static void test_dropped(void **state) {
    (void)state;
    pi_error err;
    pi_quantize_options q = pi_quantize_default_options();
    tiny_model tiny = files_tiny("f16");
    tiny_write(&tiny, IN_PATH);
    write_keys(cpu_model_name(), "dense", 1, 0, 0);
    q.type = "Q8_0";
    if (pi_quantize(OUT_PATH, BACK_PATH, &q, NULL, &err) != PI_OK) fail_msg("%s", err.message);
    gguf_file *f = files_open(BACK_PATH);
    assert_null(gguf_find(f, TUNE_KEY_CPU));
    gguf_close(f);
    q.type = "COPY";
    if (pi_quantize(OUT_PATH, BACK_PATH, &q, NULL, &err) != PI_OK) fail_msg("%s", err.message);
    f = files_open(BACK_PATH);
    assert_non_null(gguf_find(f, TUNE_KEY_CPU));
    gguf_close(f);
    prepare_notes said;
    pi_prepare_options p = files_options(TEXT_PATH, &said);
    p.predictor = "none";
    files_prepare(OUT_PATH, BACK_PATH, &p);
    f = files_open(BACK_PATH);
    assert_null(gguf_find(f, TUNE_KEY_CPU));
    gguf_close(f);
}

/* Writes IN_PATH again with one key of another type. */
static void write_bad(const char *key, bool text) {
    pi_error err;
    gguf_writer *w;
    gguf_file *f = files_open(IN_PATH);
    if (gguf_writer_create(OUT_PATH, &w, &err) != PI_OK) fail_msg("%s", err.message);
    for (uint64_t i = 0; i < gguf_n_values(f); i++) gguf_put_value(w, gguf_value_at(f, i));
    gguf_put_string(w, TUNE_KEY_CPU, cpu_model_name());
    gguf_put_u32(w, TUNE_KEY_CPUS, (uint32_t)cpu_count_available());
    gguf_put_string(w, TUNE_KEY_MODE, "dense");
    if (text)
        gguf_put_string(w, key, "three");
    else
        gguf_put_i32(w, key, -3);
    files_copy_tensors(f, w);
}

static void test_bad_keys(void **state) {
    (void)state;
    static const struct {
        const char *key;
        bool text;
    } bad[] = {{TUNE_KEY_CPU, false},     {TUNE_KEY_MODE, false},        {TUNE_KEY_THREADS, true},
               {TUNE_KEY_THREADS, false}, {TUNE_KEY_ATTN_BLOCKS, false}, {TUNE_KEY_N_CTX, true},
               {TUNE_KEY_LOSS, true}};
    tiny_model tiny = files_tiny("f16");
    tiny_write(&tiny, IN_PATH);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        pi_model *m;
        pi_error err;
        write_bad(bad[i].key, bad[i].text);
        assert_int_equal(pi_model_open(OUT_PATH, NULL, &m, &err), PI_ERR_FORMAT);
        assert_non_null(strstr(err.message, bad[i].key));
        assert_non_null(strstr(err.message, "tune the model again"));
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void test_refusals(void **state) {
    (void)state;
    notes n;
    pi_error err;
    tiny_model tiny = files_tiny("f16");
    tiny_write(&tiny, IN_PATH);
    unlink(OUT_PATH);
    pi_tune_options o = options_of(&n, 0);
    assert_int_equal(pi_tune(IN_PATH, IN_PATH, &o, NULL, &err), PI_ERR_ARG);
    assert_non_null(strstr(err.message, "output is the input"));
    o.calibration = "/dev/null";
    assert_int_equal(pi_tune(IN_PATH, OUT_PATH, &o, NULL, &err), PI_ERR_ARG);
    assert_non_null(strstr(err.message, "tune needs a file"));
    o.calibration = TEXT_PATH;
    n.stops = true;
    assert_int_equal(pi_tune(IN_PATH, OUT_PATH, &o, NULL, &err), PI_ERR_CANCELLED);
    n.stops = false;
    o.n_ctx = 8;
    assert_int_equal(pi_tune(IN_PATH, OUT_PATH, &o, NULL, &err), PI_ERR_ARG);
    o.n_ctx = 100000;
    assert_int_equal(pi_tune(IN_PATH, OUT_PATH, &o, NULL, &err), PI_ERR_LIMIT);
    assert_non_null(strstr(err.message, "calibration text is too short"));
    o = options_of(&n, -1);
    assert_int_equal(pi_tune(IN_PATH, OUT_PATH, &o, NULL, &err), PI_ERR_ARG);
    assert_int_equal(files_count("test_tune.out"), 0);
}

static int set_up(void **state) {
    (void)state;
    files_write_text(TEXT_PATH, 4000);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unlink(IN_PATH);
    unlink(OUT_PATH);
    unlink(BACK_PATH);
    unlink(TEXT_PATH);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relu),     cmocka_unit_test(test_prepared),
        cmocka_unit_test(test_silu),     cmocka_unit_test(test_keys),
        cmocka_unit_test(test_dropped),  cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("tune", tests, set_up, tear_down);
}
