/* test_server_http.c: invalid, slow and hostile requests, and clients that leave. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/resource.h>
#endif

#include <cmocka.h>

#include "clock.h"
#include "powerinfer_tools.h"
#include "server_case.h"

static server_case c;

static int set_up(void **state) {
    (void)state;
    case_open(&c);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    case_close(&c);
    return 0;
}

static int status_of(const char *method, const char *path, const char *headers, const char *body) {
    http_reply r = http_ask(&c, method, path, headers, body);
    int status = r.status;
    http_free(&r);
    return status;
}

/* Waits until a metric is at least (or at most) a value; fails after half a minute. */
static void wait_for(const char *name, double value, bool least) {
    double end = clock_seconds() + 30;
    for (;;) {
        double now = case_metric(&c, name);
        if (least ? now >= value : now <= value) return;
        if (clock_seconds() > end) fail_msg("%s is %g", name, now);
        usleep(10000);
    }
}

static void test_routes(void **state) {
    (void)state;
    case_start(&c);
    static const char *const gets[] = {"/health", "/v1/models", "/v1/models/", "/props",
                                       "/slots",  "/metrics",   "/v1/health"};
    for (size_t i = 0; i < sizeof gets / sizeof *gets; i++) {
        assert_int_equal(status_of("GET", gets[i], NULL, NULL), 200);
        const int post = strcmp(gets[i], "/props") == 0 ? 501 : 405; /* props: only if allowed */
        assert_int_equal(status_of("POST", gets[i], NULL, "{}"), post);
    }
    assert_int_equal(status_of("GET", "/nothing", NULL, NULL), 404);
    assert_int_equal(status_of("GET", "/v1/completions", NULL, NULL), 405);
    assert_int_equal(status_of("BREW", "/v1/completions", NULL, NULL), 405);
    http_reply r = http_ask(&c, "GET", "/slots", NULL, NULL);
    assert_int_equal(json_count(http_json(&r, "")), 4);
    http_free(&r);
    r = http_ask(&c, "GET", "/v1/models", NULL, NULL);
    assert_string_equal(http_text(&r, "data.0.id"), "novella");
    http_free(&r);
    r = http_ask(&c, "GET", "/v1/models/novella", NULL, NULL);
    assert_string_equal(http_text(&r, "id"), "novella");
    http_free(&r);
    assert_int_equal(status_of("GET", "/v1/models/other", NULL, NULL), 404);
    assert_int_equal(status_of("POST", "/v1/completions", "Content-Encoding: gzip\r\n", "{}"), 415);
    assert_int_equal(
        status_of("POST", "/tokenize", "Content-Encoding: identity\r\n", "{\"content\":\"a\"}"),
        200);
    case_stop(&c);
}

static void test_bad_bodies(void **state) {
    (void)state;
    case_start(&c);
    static const char *const bodies[] = {"",
                                         "{",
                                         "[]",
                                         "null",
                                         "3",
                                         "\"x\"",
                                         "{\"prompt\":}",
                                         "{\"prompt\":\"\xff\xfe\"}",
                                         "{\"prompt\":\"a\",\"prompt\":\"b\"}",
                                         "{\"prompt\":{}}",
                                         "{\"prompt\":[]}",
                                         "{\"prompt\":[-1]}",
                                         "{\"prompt\":[99999999]}",
                                         "{\"prompt\":[1.5]}",
                                         "{\"prompt\":[[]]}",
                                         "{\"prompt\":\"a\",\"echo\":\"yes\"}",
                                         "{\"prompt\":\"a\",\"suffix\":\"b\"}",
                                         "{\"prompt\":\"\\ud800\"}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        http_refused(&c, "/v1/completions", bodies[i], 400);
        http_refused(&c, "/v1/chat/completions", bodies[i], 400);
        http_refused(&c, "/v1/messages", bodies[i], 400);
        http_refused(&c, "/v1/responses", bodies[i], 400);
        http_refused(&c, "/tokenize", bodies[i], 400);
    }
    size_t n = 200000;
    char *deep = malloc(n + 1);
    memset(deep, '[', n);
    deep[n] = 0;
    http_refused(&c, "/v1/completions", deep, 400);
    /* A prompt longer than the context is an error; the server does not truncate it. */
    size_t at = (size_t)snprintf(deep, n, "{\"prompt\":\"");
    for (int i = 0; i < 2000; i++) at += (size_t)snprintf(deep + at, n - at, "word ");
    snprintf(deep + at, n - at, "\"}");
    http_refused(&c, "/v1/completions", deep, 400);
    free(deep);
    case_stop(&c);
}

#ifdef __linux__
/* Number of threads of this process with a lower priority than this one. */
static int nice_threads(void) {
    int n = 0;
    const int own = getpriority(PRIO_PROCESS, 0);
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *e; tasks && (e = readdir(tasks));)
        n += getpriority(PRIO_PROCESS, (id_t)strtoul(e->d_name, NULL, 10)) > own;
    if (tasks) closedir(tasks);
    return n;
}
#endif

/* Prompts that cannot fit are refused before they are tokenized to their end, and threads with a
 * lower priority than the compute threads read the texts. */
static void test_long_texts(void **state) {
    (void)state;
    enum { N = 4 << 20 };
    char *body = malloc(N + 256);
    case_start(&c);
    static const char *const forms[][3] = {
        {"/v1/completions", "{\"prompt\":\"", "\"}"},
        {"/v1/completions", "{\"prompt\":[\"a\",\"", "\",7]}"},
        {"/v1/embeddings", "{\"input\":[\"a\",\"", "\"]}"},
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"", "\"}]}"}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        size_t n = (size_t)snprintf(body, N, "%s", forms[i][1]);
        for (; n < N; n += 4) memcpy(body + n, "abc ", 4);
        snprintf(body + n, 256, "%s", forms[i][2]);
        http_reply r = http_post(&c, forms[i][0], body);
        assert_int_equal(r.status, 400);
        if (!strstr(http_text(&r, "error.message"), "has at least ")) fail_msg("%s", r.body);
        http_free(&r);
    }
    free(body);
#ifdef __linux__
    char byte;
    /* the threads of the answers above end by themselves */
    while (nice_threads() > 0) usleep(1000);
    int fd = socket_open(&c);
    socket_send(fd, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_int_equal(recv(fd, &byte, 1, 0), 1);
    assert_int_equal(nice_threads(), 1);
    close(fd);
#endif
    case_stop(&c);
}

static void test_sizes(void **state) {
    (void)state;
    case_start(&c);
    size_t n;
    int fd = socket_open(&c);
    socket_send(
        fd,
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n");
    char *data = socket_read_all(fd, &n);
    assert_non_null(strstr(data, " 413 "));
    free(data);
    close(fd);
    char *path = malloc(5000);
    memset(path, 'a', 4999);
    path[0] = '/';
    path[4999] = 0;
    assert_int_equal(status_of("GET", path, NULL, NULL), 414);
    free(path);
    char *headers = malloc(100100);
    size_t at = 0;
    for (int i = 0; i < 1000; i++)
        at += (size_t)snprintf(headers + at, 100, "X-%d: %060d\r\n", i, i);
    fd = socket_open(&c);
    socket_send(fd, "GET /health HTTP/1.1\r\nHost: localhost\r\n");
    socket_send(fd, headers);
    socket_send(fd, "\r\n");
    data = socket_read_all(fd, &n);
    assert_true(n == 0 || strstr(data, " 431 ") || strstr(data, " 413 "));
    free(data);
    free(headers);
    close(fd);
    assert_int_equal(status_of("GET", "/health", NULL, NULL), 200);
    case_stop(&c);
}

static void test_keys(void **state) {
    (void)state;
    static const char *const keys[] = {"first-key", "second"};
    c.options.api_keys = keys;
    c.options.n_api_keys = 2;
    case_start(&c);
    static const char *const wrong[] = {NULL,
                                        "Authorization: Bearer \r\n",
                                        "Authorization: Bearer first-ke\r\n",
                                        "Authorization: Bearer first-key2\r\n",
                                        "Authorization: first-key\r\n",
                                        "x-api-key: third\r\n"};
    static const char *const right[] = {"Authorization: Bearer first-key\r\n",
                                        "authorization: bearer second\r\n",
                                        "x-api-key: second\r\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(status_of("GET", "/v1/models", wrong[i], NULL), 401);
        assert_int_equal(status_of("GET", "/nothing", wrong[i], NULL), 401);
        assert_int_equal(status_of("GET", "/health", wrong[i], NULL), 200);
        /* the page is public: keys are entered there */
        assert_int_equal(status_of("GET", "/", wrong[i], NULL), 200);
    }
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        assert_int_equal(status_of("GET", "/v1/models", right[i], NULL), 200);
    case_stop(&c);
    c.options.n_api_keys = 0;
}

static void test_origins(void **state) {
    (void)state;
    static const char *const named[] = {"https://good.example"};
    c.options.origins = named;
    c.options.n_origins = 1;
    case_start(&c);
    http_reply r = http_ask(&c, "GET", "/health", NULL, NULL);
    assert_null(strcasestr(r.headers, "Access-Control"));
    http_free(&r);
    assert_int_equal(status_of("POST", "/v1/completions", "Origin: https://evil.example\r\n", "{}"),
                     403);
    assert_int_equal(status_of("GET", "/health", "Origin: http://127.0.0.1\r\n", NULL), 200);
    r = http_ask(&c, "OPTIONS", "/v1/completions",
                 "Origin: https://good.example\r\n"
                 "Access-Control-Request-Headers: authorization,x-stainless-os\r\n",
                 NULL);
    assert_int_equal(r.status, 204);
    assert_non_null(strcasestr(r.headers, "Access-Control-Allow-Headers: "
                                          "authorization,x-stainless-os"));
    assert_non_null(strcasestr(r.headers, "Access-Control-Allow-Origin: https://good.example"));
    http_free(&r);
    case_stop(&c);
    c.options.n_origins = 0;
}

/* The status of a request with this Host and, unless it is NULL, this Origin. */
static int status_for(const char *host, const char *origin) {
    char text[512];
    size_t n;
    int status = 0;
    snprintf(text, sizeof text,
             "POST /tokenize HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s%s%s"
             "Content-Length: 15\r\n\r\n{\"content\":\"x\"}",
             host, origin ? "Origin: " : "", origin ? origin : "", origin ? "\r\n" : "");
    int fd = socket_open(&c);
    socket_send(fd, text);
    char *data = socket_read_all(fd, &n);
    if (sscanf(data, "HTTP/1.1 %d", &status) != 1) fail_msg("%s: %s", host, data);
    free(data);
    close(fd);
    return status;
}

/* For a browser, a page whose name now resolves to this machine has the same origin. */
static void test_foreign_hosts(void **state) {
    (void)state;
    static const char *const keys[] = {"key"};
    static const char *const named[] = {"https://good.example:444"};
    static const struct {
        const char *host, *origin;
        int status;
    } cases[] = {{"evil.example:8080", NULL, 403},
                 {"evil.example:8080", "http://evil.example:8080", 403},
                 {"127.0.0.1.evil.example", NULL, 403},
                 {"localhost.evil.example", NULL, 403},
                 {"10.0.0.1", NULL, 403},
                 {"[2001:db8::1]:8080", NULL, 403},
                 {"good.example:444", "https://good.example:444", 200},
                 {"good.example", NULL, 200},
                 {"localhost", NULL, 200},
                 {"LOCALHOST:8080", "http://localhost:8080", 200},
                 {"localhost:8080", "http://127.0.0.1:8080", 200},
                 {"127.0.0.1:8080", "http://localhost:8080", 200},
                 {"[::1]:8080", "http://localhost:8080", 200},
                 {"127.1.2.3:8080", "http://localhost:8080", 200},
                 {"localhost:8080", "http://localhost:8081", 403},
                 {"localhost:8080", "http://localhost", 403},
                 {"localhost", "null", 403},
                 {"localhost", "http://evil.example", 403}};
    c.options.origins = named;
    c.options.n_origins = 1;
    case_start(&c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (status_for(cases[i].host, cases[i].origin) != cases[i].status)
            fail_msg("Host %s, Origin %s: not %d", cases[i].host,
                     cases[i].origin ? cases[i].origin : "-", cases[i].status);
    assert_int_equal(status_for("127.1:8080", NULL), 403);
    case_stop(&c);
    c.options.n_origins = 0;
    /* The server's --host, which resolves to this machine. */
    c.options.host = "127.1";
    case_start(&c);
    assert_int_equal(status_for("127.1:8080", NULL), 200);
    assert_int_equal(status_for("evil.example", NULL), 403);
    case_stop(&c);
    /* With a key, pages that do not know the key have no access, and Host may be any name. */
    c.options.host = "127.0.0.1";
    c.options.api_keys = keys;
    c.options.n_api_keys = 1;
    case_start(&c);
    assert_int_equal(status_for("evil.example", "http://evil.example"), 401);
    assert_int_equal(status_for("evil.example", "http://evil.example\r\nx-api-key: key"), 200);
    case_stop(&c);
    c.options.n_api_keys = 0;
    c.options.origins = NULL;
}

/* Requests whose headers leave their end or their recipient ambiguous are refused, and nothing
 * after them is parsed as another request. */
static void test_framing(void **state) {
    (void)state;
    static const struct {
        const char *headers; /* headers of a body of 15 bytes */
        const char *status;
    } cases[] = {
        {"Host: localhost\r\nContent-Length: 15\r\n", " 200 "},
        {"Content-Length: 15\r\n", " 400 "},
        {"Host: localhost\r\nHost: localhost\r\nContent-Length: 15\r\n", " 400 "},
        {"Host: localhost\r\nContent-Length: 15\r\nContent-Length: 15\r\n", " 400 "},
        {"Host: localhost\r\nContent-Length: 15\r\ncontent-length: 2\r\n", " 400 "},
        {"Host: localhost\r\nContent-Length: +15\r\n", " 400 "},
        {"Host: localhost\r\nContent-Length: 15, 15\r\n", " 400 "},
        {"Host: localhost\r\nContent-Length : 15\r\n", " 400 "},
        {"Host: localhost\r\nContent-Length: 15\r\nTransfer-Encoding: chunked\r\n", " 400 "},
        {"Host: localhost\r\nTransfer-Encoding: gzip\r\n", " 400 "},
        {"Host: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
         " 400 "}};
    case_start(&c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        size_t n;
        snprintf(text, sizeof text,
                 "POST /tokenize HTTP/1.1\r\n%s\r\n{\"content\":\"x\"}"
                 "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                 cases[i].headers);
        int fd = socket_open(&c);
        socket_send(fd, text);
        char *data = socket_read_all(fd, &n);
        const char *line = strstr(data, cases[i].status);
        if (!line || line > strchr(data, '\r')) fail_msg("%s: %s", cases[i].headers, data);
        bool second = strstr(data, "{\"status\":\"ok\"}") != NULL;
        if (second != (i == 0)) fail_msg("%s: %s", cases[i].headers, data);
        free(data);
        close(fd);
    }
    assert_int_equal(status_of("GET", "/health%00x", NULL, NULL), 404);
    assert_int_equal(status_of("GET", "/health%00", NULL, NULL), 404);
    assert_int_equal(status_of("GET", "/heal%74h", NULL, NULL), 200);
    case_stop(&c);
}

/* With isolated keys, a key does not share the cache of another key, and /slots hides its slots
 * from others. */
static void test_isolated_keys(void **state) {
    (void)state;
    static const char *const keys[] = {"one", "two"};
    static const char one[] = "x-api-key: one\r\n", two[] = "x-api-key: two\r\n";
    static const char body[] =
        "{\"max_tokens\":1,\"prompt\":\"The river ran past the old mill, and the miller's daughter "
        "sat by the water every evening to watch the boats.\"}";
    static const char form[] =
        "{\"max_tokens\":1,\"prompt\":\"x\",\"grammar\":\"root ::= [a-z]+\"}";
    static const char cached[] = "usage.prompt_tokens_details.cached_tokens";
    c.options.api_keys = keys;
    c.options.n_api_keys = 2;
    for (int isolated = 0; isolated < 2; isolated++) {
        c.options.isolates_keys = isolated;
        case_start(&c);
        static const char *const asking[] = {one, one, two, two};
        for (int i = 0; i < 4; i++) {
            http_reply r = http_ask(&c, "POST", "/v1/completions", asking[i], body);
            bool has = http_int(&r, cached) > 0;
            assert_int_equal(has, i == 1 || i == 3 || (i == 2 && !isolated));
            http_free(&r);
        }
        assert_int_equal(status_of("POST", "/v1/completions", one, form), 200);
        assert_int_equal(status_of("POST", "/v1/completions", two, form), 200);
        http_reply r = http_ask(&c, "GET", "/metrics", one, NULL);
        assert_non_null(strstr(r.body, isolated ? "\npowerinfer_grammars_compiled_total 2\n"
                                                : "\npowerinfer_grammars_compiled_total 1\n"));
        http_free(&r);
        r = http_ask(&c, "GET", "/slots", one, NULL);
        int seen = 0;
        for (size_t i = 0; i < json_count(http_json(&r, "")); i++)
            seen += json_get(json_at(http_json(&r, ""), i), "n_tokens") != NULL;
        assert_true(isolated ? seen < 4 : seen == 4);
        http_free(&r);
        case_stop(&c);
    }
    c.options.isolates_keys = false;
    c.options.n_api_keys = 0;
}

#define LONG_STREAM                                                                                \
    "{\"prompt\":\"Once\",\"stream\":true,\"ignore_eos\":true,\"temperature\":1,\"max_tokens\":"   \
    "250}"

static int begin_stream(const char *body) {
    char text[4096];
    int fd = socket_open(&c);
    snprintf(text, sizeof text,
             "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    socket_send(fd, text);
    return fd;
}

/* A request that takes a while on any machine: many choices on one slot. */
static const char busy_body[] =
    "{\"prompt\":\"Once\",\"ignore_eos\":true,\"temperature\":1,\"max_tokens\":250,\"n\":32}";

/* Clients that leave, with and without a stream, in the queue and in a slot, cost no more time. */
static void test_clients_that_leave(void **state) {
    (void)state;
    c.options.served.n_slots = 1;
    case_start(&c);
    int whole = begin_stream(busy_body), stream = begin_stream(LONG_STREAM);
    wait_for("requests_processing", 1, true);
    wait_for("requests_total", 33, true);
    shutdown(whole, SHUT_RDWR);
    close(whole);
    close(stream);
    wait_for("requests_left_total", 2, true);
    wait_for("requests_processing", 0, false);
    wait_for("requests_deferred", 0, false);
    assert_true(case_metric(&c, "tokens_predicted_total") < 33 * 250);
    case_stop(&c);
    c.options.served.n_slots = 4;
}

static void test_full_queue(void **state) {
    (void)state;
    c.options.served.n_slots = 1;
    c.options.served.max_queue = 31;
    case_start(&c);
    int fd = begin_stream(busy_body);
    wait_for("requests_total", 32, true);
    http_reply r = http_post(&c, "/v1/completions", "{\"prompt\":\"Once\",\"n\":32}");
    assert_int_equal(r.status, 503);
    assert_non_null(strcasestr(r.headers, "Retry-After: "));
    assert_int_equal(http_int(&r, "error.code"), 503);
    http_free(&r);
    close(fd);
    wait_for("requests_deferred", 0, false);
    wait_for("requests_processing", 0, false);
    assert_int_equal(
        status_of("POST", "/v1/completions", NULL, "{\"prompt\":\"a\",\"max_tokens\":1}"), 200);
    case_stop(&c);
    c.options.served.n_slots = 4;
    c.options.served.max_queue = 256;
}

/* While other sequences generate, a long prompt is read in pieces. */
static void test_pieces(void **state) {
    (void)state;
    char body[2048] = "{\"max_tokens\":1,\"prompt\":[1";
    case_start(&c);
    int fd = begin_stream(LONG_STREAM);
    wait_for("tokens_predicted_total", 1, true);
    for (int i = 0; i < 230; i++) snprintf(body + strlen(body), 16, ",%d", 300 + i);
    snprintf(body + strlen(body), 8, "]}");
    http_refused(&c, "/v1/completions", "{\"prompt\":[]}", 400);
    assert_int_equal(status_of("POST", "/v1/completions", NULL, body), 200);
    double longest = case_metric(&c, "longest_prompt_piece");
    assert_true(longest > 0 && longest <= 64);
    close(fd);
    case_stop(&c);
}

/* One byte per second satisfies libmicrohttpd; the server's time limit closes the connection. */
static void test_slow_request(void **state) {
    (void)state;
    c.options.read_seconds = 1;
    case_start(&c);
    int fd = socket_open(&c);
    double begin = clock_seconds();
    socket_send(fd, "GET /health HTTP/1.1\r\nX: ");
    char byte;
    for (;;) {
        socket_send(fd, "a");
        server_tick(c.server);
        if (recv(fd, &byte, 1, MSG_DONTWAIT) == 0) break;
        if (clock_seconds() - begin > 20) fail_msg("still open");
        usleep(50000);
    }
    assert_true(clock_seconds() - begin >= 1);
    close(fd);
    assert_int_equal(status_of("GET", "/health", NULL, NULL), 200);
    case_stop(&c);
    c.options.read_seconds = 60;
}

/* Half of a request; clients that close their side before the answer receive an error. */
static void test_half_closed(void **state) {
    static const char gone[] = "\"code\":400,\"message\":\"the client closed its side";
    static const char *const bodies[] = {busy_body, LONG_STREAM};
#if defined(_WIN32) /* libmicrohttpd ends a stream there when the client has closed its side */
    enum { N_BODIES = 1 };
#else
    enum { N_BODIES = 2 };
#endif
    (void)state;
    size_t n;
    c.options.served.n_slots = 1;
    case_start(&c);
    int fd = socket_open(&c);
    socket_send(
        fd,
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"pro");
    shutdown(fd, SHUT_WR);
    free(socket_read_all(fd, &n));
    close(fd);
    for (int i = 0; i < N_BODIES; i++) {
        fd = begin_stream(bodies[i]);
        wait_for("requests_processing", 1, true);
        shutdown(fd, SHUT_WR);
        char *answer = socket_read_all(fd, &n);
        if (i == 0) assert_non_null(strstr(answer, "HTTP/1.1 400 "));
        if (!strstr(answer, gone)) fail_msg("%s", answer);
        free(answer);
        close(fd);
        wait_for("requests_processing", 0, false);
        wait_for("requests_deferred", 0, false);
    }
    case_stop(&c);
    c.options.served.n_slots = 4;
}

#ifdef TEST_SANITIZED
enum { MANY = 200 };
#else
enum { MANY = 1000 };
#endif

static void test_many_connections(void **state) {
    (void)state;
    static int fds[MANY];
    case_start(&c);
    for (int i = 0; i < MANY; i++) fds[i] = socket_open(&c);
    assert_int_equal(status_of("GET", "/health", NULL, NULL), 200);
    for (int i = 0; i < MANY; i++) close(fds[i]);
    assert_int_equal(status_of("GET", "/health", NULL, NULL), 200);
    case_stop(&c);
}

/* Answers in progress at shutdown still end in the form of the API. */
static void test_shutdown(void **state) {
    (void)state;
    size_t n;
    c.options.served.n_slots = 1;
    case_start(&c);
    int waiting = begin_stream(busy_body), stream = begin_stream(LONG_STREAM);
    wait_for("requests_total", 33, true);
    server_stop(c.server, 0);
    c.server = NULL;
    char *data = socket_read_all(waiting, &n);
    assert_non_null(strstr(data, " 503 "));
    assert_non_null(strstr(data, "shutting down"));
    free(data);
    close(waiting);
    data = socket_read_all(stream, &n); /* before its first event it has a status */
    assert_true(strstr(data, " 503 ") || strstr(data, "data: "));
    assert_non_null(strstr(data, "shutting down"));
    free(data);
    close(stream);
    c.options.served.n_slots = 4;
}

/* While the server drains, running answers end, and new requests are told to go elsewhere. */
static void test_drain(void **state) {
    /* The answers take longer than the requests below, and end within the drain: under a sanitizer
     * a token takes about ten times as long. */
#ifdef TEST_SANITIZED
    enum { N = 4 };
#else
    enum { N = 32 };
#endif
    (void)state;
    size_t n;
    char body[256];
    snprintf(
        body, sizeof body,
        "{\"prompt\":\"Once\",\"ignore_eos\":true,\"temperature\":1,\"max_tokens\":250,\"n\":%d}",
        N);
    c.options.served.n_slots = 1;
    case_start(&c);
    int running = begin_stream(body), queued = begin_stream(LONG_STREAM);
    wait_for("requests_total", N + 1, true);
    assert_int_equal(status_of("GET", "/health", NULL, NULL), 200);
    server_drain(c.server);
    http_reply r = http_ask(&c, "GET", "/health", NULL, NULL);
    assert_int_equal(r.status, 503);
    assert_string_equal(http_text(&r, "status"), "draining");
    assert_non_null(strstr(r.headers, "Retry-After: "));
    assert_non_null(strstr(r.headers, "Connection: close"));
    http_free(&r);
    r = http_post(&c, "/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":1}");
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.headers, "Retry-After: "));
    http_free(&r);
    assert_int_equal(status_of("GET", "/v1/models", NULL, NULL), 200);
    assert_true(server_is_busy(c.server));
    assert_true(case_metric(&c, "draining") == 1);
    server_stop(c.server, 100);
    c.server = NULL;
    char *data = socket_read_all(running, &n);
    assert_non_null(strstr(data, " 200 "));
    free(data);
    close(running);
    data = socket_read_all(queued, &n);
    assert_non_null(strstr(data, "[DONE]"));
    free(data);
    close(queued);
    c.options.served.n_slots = 4;
}

/* Impossible options are reported at the start. */
static void test_start_errors(void **state) {
    (void)state;
    server *s = NULL;
    pi_error err;
    server_options o = c.options;
    o.host = "no.such.host.invalid";
    assert_int_equal(server_start(&o, &s, &err), PI_ERR_IO);
    o = c.options;
    o.served.template_name = "nope";
    assert_int_equal(server_start(&o, &s, &err), PI_ERR_NOT_FOUND);
    o = c.options;
    o.served.n_slots = 600;
    assert_int_equal(server_start(&o, &s, &err), PI_ERR_ARG);
    case_start(&c);
    o = c.options;
    o.port = c.port;
    assert_int_equal(server_start(&o, &s, &err), PI_ERR_IO);
    assert_null(s);
    case_stop(&c);
}

/* Without a chat template an answer continues the text, in all APIs. */
static void test_no_template(void **state) {
    (void)state;
    static const char path[] = TEST_BINARY_DIR "/test_server_http.gguf";
    pi_error err;
    pi_quantize_options copy = pi_quantize_default_options();
    copy.type = "COPY";
    copy.chat_template = "";
    assert_int_equal(pi_quantize(CASE_MODEL, path, &copy, NULL, &err), PI_OK);
    server_case own = c;
    assert_int_equal(pi_model_open(path, NULL, &own.model, &err), PI_OK);
    own.options.served.model = own.model;
    own.options.served.template_name = NULL;
    case_start(&own);
    server_description d;
    server_describe(own.server, &d);
    assert_true(d.lacks_template);
    http_reply r = http_ask(&own, "GET", "/props", NULL, NULL);
    assert_string_equal(http_text(&r, "chat_template"), "");
    http_free(&r);
#define CONVERSATION                                                                               \
    "\"messages\":[{\"role\":\"user\",\"content\":\"Once upon a time\"},"                          \
    "{\"role\":\"assistant\",\"content\":\" there was a king.\"},"                                 \
    "{\"role\":\"user\",\"content\":\"The king had\"}],\"max_tokens\":8"
    http_reply plain = http_post(
        &own, "/v1/completions",
        "{\"prompt\":\"Once upon a time there was a king.\\n\\nThe king had\",\"max_tokens\":8}");
    const char *text = http_text(&plain, "choices.0.text");
    assert_true(strlen(text) > 8);
    r = http_post(&own, "/v1/chat/completions", "{" CONVERSATION "}");
    assert_string_equal(http_text(&r, "choices.0.message.content"), text);
    http_free(&r);
    r = http_post(&own, "/v1/messages", "{" CONVERSATION "}");
    assert_string_equal(http_text(&r, "content.0.text"), text);
    http_free(&r);
    http_free(&plain);
    case_close(&own);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_bad_bodies),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_foreign_hosts),
        cmocka_unit_test(test_framing),
        cmocka_unit_test(test_isolated_keys),
        cmocka_unit_test(test_clients_that_leave),
        cmocka_unit_test(test_full_queue),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_slow_request),
        cmocka_unit_test(test_half_closed),
        cmocka_unit_test(test_many_connections),
        cmocka_unit_test(test_shutdown),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_start_errors),
        cmocka_unit_test(test_no_template),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
