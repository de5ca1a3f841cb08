/* test_quantize.c: quantized files equal row-by-row quantization, for any number of threads and
 * length of rows; keys are copied; the logits of models stay close. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "mem.h"
#include "quantize_files.h"
#include "run_model.h"
#include "shared_data.h"

#define IN_PATH      TEST_BINARY_DIR "/test_quantize.in.gguf"
#define OUT_PATH     TEST_BINARY_DIR "/test_quantize.out.gguf"
#define OTHER_PATH   TEST_BINARY_DIR "/test_quantize.other.gguf"
#define IMATRIX_PATH TEST_BINARY_DIR "/test_quantize.imatrix.gguf"
#define BUNDLED_PATH TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf"

static void quantize(const char *in, const char *out, const pi_quantize_options *o) {
    pi_error err = {0};
    if (pi_quantize(in, out, o, NULL, &err) != PI_OK) fail_msg("%s", err.message);
}

static pi_quantize_options options(const char *type) {
    pi_quantize_options o = pi_quantize_default_options();
    o.type = type;
    o.n_threads = 2;
    return o;
}

/* Messages, one per line. */
static char said[2048];

static void hear(void *user, const char *line) {
    (void)user;
    size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s\n", line);
}

static void quantize_and_hear(const char *in, const char *out, pi_quantize_options o) {
    said[0] = 0;
    o.message = hear;
    quantize(in, out, &o);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Rows longer than a piece, several chunks, stacks of experts, short rows, other source types. */
static const made_tensor odd_tensors[] = {
    {"blk.0.ffn_up.weight", QUANT_F16, 2, {256, 70, 1, 1}},
    {"blk.0.ffn_long.weight", QUANT_F32, 2, {16384 * 2 + 768, 3, 1, 1}},
    {"blk.0.ffn_up_exps.weight", QUANT_BF16, 3, {512, 5, 3, 1}},
    {"blk.0.ffn_norm.weight", QUANT_F32, 1, {256, 1, 1, 1}},
    {"blk.0.attn_q.weight", QUANT_F16, 2, {96, 9, 1, 1}},
    {"blk.0.attn_q.scale", QUANT_F32, 1, {1, 1, 1, 1}},
    {"gpu.map", QUANT_I32, 1, {77, 1, 1, 1}},
    {"blk.1.ffn_up.weight", QUANT_Q8_0, 2, {256, 4, 1, 1}},
};
enum { N_ODD = sizeof odd_tensors / sizeof *odd_tensors };

static void put_odd_keys(gguf_writer *w) {
    static const float floats[3] = {1, 2, 3};
    static const gguf_string strings[2] = {{"a", 1}, {"b\0c", 3}};
    gguf_put_string(w, "general.architecture", "unheard-of");
    gguf_put_u32(w, "general.file_type", 1);
    gguf_put_array(w, "some.floats", GGUF_F32, floats, 3);
    gguf_put_strings(w, "some.strings", strings, 2);
    gguf_put_u32(w, "general.alignment", 64);
}

static void check_tensor(const gguf_tensor *from, const gguf_tensor *to, const float *importance) {
    uint64_t n = from->dims[0], n_rows = from->n_elems / n;
    assert_memory_equal(from->dims, to->dims, sizeof to->dims);
    if (from->type == to->type) {
        assert_memory_equal(from->data, to->data, to->n_bytes);
        return;
    }
    float *x = made_floats(from);
    size_t row_bytes = to->n_bytes / n_rows;
    uint8_t *row = mem_calloc(row_bytes, 1);
    assert_non_null(row);
    for (uint64_t r = 0; r < n_rows; r++) {
        const float *weights = importance ? importance + r / from->dims[1] * n : NULL;
        quant_find((uint32_t)to->type)->quantize(x + r * n, row, (int64_t)n, weights);
        if (memcmp(row, to->data + r * row_bytes, row_bytes) != 0)
            fail_msg("%s, row %d, %s", to->name, (int)r, quant_find((uint32_t)to->type)->name);
    }
    mem_free(row);
    mem_free(x);
}

static const char *const all_mixes[] = {
    "F32",    "F16",    "BF16",   "Q4_0",   "Q4_1",   "Q5_0",     "Q5_1",   "Q8_0",
    "Q2_K",   "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S",   "Q4_K_M", "Q5_K_S",
    "Q5_K_M", "Q6_K",   "IQ4_NL", "IQ4_XS", "MXFP4",  "MXFP4_MOE"};
enum { N_MIXES = sizeof all_mixes / sizeof *all_mixes };

static void test_rows(void **state) {
    (void)state;
    made_write(IN_PATH, odd_tensors, N_ODD, 3, put_odd_keys);
    for (int i = 0; i < N_MIXES; i++) {
        pi_quantize_options o = options(all_mixes[i]);
        o.allow_requantize = true;
        o.pure = i % 2;
        quantize(IN_PATH, OUT_PATH, &o);
        gguf_file *in = made_open(IN_PATH), *out = made_open(OUT_PATH);
        for (int k = 0; k < N_ODD; k++)
            check_tensor(made_find(in, odd_tensors[k].name), made_find(out, odd_tensors[k].name),
                         NULL);
        gguf_close(in);
        gguf_close(out);
        o.n_threads = 5;
        quantize(IN_PATH, OTHER_PATH, &o);
        assert_same_file(OUT_PATH, OTHER_PATH);
    }
}

static void test_importance(void **state) {
    (void)state;
    made_write(IN_PATH, odd_tensors, N_ODD, 4, put_odd_keys);
    static const char *const names[] = {"blk.0.ffn_up.weight", "blk.0.ffn_long.weight",
                                        "blk.0.ffn_up_exps.weight"};
    made_imatrix(IMATRIX_PATH, IN_PATH, names, 3);
    static const char *const mixes[] = {"Q4_0", "Q4_K_M", "Q3_K_S", "IQ4_XS", "MXFP4"};
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
        pi_quantize_options o = options(mixes[i]);
        o.pure = o.allow_requantize = true;
        o.imatrix = IMATRIX_PATH;
        quantize_and_hear(IN_PATH, OUT_PATH, o);
        assert_non_null(strstr(said, "importance matrix: 3 of 5 matrices, none for "
                                     "blk.0.attn_q.weight, blk.1.ffn_up.weight\n"));
        gguf_file *in = made_open(IN_PATH), *out = made_open(OUT_PATH);
        gguf_file *weights = made_open(IMATRIX_PATH);
        for (int k = 0; k < N_ODD; k++) {
            char name[2 * GGUF_MAX_NAME];
            snprintf(name, sizeof name, "%s.in_sum2", odd_tensors[k].name);
            const gguf_tensor *w = gguf_find_tensor(weights, name);
            check_tensor(made_find(in, odd_tensors[k].name), made_find(out, odd_tensors[k].name),
                         w ? (const float *)(const void *)w->data : NULL);
        }
        uint64_t entries = 0;
        const gguf_value *v = gguf_find(out, "quantize.imatrix.entries_count");
        assert_true(v && gguf_as_u64(v, &entries) && entries == 3);
        gguf_close(weights);
        gguf_close(in);
        gguf_close(out);
    }
}

static void test_keys(void **state) {
    (void)state;
    made_write(IN_PATH, odd_tensors, N_ODD, 5, put_odd_keys);
    pi_quantize_options o = options("Q6_K");
    o.allow_requantize = true;
    quantize(IN_PATH, OUT_PATH, &o);
    gguf_file *f = made_open(OUT_PATH);
    uint64_t n = 0;
    double item = 0;
    assert_true(gguf_as_u64(gguf_find(f, "general.file_type"), &n) && n == 18);
    assert_true(gguf_as_u64(gguf_find(f, "general.quantization_version"), &n) && n == 2);
    assert_int_equal(gguf_alignment(f), 64);
    assert_true(gguf_item_f64(gguf_find(f, "some.floats"), 2, &item) && item == 3);
    const gguf_value *strings = gguf_find(f, "some.strings");
    const uint8_t *cursor = strings->data;
    gguf_next_string(&cursor);
    assert_int_equal(gguf_next_string(&cursor).n_bytes, 3);
    gguf_close(f);
    o.type = "copy";
    quantize(IN_PATH, OUT_PATH, &o);
    assert_same_file(IN_PATH, OUT_PATH);
}

/* Changing the weights drops the losses that prepare measured on the old weights; its statistics
 * stay. */
static void test_losses(void **state) {
    (void)state;
    static const struct {
        const char *type;
        bool keeps;
    } cases[] = {{"F32", true}, {"COPY", true}, {"Q4_0", false}};
    static const char *const measured[] = {"powerinfer.calibration.loss",
                                           "powerinfer.predictor.recall"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pi_quantize_options o = options(cases[i].type);
        o.allow_requantize = true;
        quantize_and_hear(BUNDLED_PATH, OUT_PATH, o);
        gguf_file *f = made_open(OUT_PATH);
        for (int k = 0; k < 2; k++)
            assert_int_equal(gguf_find(f, measured[k]) != NULL, cases[i].keeps);
        assert_non_null(gguf_find(f, "powerinfer.predictor.density"));
        assert_non_null(gguf_find(f, "powerinfer.version"));
        assert_int_equal(strstr(said, "measured by prepare are dropped") == NULL, cases[i].keeps);
        gguf_close(f);
    }
    pi_model *model;
    pi_error err;
    if (pi_model_open(OUT_PATH, NULL, &model, &err) != PI_OK) fail_msg("%s", err.message);
    pi_model_close(model);
}

/* A new chat template replaces the existing templates; everything else stays. */
static void test_chat_template(void **state) {
    (void)state;
    static const char *const sources[] = {"{{ one }}", "{{ ü }}", ""};
    const char *in_path = BUNDLED_PATH;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        const char *path = i % 2 ? OTHER_PATH : OUT_PATH;
        pi_quantize_options o = options("COPY");
        o.chat_template = sources[i];
        o.n_chat_template = strlen(sources[i]);
        quantize(in_path, path, &o);
        gguf_file *in = made_open(in_path), *out = made_open(path);
        const gguf_value *v = gguf_find(out, "tokenizer.chat_template");
        gguf_string text = {.n_bytes = 0};
        assert_int_equal(v != NULL, *sources[i] != 0);
        assert_true(!v || gguf_as_string(v, &text));
        assert_int_equal(text.n_bytes, o.n_chat_template);
        assert_memory_equal(v ? text.data : "", sources[i], text.n_bytes);
        assert_int_equal(gguf_n_values(out), gguf_n_values(in) - (v ? 0 : 1));
        assert_int_equal(gguf_n_tensors(out), gguf_n_tensors(in));
        for (uint64_t k = 0; k < gguf_n_tensors(in); k++) {
            const gguf_tensor *a = gguf_tensor_at(in, k), *b = gguf_tensor_at(out, k);
            assert_string_equal(a->name, b->name);
            assert_int_equal(a->n_bytes, b->n_bytes);
            assert_memory_equal(a->data, b->data, a->n_bytes);
        }
        gguf_close(in);
        gguf_close(out);
        in_path = path;
    }
    pi_error err = {0};
    pi_quantize_options o = options("COPY");
    o.chat_template = "a\xff";
    o.n_chat_template = 2;
    assert_int_equal(pi_quantize(BUNDLED_PATH, OUT_PATH, &o, NULL, &err), PI_ERR_FORMAT);
    unlink(OTHER_PATH);
}

static void put_part_keys(gguf_writer *w, int no) {
    gguf_put_u32(w, "split.no", (uint32_t)no);
    gguf_put_u32(w, "split.count", 2);
    gguf_put_u32(w, "split.tensors.count", 2);
}
static void put_first_part(gguf_writer *w) {
    gguf_put_string(w, "general.architecture", "unheard-of");
    put_part_keys(w, 0);
}
static void put_second_part(gguf_writer *w) {
    put_part_keys(w, 1);
}

static void test_split(void **state) {
    (void)state;
    static const char *const parts[2] = {TEST_BINARY_DIR "/test_quantize-00001-of-00002.gguf",
                                         TEST_BINARY_DIR "/test_quantize-00002-of-00002.gguf"};
    made_write(parts[0], &odd_tensors[0], 1, 1, put_first_part);
    made_write(parts[1], &odd_tensors[1], 1, 1, put_second_part);
    pi_quantize_options o = options("Q8_0");
    quantize(parts[0], OUT_PATH, &o);
    gguf_file *in = made_open(parts[0]), *out = made_open(OUT_PATH);
    assert_int_equal(gguf_n_parts(out), 1);
    assert_null(gguf_find(out, "split.count"));
    assert_int_equal(gguf_n_tensors(out), 2);
    for (int k = 0; k < 2; k++)
        check_tensor(made_find(in, odd_tensors[k].name), made_find(out, odd_tensors[k].name), NULL);
    gguf_close(in);
    gguf_close(out);
    pi_error err = {0};
    assert_int_equal(pi_quantize(parts[0], parts[1], &o, NULL, &err), PI_ERR_ARG);
    unlink(parts[0]);
    unlink(parts[1]);
}

/* ---- reports --------------------------------------------------------------------------------- */

typedef struct seen {
    int n, n_changed;
    uint64_t bytes;
    const gguf_file *in, *out;
} seen;

static void see(void *user, const pi_quantize_tensor *t) {
    seen *s = user;
    const gguf_tensor *from = made_find(s->in, t->name);
    s->n++;
    s->bytes += t->bytes_out;
    s->n_changed += strcmp(t->from, t->to) != 0;
    assert_string_equal(t->from, quant_find((uint32_t)from->type)->name);
    if (!s->out) {
        if (strcmp(t->from, t->to) != 0) assert_true(t->relative_rmse < 0);
        return;
    }
    const gguf_tensor *to = made_find(s->out, t->name);
    assert_int_equal(to->n_bytes, t->bytes_out);
    if (from->type == to->type) {
        assert_true(t->relative_rmse == 0);
        return;
    }
    float *a = made_floats(from), *b = made_floats(to);
    double expected = sqrt(run_nmse(b, a, (int64_t)to->n_elems));
    assert_true(fabs((double)t->relative_rmse - expected) <= 1e-5 * expected + 1e-12);
    mem_free(a);
    mem_free(b);
}

static void test_reports(void **state) {
    (void)state;
    made_write(IN_PATH, odd_tensors, N_ODD, 6, put_odd_keys);
    pi_quantize_options o = options("Q4_K_M");
    o.allow_requantize = o.dry_run = true;
    unlink(OTHER_PATH);
    pi_quantize_result plan = {0}, done = {0};
    pi_error err = {0};
    seen s = {.in = made_open(IN_PATH)};
    o.tensor = see;
    o.user = &s;
    assert_int_equal(pi_quantize(IN_PATH, NULL, &o, &plan, &err), PI_OK);
    assert_false(made_exists(OTHER_PATH));
    assert_int_equal(s.n, N_ODD);
    assert_int_equal(s.bytes, plan.bytes_out);
    assert_int_equal(s.n_changed, plan.n_quantized);
    o.dry_run = false;
    o.tensor = NULL;
    quantize(IN_PATH, OTHER_PATH, &o);
    s = (seen){.in = s.in, .out = made_open(OTHER_PATH)};
    o.tensor = see;
    o.measure = true;
    assert_int_equal(pi_quantize(IN_PATH, OUT_PATH, &o, &done, &err), PI_OK);
    assert_same_file(OUT_PATH, OTHER_PATH);
    assert_memory_equal(&plan, &done, sizeof done);
    assert_int_equal(done.n_fallback, 1); /* rows of 96 */
    gguf_close((gguf_file *)(uintptr_t)s.in);
    gguf_close((gguf_file *)(uintptr_t)s.out);
}

/* ---- models ---------------------------------------------------------------------------------- */

#ifdef TEST_SAMPLED
enum { N_TOKENS = 12, EVERY = 4, EVERY_NOVELLA = 10 }; /* steps through the mixes below */
#else
enum { N_TOKENS = 48, EVERY = 1, EVERY_NOVELLA = 1 };
#endif

/* Largest error of the logits per mix: about twice the measured error of these models. */
static const struct {
    const char *mix;
    double tiny, novella; /* NMSE of the logits */
} bounds[] = {
    {"F16", 1e-06, 1e-06},    {"BF16", 5e-05, 1e-05},    {"Q8_0", 0.0004, 0.0001},
    {"Q6_K", 0.004, 0.0005},  {"Q5_K_M", 0.013, 0.0012}, {"Q5_K_S", 0.013, 0.0012},
    {"Q5_1", 0.016, 0.0012},  {"Q5_0", 0.021, 0.0017},   {"Q4_K_M", 0.05, 0.003},
    {"Q4_K_S", 0.05, 0.0032}, {"Q4_1", 0.065, 0.007},    {"Q4_0", 0.075, 0.0065},
    {"IQ4_NL", 0.06, 0.004},  {"IQ4_XS", 0.06, 0.004},   {"MXFP4", 0.13, 0.011},
    {"Q3_K_L", 0.18, 0.009},  {"Q3_K_M", 0.19, 0.01},    {"Q3_K_S", 0.22, 0.017},
    {"Q2_K", 0.6, 0.04},      {"Q2_K_S", 0.6, 0.06},
};

static void compare_models(const char *reference, bool novella) {
    int32_t tokens[N_TOKENS];
    pi_context_options exact = run_exact_options();
    exact.mode = PI_MODE_DENSE; /* the selection of predictors jumps when weights change */
    run_model r = run_open(reference, &exact);
    size_t n = (size_t)N_TOKENS * (size_t)r.n_vocab;
    float *expected = mem_calloc(n, sizeof *expected), *found = mem_calloc(n, sizeof *found);
    assert_true(expected && found);
    run_random_tokens(11, r.n_vocab, tokens, N_TOKENS);
    run_tokens(&r, tokens, N_TOKENS, 0, expected);
    run_close(&r);
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i += novella ? EVERY_NOVELLA : EVERY) {
        pi_quantize_options o = options(bounds[i].mix);
        o.allow_requantize = true;
        quantize(reference, OUT_PATH, &o);
        r = run_open(OUT_PATH, &exact);
        run_tokens(&r, tokens, N_TOKENS, 0, found);
        run_close(&r);
        double nmse = run_nmse(found, expected, (int64_t)n);
        double bound = novella ? bounds[i].novella : bounds[i].tiny;
        print_message("%-8s NMSE %.3g\n", bounds[i].mix, nmse);
        if (!(nmse <= bound)) fail_msg("%s: NMSE %g above %g", bounds[i].mix, nmse, bound);
    }
    mem_free(expected);
    mem_free(found);
}

static void test_tiny_model(void **state) {
    (void)state;
    pi_synth_options synth = pi_synth_default_options();
    pi_error err = {0};
    synth.shape = "tiny";
    synth.type = "f16";
    synth.plain = true;
    synth.n_threads = 2;
    if (pi_synth(IN_PATH, &synth, &err) != PI_OK) fail_msg("%s", err.message);
    compare_models(IN_PATH, false);
}

static void test_bundled_model(void **state) {
    (void)state;
    compare_models(BUNDLED_PATH, true);
}

/* Converting directly to a type must equal converting to F16 (the type of the weights), then
 * quantizing. */
static void test_convert_then_quantize(void **state) {
    (void)state;
    char folder[1024];
    if (!shared_path(folder, sizeof folder, "models/novella-7m")) skip();
#ifndef TEST_HAS_JSON
    fprintf(stderr, "*** SKIPPED: nothing can be converted without jansson ***\n");
    skip();
#endif
    static const char *const types[] = {"q8_0", "q4_0", "q6_k"};
    pi_convert_options c = pi_convert_default_options();
    pi_error err = {0};
    c.n_threads = 2;
    if (pi_convert(folder, IN_PATH, &c, &err) != PI_OK) fail_msg("%s", err.message);
    for (size_t i = 0; i < sizeof types / sizeof *types; i += EVERY) {
        c.type = types[i];
        if (pi_convert(folder, OTHER_PATH, &c, &err) != PI_OK) fail_msg("%s", err.message);
        pi_quantize_options o = options(types[i]);
        o.pure = true;
        quantize(IN_PATH, OUT_PATH, &o);
        assert_same_file(OUT_PATH, OTHER_PATH);
    }
}

static int tear_down(void **state) {
    (void)state;
    unlink(IN_PATH);
    unlink(OUT_PATH);
    unlink(OTHER_PATH);
    unlink(IMATRIX_PATH);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),          cmocka_unit_test(test_importance),
        cmocka_unit_test(test_losses),        cmocka_unit_test(test_chat_template),
        cmocka_unit_test(test_keys),          cmocka_unit_test(test_split),
        cmocka_unit_test(test_reports),       cmocka_unit_test(test_tiny_model),
        cmocka_unit_test(test_bundled_model), cmocka_unit_test(test_convert_then_quantize),
    };
    return cmocka_run_group_tests_name("quantize", tests, NULL, tear_down);
}
