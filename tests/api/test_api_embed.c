/* test_api_embed.c: embeddings of encoders. Vectors of other programs' models must be equal to
 * those that llama.cpp computed (the shared data; loudly skipped without it); properties of
 * handmade models always hold: pooling, batches, attention in both directions. */
#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "embed_reference.h"
#include "encoder_model.h"
#include "file.h"
#include "mem.h"
#include "powerinfer_embed.h"
#include "rng.h"
#include "shared_data.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_api_embed.gguf"

enum { MAX_TEXTS = 64, MAX_TOKENS = 4096, SEED = 5 };
static const double MOST_NMSE = 1e-6;

static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

typedef struct opened {
    pi_model *model;
    pi_context *context;
} opened;

static opened open_model(const char *path, pi_kernels kernels, int n_batch) {
    opened o;
    pi_context_options options = pi_context_default_options();
    options.device = PI_DEVICE_CPU;
    options.kernels = kernels;
    options.n_batch = n_batch;
    options.n_threads = 3;
    options.cache_k = options.cache_v = PI_CACHE_F32;
    ok(pi_model_open(path, NULL, &o.model, &err));
    ok(pi_context_create(o.model, &options, &o.context, &err));
    return o;
}

static void close_model(opened o) {
    pi_context_destroy(o.context);
    pi_model_close(o.model);
}

static double nmse(const float *a, const float *b, size_t n) {
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return error / size;
}

/* ---- references ------------------------------------------------------------------------------ */

/* A line of ids per text. */
static int read_ids(const char *path, int32_t *tokens, pi_embed_text *texts) {
    char *lines;
    size_t n_bytes;
    int n_texts = 0, n = 0;
    ok(file_read(path, 1 << 20, &lines, &n_bytes, &err));
    for (char *line = lines, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        texts[n_texts].tokens = tokens + n;
        for (char *at = line, *after; at < end; at = after) {
            long id = strtol(at, &after, 10);
            if (after == at || after > end) break;
            assert_true(n < MAX_TOKENS);
            tokens[n++] = (int32_t)id;
            texts[n_texts].n_tokens++;
        }
        assert_true(++n_texts < MAX_TEXTS);
    }
    mem_free(lines);
    return n_texts;
}

static void check_reference(const char *vectors_path, pi_kernels kernels, int n_batch) {
    static int32_t tokens[MAX_TOKENS];
    pi_embed_text texts[MAX_TEXTS] = {{0}};
    char stem[1024], path[1100], *bytes;
    size_t n_bytes;
    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(vectors_path) - strlen(".embeddings.f32")),
             vectors_path);
    snprintf(path, sizeof path, "%s.ids.txt", stem);
    int n_texts = read_ids(path, tokens, texts);
    snprintf(path, sizeof path, "%s.gguf", stem);
    opened o = open_model(path, kernels, n_batch);
    int32_t width = pi_embedding_width(o.model, PI_POOLING_MODEL);
    bool named;
    pi_pooling pooling = pi_model_pooling(o.model, &named);
    assert_true(named && pi_model_is_encoder(o.model));
    float *out = mem_calloc((size_t)n_texts * (size_t)width, sizeof *out);
    ok(pi_embed(o.context, texts, n_texts, PI_POOLING_MODEL, out, &err));
    for (int i = 0; i < n_texts && pooling != PI_POOLING_RANK; i++)
        pi_normalize(out + (size_t)i * (size_t)width, width, PI_NORM_EUCLID);
    ok(file_read(vectors_path, 1 << 24, &bytes, &n_bytes, &err));
    assert_int_equal(n_bytes, (size_t)n_texts * (size_t)width * sizeof(float));
    double error = nmse(out, (const float *)(const void *)bytes, n_bytes / sizeof(float));
    printf("%s: NMSE %.2e\n", strrchr(stem, '/') + 1, error);
    if (!(error <= MOST_NMSE)) fail_msg("%s: NMSE %g", stem, error);
    mem_free(bytes);
    mem_free(out);
    close_model(o);
}

static void references(void **state) {
    (void)state;
    char pattern[1024];
    glob_t found;
    if (!shared_path(pattern, sizeof pattern, "conformance/encode/texts.txt")) skip();
    snprintf(strrchr(pattern, '/'), sizeof pattern - 512, "/*.embeddings.f32");
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        check_reference(found.gl_pathv[i], PI_KERNELS_AUTO, 512);
        check_reference(found.gl_pathv[i], PI_KERNELS_AUTO, 64);
        check_reference(found.gl_pathv[i], PI_KERNELS_SCALAR, 512);
    }
    globfree(&found);
}

enum { N_EMBD = ENCODER_N_EMBD, LENGTH = 40, N_RECORDED = 3 };

static void random_tokens(uint64_t seed, int32_t *tokens, int n) {
    rng r;
    rng_seed(&r, seed);
    for (int i = 0; i < n; i++)
        tokens[i] = (int32_t)(rng_u64(&r) % (ENCODER_N_VOCAB - ENCODER_FIRST_WORD)) +
                    ENCODER_FIRST_WORD;
}

/* Batches of 16 tokens divide a text of a causal model. */
static void check_recorded(const char *arch, bool ranks, const float *want, size_t n_bytes) {
    int32_t tokens[LENGTH + 17 + 1];
    float out[N_RECORDED * N_EMBD];
    const pi_embed_text texts[N_RECORDED] = {
        {tokens, LENGTH}, {tokens + LENGTH, 17}, {tokens + LENGTH + 17, 1}};
    random_tokens(7, tokens, LENGTH + 17 + 1);
    (ranks ? encoder_write_ranking : encoder_write)(MODEL_PATH, arch, SEED);
    for (int i = 0; i < 4; i++) {
        opened o = open_model(MODEL_PATH, i % 2 ? PI_KERNELS_SCALAR : PI_KERNELS_AUTO,
                              i < 2 || strcmp(arch, "qwen3") != 0 ? 64 : 16);
        int32_t width = pi_embedding_width(o.model, PI_POOLING_MODEL);
        assert_int_equal(n_bytes, N_RECORDED * (size_t)width * sizeof *want);
        ok(pi_embed(o.context, texts, N_RECORDED, PI_POOLING_MODEL, out, &err));
        double error = nmse(out, want, n_bytes / sizeof *want);
        printf("%s: NMSE %.2e\n", arch, error);
        if (!(error <= MOST_NMSE)) fail_msg("%s: NMSE %g", arch, error);
        close_model(o);
    }
}

static void recorded(void **state) {
    (void)state;
    check_recorded("gemma-embedding", false, gemma_mean, sizeof gemma_mean);
    check_recorded("qwen3", false, qwen3_last, sizeof qwen3_last);
    check_recorded("qwen3", true, qwen3_scores, sizeof qwen3_scores);
    check_recorded("jina-bert-v2", true, jina_scores, sizeof jina_scores);
}

/* ---- properties ------------------------------------------------------------------------------ */

static void embed(opened o, const int32_t *tokens, int n, pi_pooling pooling, float *out) {
    const pi_embed_text text = {tokens, n};
    ok(pi_embed(o.context, &text, 1, pooling, out, &err));
}

static void expect_near(const float *a, const float *b, int n, double most) {
    double error = nmse(a, b, (size_t)n);
    if (!(error <= most)) fail_msg("NMSE %g", error);
}

static void poolings(void **state) {
    (void)state;
    int32_t tokens[LENGTH];
    float rows[LENGTH * N_EMBD], out[N_EMBD], mean[N_EMBD] = {0};
    encoder_write_ranking(MODEL_PATH, "bert", SEED);
    opened o = open_model(MODEL_PATH, PI_KERNELS_AUTO, 64);
    random_tokens(1, tokens, LENGTH);
    embed(o, tokens, LENGTH, PI_POOLING_NONE, rows);
    for (int i = 0; i < LENGTH * N_EMBD; i++) mean[i % N_EMBD] += rows[i] / LENGTH;
    embed(o, tokens, LENGTH, PI_POOLING_MEAN, out);
    expect_near(out, mean, N_EMBD, 1e-10);
    embed(o, tokens, LENGTH, PI_POOLING_CLS, out);
    expect_near(out, rows, N_EMBD, 1e-12);
    embed(o, tokens, LENGTH, PI_POOLING_LAST, out);
    expect_near(out, rows + (LENGTH - 1) * N_EMBD, N_EMBD, 1e-12);
    assert_int_equal(pi_embedding_width(o.model, PI_POOLING_RANK), 1);
    embed(o, tokens, LENGTH, PI_POOLING_RANK, out);
    float want = encoder_rank(rows, SEED);
    assert_true(fabsf(out[0] - want) <= 1e-5f * (1 + fabsf(want)));
    close_model(o);
}

/* Texts that share a batch do not see each other. */
static void batches(void **state) {
    (void)state;
    static const char *const archs[] = {"bert",        "nomic-bert",   "jina-bert-v2",
                                        "modern-bert", "jina-bert-v3", "gemma-embedding"};
    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++) {
        enum { N_TEXTS = 7 };
        int32_t tokens[N_TEXTS * LENGTH];
        pi_embed_text texts[N_TEXTS];
        float together[N_TEXTS * N_EMBD], alone[N_EMBD];
        encoder_write(MODEL_PATH, archs[a], SEED);
        opened o = open_model(MODEL_PATH, PI_KERNELS_AUTO, 100);
        random_tokens(2, tokens, N_TEXTS * LENGTH);
        for (int i = 0; i < N_TEXTS; i++)
            texts[i] = (pi_embed_text){tokens + i * LENGTH, LENGTH - 6 * i};
        ok(pi_embed(o.context, texts, N_TEXTS, PI_POOLING_MEAN, together, &err));
        for (int i = 0; i < N_TEXTS; i++) {
            embed(o, texts[i].tokens, texts[i].n_tokens, PI_POOLING_MEAN, alone);
            expect_near(together + i * N_EMBD, alone, N_EMBD, 1e-9);
        }
        close_model(o);
    }
}

/* The last token changes the first one's vector. With ALiBi and no other positions, the reversed
 * text has the same vectors, reversed. */
static void both_directions(void **state) {
    (void)state;
    int32_t tokens[LENGTH], other[LENGTH];
    float a[LENGTH * N_EMBD], b[LENGTH * N_EMBD];
    encoder_write(MODEL_PATH, "jina-bert-v2", SEED);
    random_tokens(3, tokens, LENGTH);
    for (int i = 0; i < LENGTH; i++) other[i] = tokens[LENGTH - 1 - i];
    for (int scalar = 0; scalar < 2; scalar++) {
        for (int n = 1; n <= LENGTH; n = n * 2 + 1) { /* few tokens have their own kernels */
            opened o = open_model(MODEL_PATH, scalar ? PI_KERNELS_SCALAR : PI_KERNELS_AUTO, 64);
            embed(o, tokens, n, PI_POOLING_NONE, a);
            embed(o, other + LENGTH - n, n, PI_POOLING_NONE, b);
            for (int i = 0; i < n; i++)
                expect_near(a + i * N_EMBD, b + (n - 1 - i) * N_EMBD, N_EMBD, 1e-9);
            close_model(o);
        }
    }
    opened o = open_model(MODEL_PATH, PI_KERNELS_AUTO, 64);
    embed(o, tokens, LENGTH, PI_POOLING_CLS, a);
    tokens[LENGTH - 1] = tokens[LENGTH - 1] == ENCODER_FIRST_WORD ? ENCODER_FIRST_WORD + 1
                                                                  : ENCODER_FIRST_WORD;
    embed(o, tokens, LENGTH, PI_POOLING_CLS, b);
    assert_true(nmse(a, b, N_EMBD) > 1e-7);
    close_model(o);
}

static void refusals(void **state) {
    (void)state;
    int32_t tokens[LENGTH];
    float out[LENGTH * N_EMBD];
    pi_session *s;
    encoder_write(MODEL_PATH, "nomic-bert", SEED);
    opened o = open_model(MODEL_PATH, PI_KERNELS_AUTO, LENGTH - 1);
    random_tokens(4, tokens, LENGTH);
    const pi_embed_text text = {tokens, LENGTH};
    assert_int_equal(pi_embed(o.context, &text, 1, PI_POOLING_MEAN, out, &err), PI_ERR_LIMIT);
    assert_non_null(strstr(err.message, "text too long"));
    const pi_embed_text empty = {tokens, 0};
    assert_int_equal(pi_embed(o.context, &empty, 1, PI_POOLING_MEAN, out, &err), PI_ERR_ARG);
    ok(pi_session_create(o.context, LENGTH, &s, &err));
    pi_input in = {.session = s, .tokens = tokens, .n_tokens = 4, .logits = PI_LOGITS_LAST};
    assert_int_equal(pi_forward(o.context, &in, 1, &err), PI_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "encoder"));
    in.logits = PI_LOGITS_NONE;
    in.hidden = PI_HIDDEN_LAST;
    ok(pi_forward(o.context, &in, 1, &err));
    assert_int_equal(pi_forward(o.context, &in, 1, &err), PI_ERR_ARG); /* a text in two calls */
    pi_session_destroy(s);
    close_model(o);
}

static void norms(void **state) {
    (void)state;
    const float x[3] = {3, -4, 0};
    float y[3];
    static const struct {
        int32_t norm;
        float want;
    } cases[] = {{PI_NORM_NONE, 3},
                 {PI_NORM_INT16, 24570},
                 {PI_NORM_TAXICAB, 3.0f / 7},
                 {PI_NORM_EUCLID, 0.6f},
                 {3, 0.66697f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(y, x, sizeof y);
        pi_normalize(y, 3, cases[i].norm);
        assert_true(fabsf(y[0] - cases[i].want) <= 1e-5f * fabsf(cases[i].want));
    }
    memset(y, 0, sizeof y);
    pi_normalize(y, 3, PI_NORM_EUCLID);
    assert_true(y[0] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(references), cmocka_unit_test(recorded),        cmocka_unit_test(poolings),
        cmocka_unit_test(batches),    cmocka_unit_test(both_directions), cmocka_unit_test(refusals),
        cmocka_unit_test(norms),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(MODEL_PATH);
    return failed;
}
