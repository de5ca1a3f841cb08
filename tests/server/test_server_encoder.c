/* test_server_encoder.c: embeddings and scores of encoders, compared with those of the library, and
 * what such models refuse. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "encoder_model.h"
#include "powerinfer_embed.h"
#include "server_case.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_server_encoder.gguf"

enum { SEED = 9, N_EMBD = ENCODER_N_EMBD, N_TEXTS = 6 };

static const char *const texts[N_TEXTS] = {"a b c d e f g",
                                           "ab cd ef gh ij kl mn op qr st uv wx yz",
                                           "zz",
                                           "the cat is on it",
                                           "a ab a ab a ab a",
                                           "x y z xx yy zz xy yz zx"};
static server_case c;
static pi_context *reference;
static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

/* A server with a model of this architecture, and a context to compare with. */
static void open_encoder(const char *arch, server_pooling pooling) {
    bool ranks = strcmp(arch, "bert") == 0 || strcmp(arch, "qwen3") == 0;
    if (ranks)
        encoder_write_ranking(MODEL_PATH, arch, SEED);
    else
        encoder_write(MODEL_PATH, arch, SEED);
    case_open(&c);
    pi_model_close(c.model);
    ok(pi_model_open(MODEL_PATH, NULL, &c.model, &err));
    c.options.served.model = c.model;
    c.options.served.model_name = "encoder";
    c.options.served.n_ctx = ENCODER_N_CTX;
    c.options.served.pooling = pooling;
    ok(pi_context_create(c.model, &c.options.served.context, &reference, &err));
    case_start(&c);
}

static void close_encoder(void) {
    pi_context_destroy(reference);
    case_close(&c);
    remove(MODEL_PATH);
}

static void library_vector(const char *text, pi_pooling pooling, float *out) {
    int32_t tokens[ENCODER_N_CTX];
    size_t n = 0;
    ok(pi_tokenize(c.model, text, strlen(text), PI_TOKENIZE_BOS, tokens, ENCODER_N_CTX, &n, &err));
    const pi_embed_text one = {tokens, (int32_t)n};
    ok(pi_embed(reference, &one, 1, pooling, out, &err));
}

static float library_score(const char *query, const char *document) {
    int32_t tokens[ENCODER_N_CTX];
    size_t n = 0;
    float scores[2];
    if (pi_model_is_encoder(c.model)) {
        ok(pi_tokenize_pair(c.model, query, strlen(query), document, strlen(document), tokens,
                            ENCODER_N_CTX, &n, &err));
        assert_int_equal(tokens[0], 2); /* [CLS] query [SEP] document [SEP] */
        assert_int_equal(tokens[n - 1], 3);
    } else { /* the file's template */
        char pair[256];
        int n_pair = snprintf(pair, sizeof pair, "ab %s cd %s ef", query, document);
        ok(pi_tokenize(c.model, pair, (size_t)n_pair, 0, tokens, ENCODER_N_CTX, &n, &err));
    }
    const pi_embed_text one = {tokens, (int32_t)n};
    ok(pi_embed(reference, &one, 1, PI_POOLING_RANK, scores, &err));
    return scores[0];
}

/* A request with all texts. */
static void request_of_all(char *body, size_t room, const char *name, const char *rest) {
    size_t n = (size_t)snprintf(body, room, "{\"%s\":[", name);
    for (int i = 0; i < N_TEXTS; i++)
        n += (size_t)snprintf(body + n, room - n, "%s\"%s\"", i ? "," : "", texts[i]);
    snprintf(body + n, room - n, "]%s}", rest);
}

static void check_vectors(const char *rest, int n_out, pi_pooling pooling) {
    char body[1024];
    request_of_all(body, sizeof body, "input", rest);
    http_reply r = http_post(&c, "/v1/embeddings", body);
    assert_int_equal(r.status, 200);
    for (int i = 0; i < N_TEXTS; i++) {
        float want[N_EMBD];
        char path[64];
        library_vector(texts[i], pooling, want);
        pi_normalize(want, n_out, PI_NORM_EUCLID);
        snprintf(path, sizeof path, "data.%d.embedding", i);
        const json_node *got = http_json(&r, path);
        assert_int_equal(json_count(got), n_out);
        double away = 0, size = 0;
        for (int k = 0; k < n_out; k++) {
            double x = 0;
            assert_true(json_as_double(json_at(got, (size_t)k), &x));
            away += (x - (double)want[k]) * (x - (double)want[k]);
            size += x * x;
        }
        assert_true(away < 1e-9 && fabs(size - 1) < 1e-5);
    }
    http_free(&r);
}

static void test_embeddings(void **state) {
    (void)state;
    open_encoder("nomic-bert", SERVER_POOLING_MODEL);
    check_vectors("", N_EMBD, PI_POOLING_MEAN);
    check_vectors(",\"dimensions\":5", 5, PI_POOLING_MEAN);
    http_reply r = http_post(&c, "/api/embed", "{\"input\":\"ab cd\"}");
    assert_int_equal(r.status, 200);
    assert_int_equal(json_count(http_json(&r, "embeddings.0")), N_EMBD);
    http_free(&r);
    http_refused(&c, "/v1/embeddings", "{\"input\":\"a\",\"dimensions\":33}", 400);
    http_refused(&c, "/v1/rerank", "{\"query\":\"a\",\"documents\":[\"b\"]}", 400);
    close_encoder();
    open_encoder("bert", SERVER_POOLING_CLS);
    check_vectors("", N_EMBD, PI_POOLING_CLS);
    close_encoder();
}

static void test_generates_nothing(void **state) {
    (void)state;
    open_encoder("jina-bert-v2", SERVER_POOLING_MODEL);
    static const char *const routes[][2] = {
        {"/v1/chat/completions", "{" HELLO "}"},
        {"/v1/completions", "{\"prompt\":\"a\"}"},
        {"/completion", "{\"prompt\":\"a\"}"},
        {"/infill", "{\"input_prefix\":\"a\",\"input_suffix\":\"b\"}"},
        {"/api/generate", "{\"prompt\":\"a\"}"}};
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        http_reply r = http_post(&c, routes[i][0], routes[i][1]);
        assert_int_equal(r.status, 400);
        assert_non_null(strstr(r.body, "encoder"));
        assert_non_null(strstr(r.body, "/v1/embeddings"));
        http_free(&r);
    }
    http_reply r = http_post(&c, "/tokenize", "{\"content\":\"a b\"}");
    assert_int_equal(r.status, 200);
    http_free(&r);
    close_encoder();
}

static void check_results(http_reply *r, const char *list, const char *score_name, int n) {
    double before = INFINITY;
    bool seen[N_TEXTS] = {false};
    assert_int_equal(r->status, 200);
    assert_int_equal(json_count(http_json(r, list)), n);
    for (int i = 0; i < n; i++) {
        char path[96];
        double score = 0;
        snprintf(path, sizeof path, "%s%s%d.index", list, *list ? "." : "", i);
        int64_t index = http_int(r, path);
        assert_in_range(index, 0, N_TEXTS - 1);
        assert_false(seen[index]);
        seen[index] = true;
        snprintf(path, sizeof path, "%s%s%d.%s", list, *list ? "." : "", i, score_name);
        assert_true(json_as_double(http_json(r, path), &score));
        float want = library_score("a cat", texts[index]);
        assert_true(fabs(score - (double)want) < 1e-4 * (1 + fabs((double)want)));
        assert_true(score <= before);
        before = score;
    }
    for (int i = 0; i < N_TEXTS; i++) /* those left out are not better */
        if (!seen[i]) assert_true((double)library_score("a cat", texts[i]) <= before + 1e-4);
}

static void test_rerank(void **state) {
    (void)state;
    char body[1024];
    open_encoder("bert", SERVER_POOLING_MODEL);
    static const char *const paths[] = {"/v1/rerank", "/rerank", "/v1/reranking", "/reranking"};
    for (size_t i = 0; i < 4; i++) {
        request_of_all(body, sizeof body, "documents", ",\"query\":\"a cat\"");
        http_reply r = http_post(&c, paths[i], body);
        check_results(&r, "results", "relevance_score", N_TEXTS);
        assert_true(http_int(&r, "usage.prompt_tokens") > N_TEXTS * 5);
        assert_int_equal(http_int(&r, "usage.total_tokens"), http_int(&r, "usage.prompt_tokens"));
        assert_string_equal(http_text(&r, "model"), "encoder");
        http_free(&r);
    }
    request_of_all(body, sizeof body, "documents",
                   ",\"query\":\"a cat\",\"top_n\":2,\"return_documents\":true");
    http_reply r = http_post(&c, "/v1/rerank", body);
    check_results(&r, "results", "relevance_score", 2);
    assert_string_equal(http_text(&r, "results.0.document.text"),
                        texts[http_int(&r, "results.0.index")]);
    http_free(&r);
    request_of_all(body, sizeof body, "texts", ",\"query\":\"a cat\"");
    r = http_post(&c, "/rerank", body);
    check_results(&r, "", "score", N_TEXTS);
    http_free(&r);
    static const char *const bad[] = {
        "{\"documents\":[\"a\"]}",
        "{\"query\":7,\"documents\":[\"a\"]}",
        "{\"query\":\"a\"}",
        "{\"query\":\"a\",\"documents\":[]}",
        "{\"query\":\"a\",\"documents\":\"b\"}",
        "{\"query\":\"a\",\"documents\":[\"b\",3]}",
        "{\"query\":\"a\",\"documents\":[\"b\"],\"top_n\":0}",
        "{\"query\":\"a\",\"documents\":[\"a b c d e f g h i j k l m n o p q r s t u v w x y z a b "
        "c "
        "d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l m n o p q\"]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        http_refused(&c, "/v1/rerank", bad[i], 400);
    http_refused(&c, "/v1/embeddings", "{\"input\":\"a\"}", 400);
    close_encoder();
}

/* A language model with a classifier ranks by the first of its probabilities. */
static void test_causal_rerank(void **state) {
    (void)state;
    char body[1024];
    open_encoder("qwen3", SERVER_POOLING_MODEL);
    request_of_all(body, sizeof body, "documents", ",\"query\":\"a cat\"");
    http_reply r = http_post(&c, "/v1/rerank", body);
    check_results(&r, "results", "relevance_score", N_TEXTS);
    http_free(&r);
    http_refused(&c, "/v1/embeddings", "{\"input\":\"a\"}", 400);
    r = http_post(&c, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":2}");
    assert_int_equal(r.status, 200); /* and still generates */
    http_free(&r);
    close_encoder();
    open_encoder("qwen3", SERVER_POOLING_LAST);
    check_vectors("", N_EMBD, PI_POOLING_LAST);
    http_refused(&c, "/v1/rerank", "{\"query\":\"a\",\"documents\":[\"b\"]}", 400);
    close_encoder();
    open_encoder("gemma-embedding", SERVER_POOLING_MODEL);
    check_vectors("", N_EMBD, PI_POOLING_MEAN);
    close_encoder();
}

/* A language model embeds, and does not rank. */
static void test_language_model(void **state) {
    (void)state;
    case_open(&c);
    case_start(&c);
    http_refused(&c, "/v1/rerank", "{\"query\":\"a\",\"documents\":[\"b\"]}", 400);
    http_reply r = http_post(&c, "/v1/embeddings", "{\"input\":\"Hello\",\"dimensions\":16}");
    http_reply whole = http_post(&c, "/v1/embeddings", "{\"input\":\"Hello\"}");
    assert_int_equal(r.status, 200);
    assert_int_equal(json_count(http_json(&r, "data.0.embedding")), 16);
    double dot = 0, size = 0;
    for (size_t i = 0; i < 16; i++) {
        double a = 0, b = 0;
        json_as_double(json_at(http_json(&r, "data.0.embedding"), i), &a);
        json_as_double(json_at(http_json(&whole, "data.0.embedding"), i), &b);
        dot += a * b;
        size += b * b;
    }
    assert_true(fabs(dot - sqrt(size)) < 1e-5); /* a prefix of the same direction, of length 1 */
    http_free(&r);
    http_free(&whole);
    case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embeddings),     cmocka_unit_test(test_generates_nothing),
        cmocka_unit_test(test_rerank),         cmocka_unit_test(test_causal_rerank),
        cmocka_unit_test(test_language_model),
    };
    return cmocka_run_group_tests_name("server_encoder", tests, NULL, NULL);
}
