/* test_server_limits.c: what requests may use of the server, and what it tells about them: limits
 * of keys, shares of the slots, priorities, deadlines, long and short prompts together; ids, log
 * lines and histograms. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "server_case.h"

static server_case c;
static const char *const keys[] = {"k-alice", "k-bob", "k-carol"};
static key_limits limits[3];

static void start(int n_keys) {
    memset(limits, 0, sizeof limits);
    limits[0].name = "alice";
    c.options.api_keys = keys;
    c.options.n_api_keys = n_keys;
    c.options.limits = limits;
}

static http_reply ask_as(int key, const char *path, const char *body) {
    char header[64];
    snprintf(header, sizeof header, "Authorization: Bearer %s\r\n", keys[key]);
    return http_ask(&c, body ? "POST" : "GET", path, header, body);
}

static int status_as(int key, const char *body) {
    http_reply r = ask_as(key, "/v1/completions", body);
    const int status = r.status;
    http_free(&r);
    return status;
}

/* Value of a header of an answer; "" when absent. */
static const char *header_of(const http_reply *r, const char *name) {
    static char value[256];
    char start_of[64];
    snprintf(start_of, sizeof start_of, "\n%s: ", name);
    const char *at = strcasestr(r->headers, start_of);
    value[0] = 0;
    if (at) {
        at += strlen(start_of);
        snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "\r\n"), at);
    }
    return value;
}

static double metric_as(int key, const char *name) {
    char line[128];
    http_reply r = ask_as(key, "/metrics", NULL);
    snprintf(line, sizeof line, "\npowerinfer_%s ", name);
    const char *at = strstr(r.body, line);
    if (!at) fail_msg("no %s", name);
    const double value = strtod(at + strlen(line), NULL);
    http_free(&r);
    return value;
}

static void wait_for(const char *name, double least) {
    for (int i = 0; i < 5000; i++) {
        if (metric_as(0, name) >= least) return;
        usleep(2000);
    }
    fail_msg("%s stays below %g", name, least);
}

#define SHORT "{\"prompt\":\"Once\",\"max_tokens\":1}"

/* ---- limits ---------------------------------------------------------------------------------- */

static void test_requests_per_minute(void **state) {
    (void)state;
    start(2);
    limits[0].requests = 2;
    case_start(&c);
    http_reply r = ask_as(0, "/v1/completions", SHORT);
    assert_int_equal(r.status, 200);
    assert_string_equal(header_of(&r, "x-ratelimit-limit-requests"), "2");
    assert_string_equal(header_of(&r, "x-ratelimit-remaining-requests"), "1");
    assert_in_range(strtol(header_of(&r, "x-ratelimit-reset-requests"), NULL, 10), 29, 30);
    assert_string_equal(header_of(&r, "x-ratelimit-limit-tokens"), "");
    http_free(&r);
    assert_int_equal(status_as(0, SHORT), 200);
    r = ask_as(0, "/v1/completions", SHORT);
    assert_int_equal(r.status, 429);
    assert_in_range(strtol(header_of(&r, "Retry-After"), NULL, 10), 20,
                    30); /* one request each 30 s */
    assert_string_equal(http_text(&r, "error.code"), "rate_limit_exceeded");
    assert_string_equal(http_text(&r, "error.type"), "rate_limit_error");
    http_free(&r);
    r = ask_as(0, "/v1/messages", "{" HELLO ",\"max_tokens\":1}");
    assert_int_equal(r.status, 429);
    assert_string_equal(http_text(&r, "type"), "error");
    assert_string_equal(http_text(&r, "error.type"), "rate_limit_error");
    http_free(&r);
    r = ask_as(0, "/v1/models", NULL); /* uses no model */
    assert_int_equal(r.status, 200);
    http_free(&r);
    for (int i = 0; i < 4; i++) assert_int_equal(status_as(1, SHORT), 200); /* no limits */
    case_stop(&c);
}

static void test_tokens_per_minute(void **state) {
    (void)state;
    start(1);
    limits[0].tokens = 30;
    case_start(&c);
    static const char body[] = "{\"prompt\":\"Once\",\"max_tokens\":40,\"ignore_eos\":true}";
    http_reply r = ask_as(0, "/v1/completions", body);
    assert_int_equal(r.status, 200);
    assert_string_equal(header_of(&r, "x-ratelimit-remaining-tokens"), "30");
    http_free(&r);
    /* more tokens than a minute's worth are used: they have to refill first */
    int status = 200;
    for (int i = 0; i < 1000 && status == 200; i++) status = status_as(0, SHORT);
    assert_int_equal(status, 429);
    r = ask_as(0, "/v1/completions", SHORT);
    assert_in_range(strtol(header_of(&r, "Retry-After"), NULL, 10), 15, 60);
    assert_string_equal(header_of(&r, "x-ratelimit-remaining-tokens"), "0");
    http_free(&r);
    case_stop(&c);
}

/* Begins a long stream with a key. */
static int begin_stream(int key) {
    static const char body[] =
        "{\"prompt\":\"Once\",\"ignore_eos\":true,\"stream\":true,\"n_predict\":-1}";
    char request[512], byte;
    snprintf(request, sizeof request,
             "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             keys[key], strlen(body), body);
    int fd = socket_open(&c);
    socket_send(fd, request);
    assert_int_equal(recv(fd, &byte, 1, 0), 1);
    return fd;
}

/* Less than one request per minute: the first one is allowed. */
static void test_slow_limit(void **state) {
    (void)state;
    start(1);
    limits[0].requests = 0.5;
    case_start(&c);
    assert_int_equal(status_as(0, SHORT), 200);
    http_reply r = ask_as(0, "/v1/completions", SHORT);
    assert_int_equal(r.status, 429);
    assert_in_range(strtol(header_of(&r, "Retry-After"), NULL, 10), 110, 120);
    http_free(&r);
    case_stop(&c);
}

static void test_concurrent(void **state) {
    (void)state;
    start(2);
    limits[0].concurrent = 1;
    c.options.served.n_ctx = 4096;
    case_start(&c);
    int fd = begin_stream(0);
    assert_int_equal(status_as(0, SHORT), 429);
    assert_int_equal(status_as(1, SHORT), 200);
    close(fd);
    int status = 429;
    for (int i = 0; i < 2000 && status == 429; i++) {
        usleep(2000);
        status = status_as(0, SHORT);
    }
    assert_int_equal(status, 200);
    case_stop(&c);
    c.options.served.n_ctx = 256;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Tokens of a slot whose stream lasts until the test closes it. */
enum { HOLDER_CTX = 1 << 15 };

typedef struct question {
    int key, index;
    const char *body;
    pthread_t thread;
} question;

static atomic_int n_done;
static int order[64]; /* indices of questions in the order of their ends */

static void *ask_alone(void *arg) {
    question *q = arg;
    http_reply r = ask_as(q->key, "/v1/completions", q->body);
    const bool good = r.status == 200;
    http_free(&r);
    order[atomic_fetch_add(&n_done, 1)] = q->index;
    return good ? NULL : q;
}

/* Begins the questions one after the other, while a sequence holds the only slot; then frees it,
 * and waits for all. */
static void ask_behind(int holder, question *questions, int n) {
    const double before = metric_as(0, "requests_total");
    atomic_store(&n_done, 0);
    for (int i = 0; i < n; i++) {
        questions[i].index = i;
        assert_int_equal(pthread_create(&questions[i].thread, NULL, ask_alone, &questions[i]), 0);
        wait_for("requests_total", before + i + 1);
    }
    close(holder);
    for (int i = 0; i < n; i++) {
        void *wrong = NULL;
        pthread_join(questions[i].thread, &wrong);
        assert_null(wrong);
    }
}

static int place_of(int index, int n) {
    for (int i = 0; i < n; i++)
        if (order[i] == index) return i;
    return -1;
}

#define LONG "{\"prompt\":\"Once\",\"max_tokens\":250,\"ignore_eos\":true}"
/* Long enough for the order of ends to be that of starts. */
#define ANSWER "{\"prompt\":\"Once\",\"max_tokens\":40,\"ignore_eos\":true%s}"

/* Alice has sent six requests before Bob sends two: Bob's do not wait for all of Alice's. Carol has
 * three times the share of Alice. */
static void test_shares(void **state) {
    (void)state;
    char body[256];
    question q[8] = {{.key = 0}, {.key = 0}, {.key = 0}, {.key = 0},
                     {.key = 0}, {.key = 0}, {.key = 1}, {.key = 1}};
    snprintf(body, sizeof body, ANSWER, "");
    start(3);
    limits[2].share = 3;
    c.options.served.n_slots = 1;
    c.options.served.n_ctx = HOLDER_CTX;
    case_start(&c);
    for (int i = 0; i < 8; i++) q[i].body = body;
    ask_behind(begin_stream(0), q, 8);
    assert_true(place_of(6, 8) <= 1 && place_of(7, 8) <= 3);
    case_stop(&c);
    /* what Alice used while nobody else asked is no debt: Bob's requests do not all go first */
    case_start(&c);
    question even[6] = {{.key = 1}, {.key = 1}, {.key = 1}, {.key = 0}, {.key = 0}, {.key = 0}};
    for (int i = 0; i < 6; i++) even[i].body = body;
    for (int i = 0; i < 3; i++) assert_int_equal(status_as(0, LONG), 200);
    ask_behind(begin_stream(1), even, 6);
    int early = 0;
    for (int i = 0; i < 3; i++) early += order[i] >= 3;
    assert_true(early >= 1);
    case_stop(&c);
    /* four of each; Carol's requests count a third */
    case_start(&c);
    question w[8] = {{.key = 0}, {.key = 0}, {.key = 0}, {.key = 0},
                     {.key = 2}, {.key = 2}, {.key = 2}, {.key = 2}};
    for (int i = 0; i < 8; i++) w[i].body = body;
    ask_behind(begin_stream(1), w, 8);
    int alice = 0;
    for (int i = 0; i < 4; i++) alice += order[i] < 4;
    assert_true(alice <= 2); /* of the first four answers one is Alice's, or two by a tie */
    assert_true(place_of(7, 8) <= 5);
    case_stop(&c);
    c.options.served.n_slots = 4;
    c.options.served.n_ctx = 256;
}

static void test_priorities(void **state) {
    (void)state;
    char plain[256], urgent[256], later[256];
    snprintf(plain, sizeof plain, ANSWER, "");
    snprintf(urgent, sizeof urgent, ANSWER, ",\"priority\":-2");
    snprintf(later, sizeof later, ANSWER, ",\"priority\":5");
    question q[4] = {{.key = 0, .body = later},
                     {.key = 0, .body = plain},
                     {.key = 1, .body = urgent},
                     {.key = 0, .body = urgent}};
    start(2);
    limits[1].has_priority = true; /* Bob's requests are not urgent, whatever they say */
    limits[1].priority = 1;
    c.options.served.n_slots = 1;
    c.options.served.n_ctx = HOLDER_CTX;
    case_start(&c);
    ask_behind(begin_stream(0), q, 4);
    static const int expected[] = {3, 1, 2, 0};
    for (int i = 0; i < 4; i++) assert_int_equal(order[i], expected[i]);
    http_reply r = ask_as(0, "/v1/completions", "{\"prompt\":\"a\",\"priority\":\"high\"}");
    assert_int_equal(r.status, 400);
    http_free(&r);
    case_stop(&c);
    c.options.served.n_slots = 4;
    c.options.served.n_ctx = 256;
}

/* In the queue a request ends with status 504 when its time is over; in a slot its text is cut. */
static void test_timeouts(void **state) {
    (void)state;
    start(1);
    c.options.served.n_slots = 1;
    c.options.served.n_ctx = 1 << 16;
    case_start(&c);
    int fd = begin_stream(0);
    http_reply r = ask_as(0, "/v1/completions", "{\"prompt\":\"a\",\"timeout\":0.1}");
    assert_int_equal(r.status, 504);
    assert_string_equal(http_text(&r, "error.type"), "timeout_error");
    http_free(&r);
    r = ask_as(0, "/v1/embeddings", "{\"input\":\"a\",\"timeout\":0.1}");
    assert_int_equal(r.status, 504);
    http_free(&r);
    close(fd);
    r = ask_as(0, "/v1/completions",
               "{\"prompt\":\"Once\",\"ignore_eos\":true,\"max_tokens\":60000,\"timeout\":1}");
    assert_int_equal(r.status, 200);
    assert_string_equal(http_text(&r, "choices.0.finish_reason"), "length");
    assert_in_range(http_int(&r, "usage.completion_tokens"), 1, 59999);
    http_free(&r);
    assert_true(metric_as(0, "requests_late_total") == 3);
    assert_int_equal(status_as(0, "{\"prompt\":\"a\",\"timeout\":-1}"), 400);
    assert_int_equal(status_as(0, "{\"prompt\":\"a\",\"timeout\":\"1\"}"), 400);
    case_stop(&c);
    c.options.served.n_slots = 4;
    c.options.served.n_ctx = 256;
}

enum { N_LONG = 3000 /* tokens */ };

/* Asks a short question while a long prompt is read. True: it was answered first. */
static bool overtakes(int attempt) {
    const size_t room = 16 * N_LONG + 256;
    char *body = malloc(room);
    size_t used = (size_t)snprintf(body, room, "{\"max_tokens\":1,\"prompt\":[1");
    for (int i = 0; i < N_LONG; i++) /* no prefix of an earlier attempt */
        used += (size_t)snprintf(body + used, room - used, ",%d", 300 + (i + attempt) % 500);
    snprintf(body + used, 8, "]}");
    question q = {.key = 0, .body = body};
    const double before = metric_as(0, "prompt_tokens_total");
    assert_int_equal(pthread_create(&q.thread, NULL, ask_alone, &q), 0);
    wait_for("prompt_tokens_total", before + 64); /* the long prompt has begun */
    assert_int_equal(status_as(0, "{\"prompt\":\"A short question\",\"max_tokens\":1}"), 200);
    const bool first = metric_as(0, "prompt_tokens_total") < before + N_LONG;
    void *wrong = NULL;
    pthread_join(q.thread, &wrong);
    assert_null(wrong);
    free(body);
    return first;
}

/* While a long prompt is read, sequences that generate get a token with every ubatch, and a short
 * prompt that came later is answered first (if the test's threads are not held up meanwhile). */
static void test_long_prompt(void **state) {
    (void)state;
    bool first = false;
    start(1);
    c.options.served.n_ctx = 1 << 14;
    case_start(&c);
    int fd = begin_stream(0);
    for (int i = 0; i < 5 && !first; i++) first = overtakes(i);
    assert_true(first);
    assert_true(metric_as(0, "longest_token_gap_ubatches") == 1);
    assert_true(metric_as(0, "longest_prompt_piece") == 64);
    close(fd);
    case_stop(&c);
    c.options.served.n_ctx = 256;
}

/* ---- what the server tells ------------------------------------------------------------------- */

static char log_text[1 << 16];
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void take_line(const char *line, size_t n) {
    pthread_mutex_lock(&log_lock);
    const size_t used = strlen(log_text);
    if (used + n < sizeof log_text) memcpy(log_text + used, line, n);
    pthread_mutex_unlock(&log_lock);
}

/* The line of the request with this id, parsed; waits for it. */
static json_doc *logged(const char *id) {
    char text[4096];
    for (int i = 0; i < 5000; i++) {
        pthread_mutex_lock(&log_lock);
        const char *at = strstr(log_text, id);
        text[0] = 0;
        if (at) {
            while (at > log_text && at[-1] != '\n') at--;
            snprintf(text, sizeof text, "%.*s", (int)strcspn(at, "\n"), at);
        }
        pthread_mutex_unlock(&log_lock);
        json_doc *doc = NULL;
        if (text[0] && json_parse(text, strlen(text), "line", &doc, NULL) == PI_OK) return doc;
        usleep(2000);
    }
    fail_msg("no line of %s: %s", id, log_text);
    return NULL;
}

static int64_t int_of(const json_doc *doc, const char *name) {
    int64_t value = -1;
    json_as_int(json_get(json_root(doc), name), &value);
    return value;
}

static const char *text_of(const json_doc *doc, const char *name) {
    const char *text = "";
    size_t n;
    json_as_string(json_get(json_root(doc), name), &text, &n);
    return text;
}

static void test_log(void **state) {
    (void)state;
    start(2);
    c.options.log_request = take_line;
    case_start(&c);
    for (int stream = 0; stream < 2; stream++) {
        char body[128], headers[256], id[32];
        snprintf(id, sizeof id, "my-id-%d", stream);
        snprintf(headers, sizeof headers, "x-api-key: %s\r\nX-Request-Id: %s\r\n", keys[0], id);
        snprintf(body, sizeof body, "{\"prompt\":\"Once\",\"max_tokens\":5,\"ignore_eos\":true%s}",
                 stream ? ",\"stream\":true" : "");
        http_reply r = http_ask(&c, "POST", "/v1/completions", headers, body);
        assert_string_equal(header_of(&r, "X-Request-Id"), id);
        http_free(&r);
        json_doc *doc = logged(id);
        assert_string_equal(text_of(doc, "route"), "/v1/completions");
        assert_string_equal(text_of(doc, "model"), "novella");
        assert_string_equal(text_of(doc, "key"), "alice");
        assert_int_equal(int_of(doc, "status"), 200);
        assert_int_equal(int_of(doc, "completion_tokens"), 5);
        assert_true(int_of(doc, "prompt_tokens") > 0);
        assert_non_null(json_get(json_root(doc), "first_token_seconds"));
        json_free(doc);
    }
    http_reply r = http_ask(&c, "GET", "/v1/models", "X-Request-Id: evil\x7f\"\r\n", NULL);
    assert_int_equal(r.status, 401);
    char id[64];
    snprintf(id, sizeof id, "%s", header_of(&r, "X-Request-Id"));
    assert_true(strncmp(id, "req_", 4) == 0);
    http_free(&r);
    json_doc *doc = logged(id);
    assert_int_equal(int_of(doc, "status"), 401);
    assert_int_equal(json_kind_of(json_get(json_root(doc), "key")), JSON_NULL);
    json_free(doc);
    r = ask_as(1, "/v1/models", NULL);
    snprintf(id, sizeof id, "%s", header_of(&r, "X-Request-Id"));
    http_free(&r);
    doc = logged(id);
    assert_string_equal(text_of(doc, "key"), "key 2");
    json_free(doc);
    case_stop(&c);
    c.options.log_request = NULL;
    for (int i = 0; i < 3; i++) assert_null(strstr(log_text, keys[i]));
}

/* Counts of a histogram's buckets, which must not fall; returns the count of all. */
static double check_histogram(const http_reply *r, const char *name) {
    char start_of[128];
    double last = 0, value = 0;
    int n = 0;
    snprintf(start_of, sizeof start_of, "\npowerinfer_%s_bucket{le=\"", name);
    for (const char *at = r->body; (at = strstr(at, start_of)); n++) {
        at += strlen(start_of);
        value = strtod(strchr(at, '}') + 1, NULL);
        assert_true(value >= last);
        last = value;
    }
    assert_true(n > 10);
    snprintf(start_of, sizeof start_of, "\npowerinfer_%s_count ", name);
    const char *count = strstr(r->body, start_of);
    assert_non_null(count);
    assert_true(strtod(count + strlen(start_of), NULL) == last); /* the last bucket is +Inf */
    snprintf(start_of, sizeof start_of, "\npowerinfer_%s_sum ", name);
    const char *sum = strstr(r->body, start_of);
    assert_non_null(sum);
    assert_true(strtod(sum + strlen(start_of), NULL) > 0 || last == 0);
    return last;
}

static void test_histograms(void **state) {
    (void)state;
    enum { N = 3, TOKENS = 7 };
    start(1);
    case_start(&c);
    for (int i = 0; i < N; i++)
        assert_int_equal(status_as(0, "{\"prompt\":\"Once\",\"max_tokens\":7,\"ignore_eos\":true}"),
                         200);
    http_reply r = ask_as(0, "/metrics", NULL);
    for (int i = 0; i < 5000 && check_histogram(&r, "e2e_request_latency_seconds") < N; i++) {
        http_free(&r); /* the last request ends after its answer */
        usleep(2000);
        r = ask_as(0, "/metrics", NULL);
    }
    assert_true(check_histogram(&r, "e2e_request_latency_seconds") == N);
    assert_true(check_histogram(&r, "request_queue_time_seconds") == N);
    assert_true(check_histogram(&r, "time_to_first_token_seconds") == N);
    assert_true(check_histogram(&r, "inter_token_latency_seconds") == N * (TOKENS - 1));
    http_free(&r);
    case_stop(&c);
}

static int open_all(void **state) {
    (void)state;
    case_open(&c);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    case_close(&c);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_per_minute),
        cmocka_unit_test(test_tokens_per_minute),
        cmocka_unit_test(test_slow_limit),
        cmocka_unit_test(test_concurrent),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_priorities),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_long_prompt),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_histograms),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
