/* test_golden_heads.c: logits of layers for multi-token prediction against llama.cpp's
 * (LLM_GRAPH_TYPE_DECODER_MTP). The models are made here: with `synth`, or from tiny models of
 * more/ and next/ (headed_model.h). As in llama.cpp's draft-mtp, head k reads the text with the
 * model's features, then the k tokens that the heads before it draft, each with the features of the
 * head that drafted it. The logits after its last tokens are recorded.
 *
 * `--write FOLDER` writes the models and their tokens to a folder, to record logits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "headed_model.h"
#include "mem.h"
#include "powerinfer_speculate.h"
#include "powerinfer_tools.h"
#include "run_model.h"
#include "shared_data.h"

enum { N_TOKENS = 72, N_ROWS = 12, PATH_BYTES = 1024 };
#define GATE 1e-11 /* missing rotation or a window changes these models by 4e-9 */

typedef struct headed_case {
    const char *name;
    const char *shape;  /* of synth, or */
    const char *folder; /* of the model NAME */
    headed_options o;
} headed_case;

static const headed_case cases[] = {
    {"cohere2moe-moe", NULL, "more", {.n_heads = 1, .short_lists = true}},
    {"deepseek2-moe", NULL, "more", {.n_heads = 1}},
    {"deepseek32-mtp", "tiny-dsa-moe", NULL, {.n_heads = 1}},
    {"deepseek4-mtp", "tiny-csa-moe", NULL, {.n_heads = 1}},
    {"glm-dsa-topk-moe", NULL, "next", {.n_heads = 1}},
    {"hy_v3-tiny", NULL, "more", {.n_heads = 3}},
    {"mimo2-moe", NULL, "more", {.n_heads = 3, .fused = true}},
    {"qwen35-dense", NULL, "more", {.n_heads = 1, .unbiased = true}},
    {"qwen35moe-moe", NULL, "more", {.n_heads = 1, .unbiased = true}},
    {"qwen3next-moe", NULL, "more", {.n_heads = 1, .unbiased = true}},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

/* False: the model belongs to the shared data, which is missing. */
static bool write_model(const headed_case *c, const char *path) {
    char from[PATH_BYTES], below[PATH_BYTES / 4];
    pi_synth_options o = pi_synth_default_options();
    if (c->shape) {
        o.shape = c->shape;
        o.type = "f32";
        o.plain = true;
        o.n_mtp = c->o.n_heads;
        ok(pi_synth(path, &o, &err));
        return true;
    }
    snprintf(from, sizeof from, TEST_SOURCE_DIR "/tests/golden/reference/%s/%s.gguf", c->folder,
             c->name);
    snprintf(below, sizeof below, "conformance/%s/%s.gguf", c->folder, c->name);
    if (access(from, R_OK) != 0 && !shared_path(from, sizeof from, below)) return false;
    headed_write(from, path, &c->o);
    return true;
}

static void make_tokens(const pi_model *m, int32_t *tokens) {
    pi_model_info info;
    pi_model_get_info(m, &info);
    run_random_tokens(11, info.n_vocab, tokens, N_TOKENS);
}

/* Runs a head on n tokens. Writes the logits after the last N_ROWS tokens, [N_ROWS][n_vocab], and
 * the features after the last one; returns the best next token. */
static int32_t run_head(const pi_model *head, const int32_t *tokens, const float *features, int n,
                        float *logits, float *next) {
    pi_context_options o = run_exact_options();
    pi_model_info info;
    run_model r = {0};
    int32_t best = 0;
    pi_model_get_info(head, &info);
    o.n_logits = N_ROWS;
    ok(pi_context_create(head, &o, &r.context, &err));
    pi_session *s = run_session(&r, n);
    pi_input in = {.session = s, .tokens = tokens, .n_tokens = n - N_ROWS, .features = features};
    ok(pi_forward(r.context, &in, 1, &err));
    in = (pi_input){.session = s,
                    .tokens = tokens + in.n_tokens,
                    .n_tokens = N_ROWS,
                    .logits = PI_LOGITS_ALL,
                    .features = features + (size_t)in.n_tokens * (size_t)info.n_features};
    ok(pi_forward(r.context, &in, 1, &err));
    for (int i = 0; i < N_ROWS; i++)
        memcpy(logits + (size_t)i * (size_t)info.n_vocab, pi_logits(r.context, i),
               (size_t)info.n_vocab * sizeof *logits);
    memcpy(next, pi_session_features(s, n - 1), (size_t)info.n_features * sizeof *next);
    const float *last = logits + (size_t)(N_ROWS - 1) * (size_t)info.n_vocab;
    for (int32_t i = 1; i < info.n_vocab; i++)
        if (last[i] > last[best]) best = i;
    pi_session_destroy(s);
    pi_context_destroy(r.context);
    return best;
}

/* Logits of all heads, [n_heads][N_ROWS][n_vocab]. */
static float *run_heads(const headed_case *c, const char *path, size_t *n_floats) {
    int32_t tokens[N_TOKENS + HEADED_MAX];
    pi_context_options o = run_exact_options();
    pi_model *heads[HEADED_MAX];
    pi_model_info info;
    run_model r = {0};
    ok(pi_model_open(path, NULL, &r.model, &err));
    for (int k = 0; k < c->o.n_heads; k++)
        ok(pi_model_open_drafter(r.model, NULL, k, &heads[k], &err));
    pi_model_get_info(heads[0], &info);
    assert_int_equal(info.n_draft_layer, c->o.n_heads);
    o.drafter = heads[0];
    ok(pi_context_create(r.model, &o, &r.context, &err));
    make_tokens(r.model, tokens);
    pi_session *s = run_session(&r, N_TOKENS);
    const pi_input in = {.session = s, .tokens = tokens, .n_tokens = N_TOKENS};
    ok(pi_forward(r.context, &in, 1, &err));
    const size_t width = (size_t)info.n_features, n_rows = N_ROWS * (size_t)info.n_vocab;
    float *features = mem_calloc((N_TOKENS + HEADED_MAX) * width, sizeof *features);
    float *logits = mem_calloc((size_t)c->o.n_heads * n_rows, sizeof *logits);
    for (int i = 0; i + 1 < N_TOKENS; i++)
        memcpy(features + (size_t)i * width, pi_session_features(s, i), width * sizeof *features);
    for (int k = 0, n = N_TOKENS - 1; k < c->o.n_heads; k++, n++)
        tokens[n + 1] = run_head(heads[k], tokens + 1, features, n, logits + (size_t)k * n_rows,
                                 features + (size_t)n * width);
    mem_free(features);
    pi_session_destroy(s);
    pi_context_destroy(r.context);
    for (int k = 0; k < c->o.n_heads; k++) pi_model_close(heads[k]);
    pi_model_close(r.model);
    *n_floats = (size_t)c->o.n_heads * n_rows;
    return logits;
}

static void test_logits(void **state) {
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        char recorded[PATH_BYTES];
        size_t n;
        if (!write_model(&cases[i], TEST_BINARY_DIR "/test_golden_heads.gguf")) continue;
        float *got = run_heads(&cases[i], TEST_BINARY_DIR "/test_golden_heads.gguf", &n);
        float *want = mem_calloc(n + 1, sizeof *want);
        snprintf(recorded, sizeof recorded,
                 TEST_SOURCE_DIR "/tests/golden/reference/heads/%s.logits.f32", cases[i].name);
        FILE *f = fopen(recorded, "rb");
        if (!f) fail_msg("%s is not there", recorded);
        assert_int_equal(fread(want, sizeof *want, n + 1, f), n);
        fclose(f);
        for (int k = 0; k < cases[i].o.n_heads; k++) {
            const size_t each = n / (size_t)cases[i].o.n_heads;
            double nmse = run_nmse(got + (size_t)k * each, want + (size_t)k * each, (int64_t)each);
            printf("%s, head %d: NMSE %.2g\n", cases[i].name, k, nmse);
            if (!(nmse <= GATE))
                fail_msg("%s, head %d: NMSE %g is above %g", cases[i].name, k, nmse, GATE);
        }
        mem_free(got);
        mem_free(want);
    }
}

static int write_all(const char *folder) {
    for (int i = 0; i < N_CASES; i++) {
        char path[PATH_BYTES];
        int32_t tokens[N_TOKENS];
        pi_model *m;
        snprintf(path, sizeof path, "%s/%s.gguf", folder, cases[i].name);
        if (!write_model(&cases[i], path)) continue;
        ok(pi_model_open(path, NULL, &m, &err));
        make_tokens(m, tokens);
        pi_model_close(m);
        snprintf(path, sizeof path, "%s/%s.tokens.txt", folder, cases[i].name);
        FILE *f = fopen(path, "w");
        for (int k = 0; f && k < N_TOKENS; k++) fprintf(f, "%d\n", tokens[k]);
        if (!f || fclose(f)) return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--write") == 0) return write_all(argv[2]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_logits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
