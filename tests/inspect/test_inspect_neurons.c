/* test_inspect_neurons.c: neuron statistics as text, JSON and a picture, from files written here:
 * known frequencies, then unusual ones. A small XML reader, which supports elements, attributes and
 * entities, reads the picture. */
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "file.h"
#include "gguf_writer.h"
#include "mem.h"
#include "powerinfer_tools.h"
#include "sparse_keys.h"
#include "svg.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_inspect_neurons.gguf"
#define SVG_PATH   TEST_BINARY_DIR "/test_inspect_neurons.svg"

enum { N_FF = 8, N_LAYER = 3 };

/* Contents of a file. */
typedef struct content {
    const char *name;
    float freq[N_LAYER][N_FF];
    const char *kind[N_LAYER];
    float recall[N_LAYER], density[N_LAYER];
    int n_recall; /* length of the recall array */
    bool no_freq, no_keys;
    quant_type freq_type; /* F32, or another type of 4 bytes */
    uint32_t n_layer;     /* value in the header */
} content;

/* Layer 0: only half of the neurons are ever active; layer 1: all equally often; layer 2: one
 * neuron. */
static content usual(void) {
    content c = {.name = "a test",
                 .freq = {{0.5f, 0.5f, 0.5f, 0.5f}, {0}, {0.8f}},
                 .kind = {"lowrank", "sign", "lowrank"},
                 .recall = {0.98f, 0.99f, 0.97f},
                 .density = {0.3f, 0.4f, 0.2f},
                 .n_recall = N_LAYER,
                 .freq_type = QUANT_F32,
                 .n_layer = N_LAYER};
    for (int i = 0; i < N_FF; i++) c.freq[1][i] = 0.25f;
    return c;
}

static void write_model(const content *c) {
    gguf_writer *w;
    gguf_string kinds[N_LAYER];
    const uint64_t freq[] = {N_FF}, fc1[] = {32, 64};
    static const float zeros[32 * 64] = {0};
    assert_int_equal(gguf_writer_create(MODEL_PATH, &w, NULL), PI_OK);
    gguf_put_string(w, "general.architecture", "llama");
    gguf_put_string(w, "general.name", c->name);
    gguf_put_u32(w, "llama.block_count", c->n_layer);
    gguf_put_u32(w, "llama.embedding_length", 32);
    gguf_put_u32(w, "llama.feed_forward_length", N_FF);
    for (int i = 0; i < N_LAYER; i++)
        kinds[i] = (gguf_string){.data = c->kind[i], .n_bytes = strlen(c->kind[i])};
    if (!c->no_keys) {
        gguf_put_u32(w, SPARSE_KEY_VERSION, SPARSE_VERSION);
        gguf_put_u32(w, SPARSE_KEY_CALIBRATION_TOKENS, 16384);
        gguf_put_f32(w, SPARSE_KEY_CALIBRATION_LOSS, 0.0025f);
        gguf_put_strings(w, SPARSE_KEY_PREDICTOR_KIND, kinds, N_LAYER);
        gguf_put_array(w, SPARSE_KEY_PREDICTOR_RECALL, GGUF_F32, c->recall, (uint64_t)c->n_recall);
        gguf_put_array(w, SPARSE_KEY_PREDICTOR_DENSITY, GGUF_F32, c->density, N_LAYER);
    }
    for (int i = 0; i < N_LAYER; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.fc1.weight", i);
        assert_int_equal(gguf_add_tensor(w, name, QUANT_F32, 2, fc1, NULL), PI_OK);
        snprintf(name, sizeof name, c->no_freq ? "blk.%d.other" : "blk.%d.ffn_freq", i);
        assert_int_equal(gguf_add_tensor(w, name, c->freq_type, 1, freq, NULL), PI_OK);
    }
    assert_int_equal(gguf_writer_begin_data(w, NULL), PI_OK);
    for (int i = 0; i < N_LAYER; i++) {
        assert_int_equal(gguf_write_data(w, zeros, sizeof zeros, NULL), PI_OK);
        assert_int_equal(gguf_write_data(w, c->freq[i], sizeof c->freq[i], NULL), PI_OK);
    }
    assert_int_equal(gguf_writer_finish(w, NULL), PI_OK);
}

/* Returns the output of pi_inspect; free() it. */
static char *inspect(bool json, bool verbose, const char *picture) {
    const pi_inspect_options o = {.json = json, .verbose = verbose, .svg = picture};
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    pi_error err = {0};
    if (pi_inspect(MODEL_PATH, &o, out, &err)) fail_msg("%s", err.message);
    fclose(out);
    return text;
}

static void expect(bool json, bool verbose, const char *fragment) {
    char *text = inspect(json, verbose, NULL);
    if (!strstr(text, fragment)) fail_msg("no '%s' in\n%s", fragment, text);
    free(text);
}

static void expect_not(bool json, bool verbose, const char *fragment) {
    char *text = inspect(json, verbose, NULL);
    if (strstr(text, fragment)) fail_msg("'%s' in\n%s", fragment, text);
    free(text);
}

/* ---- text and JSON --------------------------------------------------------------------------- */

static void test_text(void **state) {
    (void)state;
    content c = usual();
    write_model(&c);
    /* Means over layers: of 25, 25, 10%; of 25, 50, 6.25%; of 40, 80, 10%; of 47.5, 95, 11.875%. */
    expect(false, false,
           "\nneurons       20.0% active per token; 50/80/95% of the activations in "
           "27.1/43.3/51.5% of them\n");
    expect(false, false, "\ncalibration   16384 tokens, perplexity +0.25% in mode predict\n");
    expect(false, false,
           "\npredictor     lowrank of rank 64 in 2 of 3 layers, selects 30.0%, contribution "
           "recall 98.0%\n");
    expect_not(false, false, "neurons (3 layers)");
    expect(false, true, "\nneurons (3 layers)");
    expect(false, true, "\n      0  25.00  40.00  47.50  25.00  lowrank       64  30.00  98.00\n");
    expect(false, true, "\n      1  50.00  80.00  95.00  25.00  sign          64  40.00  99.00\n");
    expect(false, true, "\n      2   6.25  10.00  11.88  10.00  lowrank       64  20.00  97.00\n");
}

static void test_json(void **state) {
    (void)state;
    content c = usual();
    write_model(&c);
    expect(true, false, "\"neurons\": {\n    \"tokens\": 16384,\n    \"loss\": 0.00249999");
    expect(true, false, "\"kind\": \"lowrank\",\n    \"rank\": 64,");
    expect_not(true, false, "\"share_80\": 0.8,");
    expect(true, true, "\"neurons\": 8,");
    expect(true, true,
           "\"density\": 0.25,\n        \"share_50\": 0.5,\n        \"share_80\": 0.8,");
    expect(true, true, "\"kind\": \"sign\",");
    c.no_freq = true;
    write_model(&c);
    expect(true, true, "\"neurons\": null");
}

static void test_odd(void **state) {
    (void)state;
    content c = usual();
    /* Frequencies out of order, and not finite. */
    const float odd[N_FF] = {0, NAN, 0.5f, -1, 0.5f, INFINITY * 0, 0.5f, 0.5f};
    memcpy(c.freq[0], odd, sizeof odd);
    c.freq[2][0] = INFINITY; /* counts as always active */
    c.kind[0] = "low\x1b[31m";
    c.kind[2] = "a name that is far too long for a predictor";
    c.n_recall = 1;
    write_model(&c);
    expect(false, true, "\n      0  25.00  40.00  47.50  25.00  low????m      64  30.00  98.00\n");
    expect(false, true, "\n      1  50.00  80.00  95.00  25.00  sign          64  40.00      -\n");
    expect(false, true, "\n      2   6.25  10.00  11.88  12.50  -             64  20.00      -\n");
    expect(true, true, "\"recall\": null");

    c = usual();
    c.freq_type = QUANT_I32; /* cannot hold frequencies */
    write_model(&c);
    expect(false, true, "\n      0      -      -      -      -  lowrank       64  30.00  98.00\n");
    expect_not(false, true, "fire for a token; 50");

    c = usual();
    memset(c.freq, 0, sizeof c.freq);
    c.no_keys = true;
    write_model(&c);
    expect(false, true, "\n      0 100.00 100.00 100.00   0.00  -             64      -      -\n");
    expect(false, false, "\npredictor     present (fc1, fc2), rank 64\n");

    c = usual();
    c.n_layer = UINT32_MAX; /* the header lies */
    write_model(&c);
    expect_not(false, true, "neurons (");
    c.n_layer = 2;
    write_model(&c);
    expect(false, true, "neurons (2 layers)");
}

/* ---- the picture ----------------------------------------------------------------------------- */

/* Reads the file and checks that it is well-formed XML for SVG: elements nest, attributes are
 * quoted, entities are known, no control characters. mem_free() the text. */
static char *read_svg(void) {
    char *data, stack[16][32];
    size_t n;
    int depth = 0, elements = 0;
    assert_int_equal(file_read(SVG_PATH, 1 << 24, &data, &n, NULL), PI_OK);
    assert_memory_equal(data, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", 39);
    for (const char *p = data + 39; *p;) {
        assert_true((unsigned char)*p >= 0x20 || *p == '\n');
        if (*p == '&') {
            assert_true(!strncmp(p, "&amp;", 5) || !strncmp(p, "&lt;", 4) ||
                        !strncmp(p, "&gt;", 4));
        }
        assert_true(*p != '>');
        if (*p != '<') {
            p++;
            continue;
        }
        bool closing = p[1] == '/';
        const char *name = p + 1 + closing, *end = name;
        while (isalpha((unsigned char)*end)) end++;
        assert_true(end > name && end - name < 32);
        bool quoted = false;
        for (p = end; *p && (quoted || *p != '>'); p++) {
            if (*p == '"') quoted = !quoted;
            assert_true(*p != '<');
        }
        assert_true(*p == '>' && !quoted);
        bool empty = p[-1] == '/';
        p++;
        elements++;
        if (closing) {
            assert_true(depth > 0);
            depth--;
            assert_memory_equal(stack[depth], name, (size_t)(end - name));
        } else if (!empty) {
            assert_true(depth < 16);
            snprintf(stack[depth++], 32, "%.*s", (int)(end - name), name);
        }
    }
    assert_int_equal(depth, 0);
    assert_true(elements > 50);
    return data;
}

static int count(const char *text, const char *fragment) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, fragment)); p++) n++;
    return n;
}

static void test_picture(void **state) {
    (void)state;
    content c = usual();
    c.name = "a<b> & \"c\" \x01\xff \xef\xbf\xbe";
    write_model(&c);
    unlink(SVG_PATH);
    free(inspect(false, false, SVG_PATH));
    char *picture = read_svg();
    assert_non_null(
        strstr(picture, ">a&lt;b&gt; &amp; \"c\" \xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd<"));
    assert_non_null(strstr(picture,
                           ">llama, 3 layers, n_embd 32, n_ff 8; calibrated on 16384 tokens; "
                           "predictor of rank 64<"));
    assert_non_null(strstr(picture, "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"));
    /* Three curves and the median, which is layer 0: 40% of its neurons make 80% of the
     * activations. */
    assert_int_equal(count(picture, "<polyline"), 5);
    assert_non_null(strstr(picture, ">in 40.0% of the neurons<"));
    assert_int_equal(count(picture, "class=\"fires\""), 3 + 1); /* one in the legend */
    assert_int_equal(count(picture, "class=\"selects\""), 3 + 1);
    assert_int_equal(count(picture, "class=\"recall\""), 3);
    assert_int_equal(count(picture, "-0%"), 0);
    mem_free(picture);

    /* Layer 0 is a line to 100% at half of the neurons: from (84, 632) to (344, 132). */
    picture = read_svg();
    const char *curve = strstr(picture, "points=\"84,632 ");
    assert_non_null(curve);
    assert_non_null(strstr(curve, " 214,382 "));
    assert_non_null(strstr(curve, " 344,132 "));
    assert_non_null(strstr(curve, " 604,132\""));
    mem_free(picture);
}

static void test_picture_of_little(void **state) {
    (void)state;
    content c = usual();
    c.no_keys = true;
    c.n_layer = 1;
    c.name = "";
    write_model(&c);
    free(inspect(true, false, SVG_PATH));
    char *picture = read_svg();
    assert_non_null(strstr(picture, ">test_inspect_neurons.gguf<"));
    assert_non_null(strstr(picture, ">no predictor: every gate is computed<"));
    assert_non_null(strstr(picture, "1 layer,"));
    mem_free(picture);
}

static void expect_error(const char *picture, pi_status status, const char *fragment) {
    const pi_inspect_options o = {.svg = picture};
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    pi_error err = {0};
    assert_int_equal(pi_inspect(MODEL_PATH, &o, out, &err), status);
    if (!strstr(err.message, fragment)) fail_msg("no '%s' in %s", fragment, err.message);
    fclose(out);
    free(text);
}

static void test_no_picture(void **state) {
    (void)state;
    content c = usual();
    write_model(&c);
    expect_error("/nowhere/at/all.svg", PI_ERR_IO, "/nowhere/at/all.svg");
    unlink(SVG_PATH);
    c.no_freq = true;
    write_model(&c);
    expect_error(SVG_PATH, PI_ERR_NOT_FOUND, "no neuron statistics: " MODEL_PATH);
    assert_false(file_exists(SVG_PATH));
}

static void test_allocation_failures(void **state) {
    (void)state;
    const pi_inspect_options o = {.svg = SVG_PATH};
    content c = usual();
    write_model(&c);
    int64_t before = mem_count();
    free(inspect(false, false, SVG_PATH));
    int64_t n = mem_count() - before;
    assert_true(n > 4);
    for (int64_t i = 1; i <= n; i++) {
        pi_error err = {0};
        unlink(SVG_PATH);
        FILE *out = fopen("/dev/null", "w");
        mem_fail_at(i);
        assert_int_equal(pi_inspect(MODEL_PATH, &o, out, &err), PI_ERR_NOMEM);
        mem_fail_at(0);
        fclose(out);
        assert_false(file_exists(SVG_PATH));
    }
}

static void test_ticks(void **state) {
    (void)state;
    const struct {
        double range, step;
        int most;
    } cases[] = {{100, 20, 6}, {1, 0.2, 5}, {31, 5, 9}, {7, 1, 9}, {0.09, 0.02, 5}, {12, 2, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double step = svg_tick_step(cases[i].range, cases[i].most);
        assert_true(fabs(step / cases[i].step - 1) < 1e-9);
    }
    assert_true(svg_tick_step(0, 5) == 1);
    assert_true(svg_tick_step(NAN, 5) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_odd),
        cmocka_unit_test(test_picture),
        cmocka_unit_test(test_picture_of_little),
        cmocka_unit_test(test_no_picture),
        cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_ticks),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(MODEL_PATH);
    unlink(SVG_PATH);
    return failed;
}
