/* test_server_embeddings.c: /v1/embeddings compared with hidden states from the library; many
 * inputs during a stream; and bad requests. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server_case.h"

enum { N_EMBD = 256, N_CTX = 256 };
#ifdef TEST_SAMPLED
enum { MANY = 12 };
#define STREAMED "25"
#else
enum { MANY = 40 };
#define STREAMED "100"
#endif

static const char *const texts[] = {"It was a dark night and the wind was high.", "Hello",
                                    "She looked at the sea, and said nothing for a long time."};
static server_case c;

static int set_up(void **state) {
    (void)state;
    case_open(&c);
    /* sums do not depend on the other sequences of a step */
    c.options.served.context.kernels = PI_KERNELS_SCALAR;
    case_start(&c);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    case_close(&c);
    return 0;
}

/* ---- the reference --------------------------------------------------------------------------- */

static size_t tokens_of(const char *text, int32_t *tokens) {
    size_t n = 0;
    assert_int_equal(
        pi_tokenize(c.model, text, strlen(text), PI_TOKENIZE_BOS, tokens, N_CTX, &n, NULL), PI_OK);
    return n;
}

/* Computes token by token; pools and scales here. */
static void compute(const char *text, bool last, double *out) {
    pi_context *context;
    pi_session *session;
    int32_t tokens[N_CTX];
    size_t n = tokens_of(text, tokens);
    pi_context_options o = c.options.served.context;
    o.n_ctx = 0;
    assert_int_equal(pi_context_create(c.model, &o, &context, NULL), PI_OK);
    assert_int_equal(pi_session_create(context, N_CTX, &session, NULL), PI_OK);
    for (int k = 0; k < N_EMBD; k++) out[k] = 0;
    for (size_t i = 0; i < n; i++) {
        const pi_input in = {
            .session = session, .tokens = tokens + i, .n_tokens = 1, .hidden = PI_HIDDEN_ALL};
        assert_int_equal(pi_forward(context, &in, 1, NULL), PI_OK);
        for (int k = 0; k < N_EMBD; k++)
            out[k] = (double)pi_hidden(context, 0)[k] + (last ? 0 : out[k]);
    }
    double squares = 0;
    for (int k = 0; k < N_EMBD; k++) squares += out[k] * out[k];
    for (int k = 0; k < N_EMBD; k++) out[k] /= sqrt(squares);
    pi_session_destroy(session);
    pi_context_destroy(context);
}

/* Returns the reference of one of the texts; computed once. */
static void expect(const char *text, bool last, double *out) {
    static struct {
        bool there;
        double vector[N_EMBD];
    } known[3][2];
    int i = 0;
    while (i < 2 && strcmp(texts[i], text) != 0) i++;
    assert_string_equal(texts[i], text);
    if (!known[i][last].there) compute(text, last, known[i][last].vector);
    known[i][last].there = true;
    memcpy(out, known[i][last].vector, sizeof known[i][last].vector);
}

static void check_vector(http_reply *r, int index, const double *want) {
    char path[64];
    double away = 0;
    snprintf(path, sizeof path, "data.%d.embedding", index);
    const json_node *list = http_json(r, path);
    assert_int_equal(json_count(list), N_EMBD);
    for (size_t k = 0; k < N_EMBD; k++) {
        double value = 0;
        assert_true(json_as_double(json_at(list, k), &value));
        away += (value - want[k]) * (value - want[k]);
    }
    if (!(away < 1e-9)) fail_msg("embedding %d: squared error %g", index, away);
    snprintf(path, sizeof path, "data.%d.index", index);
    assert_int_equal(http_int(r, path), index);
}

/* A request with n inputs, texts[0], texts[1] ... in turn; free the result with free(). */
static char *many_inputs(int n) {
    char *body = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&body, &size);
    fprintf(f, "{\"input\":[");
    for (int i = 0; i < n; i++) fprintf(f, "%s\"%s\"", i ? "," : "", texts[i % 3]);
    fprintf(f, "]}");
    assert_int_equal(fclose(f), 0);
    return body;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_mean(void **state) {
    (void)state;
    double want[N_EMBD];
    int32_t tokens[N_CTX];
    size_t n = 0;
    char body[512];
    snprintf(body, sizeof body, "{\"model\":\"x\",\"user\":\"y\",\"input\":[\"%s\",\"%s\",\"%s\"]}",
             texts[0], texts[1], texts[2]);
    http_reply r = http_post(&c, "/v1/embeddings", body);
    assert_int_equal(r.status, 200);
    assert_string_equal(http_text(&r, "object"), "list");
    assert_string_equal(http_text(&r, "data.0.object"), "embedding");
    assert_int_equal(json_count(http_json(&r, "data")), 3);
    for (int i = 0; i < 3; i++) {
        expect(texts[i], false, want);
        check_vector(&r, i, want);
        n += tokens_of(texts[i], tokens);
    }
    assert_int_equal(http_int(&r, "usage.prompt_tokens"), n);
    assert_int_equal(http_int(&r, "usage.total_tokens"), n);
    http_free(&r);
}

/* A string, its ids, ids within an array, and the route without /v1. */
static void test_forms(void **state) {
    (void)state;
    double want[N_EMBD];
    int32_t tokens[N_CTX];
    size_t n = tokens_of(texts[1], tokens);
    char ids[256], body[600];
    int used = 0;
    for (size_t i = 0; i < n; i++)
        used += snprintf(ids + used, sizeof ids - (size_t)used, "%s%d", i ? "," : "", tokens[i]);
    expect(texts[1], false, want);
    static const char *const forms[] = {"{\"input\":\"Hello\"}", "{\"input\":[%s]}",
                                        "{\"input\":[[%s]],\"dimensions\":256}",
                                        "{\"input\":[\"Hello\"],\"encoding_format\":\"float\"}"};
    for (int i = 0; i < 4; i++) {
        const char *gap = strstr(forms[i], "%s");
        size_t head = gap ? (size_t)(gap - forms[i]) : strlen(forms[i]);
        snprintf(body, sizeof body, "%.*s%s%s", (int)head, forms[i], gap ? ids : "",
                 gap ? gap + 2 : "");
        http_reply r = http_post(&c, i % 2 ? "/embeddings" : "/v1/embeddings/", body);
        assert_int_equal(r.status, 200);
        check_vector(&r, 0, want);
        http_free(&r);
    }
}

static int base64_digit(char d) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = strchr(digits, d);
    assert_true(d && at);
    return (int)(at - digits);
}

/* llama.cpp's route: an array of arrays of vectors. */
static void test_native(void **state) {
    (void)state;
    http_reply one = http_post(&c, "/v1/embeddings", "{\"input\":\"Hello there\"}");
    http_reply r = http_post(&c, "/embedding", "{\"content\":[\"x\",\"Hello there\"]}");
    assert_int_equal(json_count(http_json(&r, "")), 2);
    assert_int_equal(http_int(&r, "1.index"), 1);
    const json_node *got = http_json(&r, "1.embedding.0"),
                    *want = http_json(&one, "data.0.embedding");
    assert_int_equal(json_count(got), N_EMBD);
    for (size_t k = 0; k < N_EMBD; k++) {
        double a = 0, b = 1;
        assert_true(json_as_double(json_at(got, k), &a) && json_as_double(json_at(want, k), &b));
        assert_true(a - b < 1e-5 && b - a < 1e-5);
    }
    http_free(&r);
    http_free(&one);
    http_refused(&c, "/embedding", "{}", 400);
}

static void test_base64(void **state) {
    (void)state;
    uint8_t data[N_EMBD * 4 + 3];
    double want[N_EMBD], away = 0;
    http_reply r = http_post(&c, "/v1/embeddings",
                             "{\"input\":\"Hello\",\"encoding_format\":\"base64\"}");
    assert_int_equal(r.status, 200);
    const char *text = http_text(&r, "data.0.embedding");
    assert_int_equal(strlen(text), (N_EMBD * 4 + 2) / 3 * 4);
    assert_string_equal(text + strlen(text) - 2, "=="); /* 1024 bytes are not a multiple of 3 */
    size_t n = 0;
    for (size_t i = 0; text[i] && text[i] != '='; i += 4) {
        int a = base64_digit(text[i]), b = base64_digit(text[i + 1]);
        data[n++] = (uint8_t)(a << 2 | b >> 4);
        if (text[i + 2] == '=') break;
        int e = base64_digit(text[i + 2]), f = base64_digit(text[i + 3]);
        data[n++] = (uint8_t)(b << 4 | e >> 2);
        data[n++] = (uint8_t)(e << 6 | f);
    }
    assert_int_equal(n, N_EMBD * 4);
    expect("Hello", false, want);
    for (int k = 0; k < N_EMBD; k++) {
        float value;
        memcpy(&value, data + 4 * k, sizeof value);
        away += ((double)value - want[k]) * ((double)value - want[k]);
    }
    assert_true(away < 1e-9);
    http_free(&r);
}

/* More inputs than slots while an answer is generated; the answer must equal the answer alone. */
static void test_beside_stream(void **state) {
    (void)state;
    static const char stream[] = "{\"prompt\":\"Once upon a time\",\"max_tokens\":" STREAMED
                                 ",\"stream\":true}";
    double want[N_EMBD];
    http_reply alone = http_post(&c, "/v1/completions", stream);
    char *expected = http_joined(&alone, "choices.0.text", 0);
    char request[512], *body = many_inputs(MANY);
    snprintf(request, sizeof request,
             "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             strlen(stream), stream);
    int fd = socket_open(&c);
    socket_send(fd, request);
    http_reply r = http_post(&c, "/v1/embeddings", body);
    assert_int_equal(r.status, 200);
    for (int k = 0; k < 3; k++) {
        expect(texts[k], false, want);
        for (int i = k; i < MANY; i += 3) check_vector(&r, i, want);
    }
    size_t n = 0;
    char *raw = socket_read_all(fd, &n);
    assert_non_null(strstr(raw, "[DONE]"));
    http_reply again = http_post(&c, "/v1/completions", stream);
    char *got = http_joined(&again, "choices.0.text", 0);
    assert_string_equal(got, expected);
    assert_true(case_metric(&c, "longest_prompt_piece") <= 64);
    free(got);
    free(expected);
    free(raw);
    free(body);
    close(fd);
    http_free(&alone);
    http_free(&again);
    http_free(&r);
}

/* Last-token pooling reuses a slot's prefix; a mean reads all tokens. */
static void test_last(void **state) {
    (void)state;
    double want[N_EMBD];
    char body[256];
    case_stop(&c);
    c.options.served.pooling = SERVER_POOLING_LAST;
    case_start(&c);
    expect(texts[0], true, want);
    snprintf(body, sizeof body, "{\"input\":\"%s\"}", texts[0]);
    for (int i = 0; i < 2; i++) {
        http_reply r = http_post(&c, "/v1/embeddings", body);
        assert_int_equal(r.status, 200);
        check_vector(&r, 0, want);
        http_free(&r);
    }
    int32_t tokens[N_CTX];
    assert_true(case_metric(&c, "prompt_tokens_cached_total") ==
                (double)(tokens_of(texts[0], tokens) - 1));
    case_stop(&c);
    c.options.served.pooling = SERVER_POOLING_MEAN;
    case_start(&c);
    for (int i = 0; i < 2; i++) {
        http_reply r = http_post(&c, "/v1/embeddings", body);
        http_free(&r);
    }
    assert_true(case_metric(&c, "prompt_tokens_cached_total") == 0);
    assert_true(case_metric(&c, "prompt_tokens_total") ==
                2.0 * (double)tokens_of(texts[0], tokens));
}

/* SERVER_POOLING_MODEL uses the pooling of the file. */
static void test_model_pooling(void **state) {
    (void)state;
    static const int64_t kinds[] = {1, 3, 2, 17};
    double want[N_EMBD];
    for (int i = 0; i < 4; i++) {
        server_case other = c;
        pi_model_info info;
        char key[64];
        pi_model_get_info(c.model, &info);
        snprintf(key, sizeof key, "%s.pooling_type", info.architecture);
        const pi_metadata_override one = {.key = key, .type = PI_VALUE_INT, .integer = kinds[i]};
        pi_model_options o = pi_model_default_options();
        o.overrides = &one;
        o.n_overrides = 1;
        assert_int_equal(pi_model_open(CASE_MODEL, &o, &other.model, NULL), PI_OK);
        other.options.served.model = other.model;
        other.options.served.pooling = SERVER_POOLING_MODEL;
        case_start(&other);
        http_reply r = http_post(&other, "/v1/embeddings", "{\"input\":\"Hello\"}");
        assert_int_equal(r.status, i < 2 ? 200 : 400);
        expect("Hello", i == 1, want);
        if (i < 2) check_vector(&r, 0, want);
        http_free(&r);
        case_close(&other);
    }
}

static void test_refused(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{}",
        "{\"input\":null}",
        "{\"input\":7}",
        "{\"input\":{}}",
        "{\"input\":[]}",
        "{\"input\":\"\"}",
        "{\"input\":[\"x\",\"\"]}",
        "{\"input\":[\"x\",3]}",
        "{\"input\":[[1,2],[]]}",
        "{\"input\":[1,{}]}",
        "{\"input\":[-1]}",
        "{\"input\":[1,2147483647]}",
        "{\"input\":[1.5]}",
        "{\"input\":[[[1]]]}",
        "{\"input\":\"x\",\"encoding_format\":\"int8\"}",
        "{\"input\":\"x\",\"encoding_format\":4}",
        "{\"input\":\"x\",\"dimensions\":257}",
        "{\"input\":\"x\",\"dimensions\":0}",
        "{\"input\":\"x\",\"dimensions\":1e300}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        http_refused(&c, "/v1/embeddings", bodies[i], 400);
    /* A text longer than a slot; more than 2048 texts. */
    char *body = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&body, &size);
    fprintf(f, "{\"input\":\"%*s\"}", 4000, "x");
    assert_int_equal(fclose(f), 0);
    http_refused(&c, "/v1/embeddings", body, 400);
    free(body);
    body = many_inputs(2049);
    http_refused(&c, "/v1/embeddings", body, 400);
    free(body);
    http_reply r = http_ask(&c, "GET", "/v1/embeddings", NULL, NULL);
    assert_int_equal(r.status, 405);
    http_free(&r);
}

/* When a client leaves, its slots become free, and its other inputs are never started. */
static void test_leaves(void **state) {
    (void)state;
    char *body = many_inputs(2000), head[128];
    snprintf(head, sizeof head,
             "POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %zu\r\n\r\n",
             strlen(body));
    double before = case_metric(&c, "requests_total");
    int fd = socket_open(&c);
    socket_send(fd, head);
    socket_send(fd, body);
    while (case_metric(&c, "requests_total") == before) {}
    close(fd);
    /* Waits until the server has noticed that the client left: between two inputs there is briefly
     * no sequence. */
    while (case_metric(&c, "requests_left_total") == 0) {}
    while (case_metric(&c, "requests_processing") + case_metric(&c, "requests_deferred") > 0) {}
    assert_true(case_metric(&c, "requests_total") - before < 2000);
    free(body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean),          cmocka_unit_test(test_forms),
        cmocka_unit_test(test_base64),        cmocka_unit_test(test_native),
        cmocka_unit_test(test_beside_stream), cmocka_unit_test(test_last),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_model_pooling),
        cmocka_unit_test(test_leaves),
    };
    return cmocka_run_group_tests_name("server_embeddings", tests, set_up, tear_down);
}
