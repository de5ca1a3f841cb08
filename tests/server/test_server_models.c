/* test_server_models.c: a server with several models: they are loaded when requests name them,
 * while others answer; they leave for others, after idle time, or when asked; and nobody's model is
 * freed.
 *
 * All models are the bundled one. Opening a model waits at a gate that the test opens. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "clock.h"
#include "server_case.h"

enum { N_MODELS = 3 };

typedef struct gate {
    const char *name;
    int n_open, n_opened, n_closed; /* models that are open; calls so far */
    bool shut, fails;
    int n_nomem; /* so many attempts run out of memory */
} gate;

static server_case c;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static gate gates[N_MODELS] = {{.name = "one"}, {.name = "two"}, {.name = "three"}};
static const char *const aliases[] = {"uno", "first"};
static server_model models[N_MODELS];

static pi_status open_gate(void *user, const model_opening *how, served_options *out, void **opened,
                           pi_error *err) {
    (void)how;
    gate *g = user;
    (void)err;
    pthread_mutex_lock(&lock);
    g->n_opened++;
    pthread_cond_broadcast(&changed);
    while (g->shut) pthread_cond_wait(&changed, &lock);
    const bool no_memory = g->n_nomem > 0, fails = g->fails;
    g->n_nomem -= no_memory;
    g->n_open += !fails && !no_memory;
    pthread_mutex_unlock(&lock);
    if (no_memory) {
        *err = (pi_error){.status = PI_ERR_NOMEM};
        return PI_ERR_NOMEM;
    }
    if (fails) {
        *err = (pi_error){.status = PI_ERR_FORMAT};
        snprintf(err->message, sizeof err->message, "the file is broken");
        return PI_ERR_FORMAT;
    }
    *out = c.options.served;
    out->model_name = g->name;
    *opened = g;
    return PI_OK;
}

static void close_gate(void *opened) {
    gate *g = opened;
    pthread_mutex_lock(&lock);
    g->n_open--;
    g->n_closed++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void set_gate(gate *g, bool shut, bool fails) {
    pthread_mutex_lock(&lock);
    g->shut = shut;
    g->fails = fails;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_for_count(const int *count, int n) {
    pthread_mutex_lock(&lock);
    while (*count < n) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static int count_of(const int *count) {
    pthread_mutex_lock(&lock);
    const int n = *count;
    pthread_mutex_unlock(&lock);
    return n;
}

static void start(int max_models) {
    for (int i = 0; i < N_MODELS; i++) {
        gates[i] = (gate){.name = gates[i].name};
        models[i] = (server_model){.name = gates[i].name,
                                   .path = CASE_MODEL,
                                   .bytes = 100,
                                   .idle_seconds = -1,
                                   .open = open_gate,
                                   .close = close_gate,
                                   .user = &gates[i]};
    }
    models[0].aliases = aliases;
    models[0].n_aliases = 2;
    c.options.models = models;
    c.options.n_models = N_MODELS;
    c.options.routes = true;
    c.options.max_models = max_models;
    c.options.max_model_bytes = 0;
}

/* Ends the server; all models have been closed. */
static void stop(void) {
    case_stop(&c);
    for (int i = 0; i < N_MODELS; i++) assert_int_equal(count_of(&gates[i].n_open), 0);
}

/* Asks a model for two tokens, and checks the status and the model of the answer. */
static void ask(const char *model, int status) {
    char body[128];
    snprintf(body, sizeof body, "{\"model\":\"%s\",\"prompt\":\"Once\",\"max_tokens\":2}", model);
    http_reply r = http_post(&c, "/v1/completions", body);
    if (r.status != status) fail_msg("%s: status %d: %s", model, r.status, r.body);
    if (status == 200) assert_int_equal(http_int(&r, "usage.completion_tokens"), 2);
    http_free(&r);
}

typedef struct question {
    const char *model, *extra;
    int status;
    pthread_t thread;
} question;

static void *ask_alone(void *arg) {
    question *q = arg;
    char body[256];
    snprintf(body, sizeof body, "{\"model\":\"%s\",\"prompt\":\"Once\",\"max_tokens\":2%s}",
             q->model, q->extra ? q->extra : "");
    http_reply r = http_post(&c, "/v1/completions", body);
    q->status = r.status;
    http_free(&r);
    return NULL;
}

static void begin(question *q) {
    assert_int_equal(pthread_create(&q->thread, NULL, ask_alone, q), 0);
}

static int end(question *q) {
    pthread_join(q->thread, NULL);
    return q->status;
}

/* Value of a member of a model's status in the list; "" when absent. */
static void status_of(const char *model, char *value, size_t n_value, int *n_waiting) {
    char path[64];
    http_reply r = http_ask(&c, "GET", "/v1/models", NULL, NULL);
    value[0] = 0;
    *n_waiting = 0;
    for (int i = 0; i < N_MODELS; i++) {
        snprintf(path, sizeof path, "data.%d.id", i);
        if (strcmp(http_text(&r, path), model) != 0) continue;
        snprintf(path, sizeof path, "data.%d.status.value", i);
        snprintf(value, n_value, "%s", http_text(&r, path));
        snprintf(path, sizeof path, "data.%d.status.waiting", i);
        if (http_json(&r, path)) *n_waiting = (int)http_int(&r, path);
    }
    http_free(&r);
}

static void wait_for_status(const char *model, const char *wanted, int n_waiting) {
    char value[32];
    int n;
    for (int i = 0; i < 5000; i++) {
        status_of(model, value, sizeof value, &n);
        if (strcmp(value, wanted) == 0 && n >= n_waiting) return;
        usleep(2000);
    }
    fail_msg("%s is %s, %d wait", model, value, n);
}

/* Begins a stream of many tokens, and waits for its first event. */
static int begin_stream(const char *model) {
    char request[512], body[256], byte;
    snprintf(body, sizeof body,
             "{\"model\":\"%s\",\"prompt\":\"Once\",\"ignore_eos\":true,\"stream\":true,"
             "\"n_predict\":-1}",
             model);
    snprintf(request, sizeof request,
             "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    int fd = socket_open(&c);
    socket_send(fd, request);
    assert_int_equal(recv(fd, &byte, 1, 0), 1);
    return fd;
}

/* ---- names ----------------------------------------------------------------------------------- */

static void test_names(void **state) {
    (void)state;
    start(0);
    case_start(&c);
    ask("one", 200);
    ask("uno", 200);
    ask("first", 200);
    ask("one.gguf", 200);
    ask("one:latest", 200);
    assert_int_equal(count_of(&gates[0].n_opened), 1);
    http_refused(&c, "/v1/completions", "{\"model\":\"four\",\"prompt\":\"a\"}", 404);
    http_refused(&c, "/v1/completions", "{\"prompt\":\"a\"}", 400); /* there is no default */
    http_refused(&c, "/v1/completions", "{\"model\":7,\"prompt\":\"a\"}", 400);
    http_reply r = http_post(&c, "/v1/completions", "{\"model\":\"four\",\"prompt\":\"a\"}");
    assert_string_equal(http_text(&r, "error.code"), "model_not_found");
    http_free(&r);
    /* every API reads the name */
    static const char *const rows[][2] = {
        {"/v1/chat/completions", HELLO ",\"max_tokens\":1"},
        {"/v1/messages", HELLO ",\"max_tokens\":1"},
        {"/v1/messages/count_tokens", HELLO},
        {"/v1/responses", "\"input\":\"a\",\"max_output_tokens\":1"},
        {"/completion", "\"prompt\":\"a\",\"n_predict\":1"},
        {"/v1/embeddings", "\"input\":\"a\""},
        {"/tokenize", "\"content\":\"a\""},
        {"/detokenize", "\"tokens\":[300]"},
        {"/apply-template", HELLO},
        {"/api/chat", HELLO ",\"stream\":false,\"options\":{\"num_predict\":1}"},
        {"/api/generate", "\"prompt\":\"a\",\"stream\":false,\"options\":{\"num_predict\":1}"},
        {"/api/embed", "\"input\":\"a\""},
        {"/api/show", "\"verbose\":false"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char body[512];
        for (int known = 0; known < 2; known++) {
            snprintf(body, sizeof body, "{\"model\":\"%s\",%s}", known ? "two" : "four",
                     rows[i][1]);
            r = http_post(&c, rows[i][0], body);
            if (r.status != (known ? 200 : 404))
                fail_msg("%s %s: %d %s", rows[i][0], body, r.status, r.body);
            http_free(&r);
        }
    }
    r = http_ask(&c, "GET", "/props?model=two", NULL, NULL);
    assert_string_equal(http_text(&r, "model"), "two");
    http_free(&r);
    r = http_ask(&c, "GET", "/props?model=three", NULL, NULL);
    assert_int_equal(r.status, 503);
    http_free(&r);
    assert_int_equal(count_of(&gates[2].n_opened), 0); /* no question about it loaded it */
    r = http_ask(&c, "GET", "/metrics", NULL, NULL);
    assert_non_null(strstr(r.body, "\npowerinfer_requests_total{model=\"two\"} "));
    assert_null(strstr(r.body, "{model=\"three\"}"));
    http_free(&r);
    stop();
    models[1].is_default = true;
    c.options.max_models = 1;
    case_start(&c);
    r = http_post(&c, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}");
    assert_string_equal(http_text(&r, "model"), "two");
    http_free(&r);
    stop();
}

/* ---- loading --------------------------------------------------------------------------------- */

/* While a model is being loaded, another one answers; requests for the first wait. */
static void test_load_beside_answers(void **state) {
    (void)state;
    question waiting[3] = {{.model = "two"}, {.model = "two"}, {.model = "two"}};
    start(0);
    gates[1].shut = true;
    case_start(&c);
    ask("one", 200);
    for (int i = 0; i < 3; i++) begin(&waiting[i]);
    wait_for_count(&gates[1].n_opened, 1);
    wait_for_status("two", "loading", 3);
    for (int i = 0; i < 20; i++) ask("one", 200);
    set_gate(&gates[1], false, false);
    for (int i = 0; i < 3; i++) assert_int_equal(end(&waiting[i]), 200);
    assert_int_equal(count_of(&gates[1].n_opened), 1);
    wait_for_status("two", "loaded", 0);
    stop();
}

/* A request whose time is over, and a client that leaves, wait no longer; the model is loaded for
 * those that stay. */
static void test_waiters_that_leave(void **state) {
    (void)state;
    question late = {.model = "one", .extra = ",\"timeout\":0.2"}, stays = {.model = "one"};
    static const char request[] =
        "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        "Content-Length: 30\r\n\r\n{\"model\":\"one\",\"prompt\":\"Once\"}";
    start(0);
    gates[0].shut = true;
    case_start(&c);
    int fd = socket_open(&c);
    socket_send(fd, request);
    begin(&late);
    begin(&stays);
    wait_for_status("one", "loading", 2);
    assert_int_equal(end(&late), 504);
    shutdown(fd, SHUT_RDWR);
    close(fd);
    char value[32];
    int n = 2;
    for (int i = 0; i < 5000 && n > 1; i++) {
        status_of("one", value, sizeof value, &n);
        usleep(2000);
    }
    assert_int_equal(n, 1);
    set_gate(&gates[0], false, false);
    assert_int_equal(end(&stays), 200);
    stop();
}

/* A client that leaves before the load begins cancels the load. */
static void test_cancelled_load(void **state) {
    (void)state;
    question first = {.model = "one"}, late = {.model = "two", .extra = ",\"timeout\":0.1"};
    start(0);
    gates[0].shut = true;
    case_start(&c);
    begin(&first);
    wait_for_count(&gates[0].n_opened, 1);
    begin(&late);
    assert_int_equal(end(&late), 504);
    set_gate(&gates[0], false, false);
    assert_int_equal(end(&first), 200);
    ask("three", 200); /* loaded after everything that was wanted before */
    assert_int_equal(count_of(&gates[1].n_opened), 0);
    stop();
}

static void test_failed_load(void **state) {
    (void)state;
    question waiting[2] = {{.model = "one"}, {.model = "one"}};
    start(0);
    gates[0].shut = gates[0].fails = true;
    case_start(&c);
    for (int i = 0; i < 2; i++) begin(&waiting[i]);
    wait_for_status("one", "loading", 2);
    set_gate(&gates[0], false, true);
    for (int i = 0; i < 2; i++) assert_int_equal(end(&waiting[i]), 500);
    http_reply r = http_ask(&c, "GET", "/models", NULL, NULL);
    assert_string_equal(http_text(&r, "data.0.status.value"), "unloaded");
    assert_string_equal(http_text(&r, "data.0.status.error"), "the file is broken");
    http_free(&r);
    r = http_post(&c, "/v1/completions", "{\"model\":\"one\",\"prompt\":\"a\"}");
    assert_int_equal(r.status, 500);
    assert_non_null(strstr(http_text(&r, "error.message"), "the file is broken"));
    http_free(&r);
    set_gate(&gates[0], false, false);
    ask("one", 200); /* the next request tries again */
    r = http_ask(&c, "GET", "/models", NULL, NULL);
    assert_null(http_json(&r, "data.0.status.failed"));
    http_free(&r);
    stop();
}

/* Models that are loaded at the start: the server is not ready before. */
static void test_at_start(void **state) {
    (void)state;
    start(0);
    models[1].at_start = true;
    gates[1].shut = true;
    case_start(&c);
    http_reply r = http_ask(&c, "GET", "/health", NULL, NULL);
    assert_int_equal(r.status, 503);
    assert_string_equal(http_text(&r, "status"), "loading model");
    assert_string_equal(http_text(&r, "model"), "two");
    assert_int_equal(http_int(&r, "error.code"), 503);
    assert_non_null(strcasestr(r.headers, "Retry-After: 1"));
    http_free(&r);
    set_gate(&gates[1], false, false);
    wait_for_status("two", "loaded", 0);
    r = http_ask(&c, "GET", "/health", NULL, NULL);
    assert_int_equal(r.status, 200);
    assert_string_equal(http_text(&r, "status"), "ok");
    http_free(&r);
    stop();
}

static void *start_server(void *arg) {
    pi_error err;
    *(pi_status *)arg = server_start(&c.options, &c.server, &err);
    return NULL;
}

/* The only model of a server: it answers about its health while it loads the model, ignores names,
 * and loads the model again after idle time. */
static void test_only_model(void **state) {
    (void)state;
    pi_status status = PI_ERR_IO;
    pthread_t starter;
    start(0);
    case_start(&c); /* finds a free port */
    stop();
    c.options.routes = false;
    c.options.n_models = 1;
    c.options.port = c.port;
    models[0].at_start = true;
    gates[0].shut = true;
    assert_int_equal(pthread_create(&starter, NULL, start_server, &status), 0);
    wait_for_count(&gates[0].n_opened, 1);
    http_reply r = http_ask(&c, "GET", "/health", NULL, NULL);
    assert_int_equal(r.status, 503);
    assert_string_equal(http_text(&r, "status"), "loading model");
    http_free(&r);
    set_gate(&gates[0], false, false);
    pthread_join(starter, NULL);
    assert_int_equal(status, PI_OK);
    ask("any name", 200);
    http_refused(&c, "/models/unload", "{\"model\":\"one\"}", 501);
    r = http_post(&c, "/api/generate", "{\"model\":\"one\",\"keep_alive\":0}");
    assert_int_equal(r.status, 200);
    http_free(&r);
    assert_int_equal(count_of(&gates[0].n_closed), 0);
    stop();
    gates[0].fails = true;
    pi_error err;
    assert_int_equal(server_start(&c.options, &c.server, &err), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "the file is broken"));
    gates[0] = (gate){.name = "one"};
    models[0].idle_seconds = 0.05;
    c.options.port = 0;
    case_start(&c);
    wait_for_count(&gates[0].n_closed, 1);
    ask("one", 200);
    assert_int_equal(count_of(&gates[0].n_opened), 2);
    stop();
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* The least recently used model leaves. */
static void test_eviction(void **state) {
    (void)state;
    start(2);
    case_start(&c);
    ask("one", 200);
    ask("two", 200);
    ask("one", 200);
    ask("three", 200);
    wait_for_status("two", "unloaded", 0);
    wait_for_status("one", "loaded", 0);
    ask("one", 200);
    assert_int_equal(count_of(&gates[0].n_opened), 1);
    assert_int_equal(count_of(&gates[1].n_closed), 1);
    http_reply r = http_ask(&c, "GET", "/v1/models/one", NULL, NULL);
    const int64_t n_bytes = http_int(&r, "meta.memory"); /* weights and KV caches */
    assert_true(n_bytes > http_int(&r, "meta.size"));
    assert_string_equal(http_text(&r, "meta.device"), "cpu");
    http_free(&r);
    stop();
    start(0);
    c.options.max_model_bytes = (uint64_t)n_bytes * 5 / 2; /* two models */
    case_start(&c);
    ask("one", 200);
    ask("two", 200);
    ask("three", 200);
    wait_for_status("one", "unloaded", 0);
    wait_for_status("two", "loaded", 0);
    stop();
}

/* A load that runs out of memory is tried again after one other model has left. */
static void test_memory(void **state) {
    (void)state;
    start(0);
    gates[2].n_nomem = 1;
    case_start(&c);
    ask("one", 200);
    ask("two", 200);
    ask("three", 200);
    assert_int_equal(count_of(&gates[2].n_opened), 2);
    assert_int_equal(count_of(&gates[0].n_closed), 1);
    assert_int_equal(count_of(&gates[1].n_closed), 0);
    stop();
}

/* The model that was chosen to leave stays chosen when one of its answers ends, although it was
 * then used last: others cannot keep a third model out. */
static void test_kept_victim(void **state) {
    (void)state;
    question third = {.model = "three", .extra = ",\"timeout\":20"}, again = {.model = "one"};
    start(2);
    case_start(&c);
    int ends = begin_stream("one"), stays = begin_stream("one"), other = begin_stream("two");
    begin(&third);
    wait_for_status("three", "unloaded", 1);
    close(ends);
    usleep(50000); /* until its request has ended */
    begin(&again);
    wait_for_status("one", "loaded", 1);
    close(stays);
    assert_int_equal(end(&third), 200);
    assert_int_equal(count_of(&gates[1].n_closed), 0); /* it still answers */
    close(other);
    assert_int_equal(end(&again), 200);
    stop();
}

/* A model that answers leaves only when its answers have ended; requests for it wait until it is
 * loaded again. */
static void test_eviction_of_busy(void **state) {
    (void)state;
    question other = {.model = "two"}, again = {.model = "one"};
    start(1);
    case_start(&c);
    int fd = begin_stream("one");
    begin(&other);
    wait_for_status("two", "unloaded", 1);
    begin(&again);
    wait_for_status("one", "loaded", 1);
    assert_int_equal(count_of(&gates[0].n_closed), 0);
    assert_int_equal(count_of(&gates[1].n_opened), 0);
    close(fd);
    assert_int_equal(end(&other), 200);
    assert_int_equal(end(&again), 200);
    assert_int_equal(count_of(&gates[0].n_opened), 2);
    stop();
}

/* Many clients use three models, while one can be loaded at a time: every request is answered. */
static void *ask_in_turn(void *arg) {
    static const char *const names[] = {"one", "two", "three"};
    for (int i = 0; i < 6; i++) {
        question q = {.model = names[((intptr_t)arg + i) % 3]};
        ask_alone(&q);
        if (q.status != 200) return (void *)(intptr_t)q.status;
    }
    return NULL;
}

static void test_many(void **state) {
    (void)state;
    pthread_t threads[12];
    start(1);
    case_start(&c);
    for (intptr_t i = 0; i < 12; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_in_turn, (void *)i), 0);
    for (int i = 0; i < 12; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    stop();
}

static void test_load_and_unload(void **state) {
    (void)state;
    start(0);
    case_start(&c);
    http_reply r = http_post(&c, "/models/load", "{\"model\":\"one\"}");
    assert_int_equal(r.status, 200);
    http_free(&r);
    wait_for_status("one", "loaded", 0);
    http_refused(&c, "/models/load", "{\"model\":\"one\"}", 400);
    http_refused(&c, "/models/load", "{\"model\":\"four\"}", 404);
    http_refused(&c, "/models/load", "{}", 400);
    int fd = begin_stream("one");
    r = http_post(&c, "/models/unload", "{\"model\":\"one\"}");
    assert_int_equal(r.status, 200);
    http_free(&r);
    http_refused(&c, "/models/unload", "{\"model\":\"two\"}", 400);
    assert_int_equal(count_of(&gates[0].n_closed), 0); /* its answer still runs */
    close(fd);
    wait_for_status("one", "unloaded", 0);
    assert_int_equal(count_of(&gates[0].n_closed), 1);
    ask("one", 200);
    stop();
}

/* Ollama's keep_alive, and requests that only load or unload. */
static void test_keep_alive(void **state) {
    (void)state;
    start(0);
    models[1].idle_seconds = 0.05;
    case_start(&c);
    ask("two", 200);
    wait_for_status("two", "sleeping", 0);
    ask("two", 200);
    assert_int_equal(count_of(&gates[1].n_opened), 2);
    http_reply r = http_post(&c, "/api/generate", "{\"model\":\"one\",\"keep_alive\":\"1h\"}");
    assert_string_equal(http_text(&r, "done_reason"), "load");
    http_free(&r);
    wait_for_status("two", "sleeping", 0);
    r = http_ask(&c, "GET", "/api/ps", NULL, NULL);
    assert_string_equal(http_text(&r, "models.0.name"), "one");
    assert_null(http_json(&r, "models.1"));
    assert_true(strncmp(http_text(&r, "models.0.expires_at"), "9999", 4) != 0);
    http_free(&r);
    r = http_post(&c, "/api/generate", "{\"model\":\"one\",\"keep_alive\":0}");
    assert_string_equal(http_text(&r, "done_reason"), "unload");
    http_free(&r);
    wait_for_status("one", "unloaded", 0);
    ask("one", 200); /* what a client said about keep_alive is forgotten */
    wait_for_status("one", "loaded", 0);
    /* with a prompt, the model leaves after the answer */
    r = http_post(&c, "/api/generate",
                  "{\"model\":\"one\",\"prompt\":\"a\",\"stream\":false,\"keep_alive\":0,"
                  "\"options\":{\"num_predict\":1}}");
    assert_int_equal(r.status, 200);
    http_free(&r);
    wait_for_status("one", "sleeping", 0);
    r = http_post(&c, "/api/show", "{\"model\":\"three\",\"keep_alive\":0}");
    assert_int_equal(r.status, 200);
    http_free(&r);
    assert_int_equal(count_of(&gates[2].n_opened), 0);
    r = http_post(&c, "/api/generate", "{\"model\":\"one\",\"keep_alive\":1e300}");
    assert_int_equal(r.status, 200);
    http_free(&r);
    r = http_ask(&c, "GET", "/api/ps", NULL, NULL);
    assert_true(strncmp(http_text(&r, "models.0.expires_at"), "9999", 4) == 0);
    http_free(&r);
    r = http_post(&c, "/api/chat", "{\"model\":\"three\",\"keep_alive\":0}");
    assert_int_equal(r.status, 200);
    http_free(&r);
    assert_int_equal(count_of(&gates[2].n_opened), 0); /* not loaded to be unloaded */
    /* routes that generate no text load the model for their error */
    static const char *const others[] = {"/api/embed", "/api/embeddings"};
    for (int i = 0; i < 2; i++) {
        r = http_post(&c, others[i], "{\"model\":\"three\",\"keep_alive\":0}");
        assert_int_equal(r.status, 400);
        http_free(&r);
    }
    wait_for_status("three", "sleeping", 0);
    r = http_post(&c, "/api/generate", "{\"model\":\"one\",\"keep_alive\":\"soon\"}");
    assert_int_equal(r.status, 400);
    http_free(&r);
    stop();
}

/* ---- the end --------------------------------------------------------------------------------- */

static void *open_later(void *arg) {
    usleep(100000);
    set_gate(arg, false, false);
    return NULL;
}

/* The server stops at once while a model is being loaded, requests wait for it, another answers,
 * and a third waits for room. */
static void test_stop_in_between(void **state) {
    (void)state;
    question loads = {.model = "two"}, waits = {.model = "three"};
    pthread_t opener;
    start(2);
    gates[1].shut = true;
    case_start(&c);
    int fd = begin_stream("one");
    begin(&loads);
    wait_for_count(&gates[1].n_opened, 1);
    begin(&waits);
    wait_for_status("three", "unloaded", 1);
    assert_int_equal(pthread_create(&opener, NULL, open_later, &gates[1]), 0);
    server_stop(c.server, 0);
    c.server = NULL;
    stop();
    pthread_join(opener, NULL);
    const int first = end(&loads), second = end(&waits);
    assert_true(first == 503 || first == 200); /* answered if it was loaded in time */
    assert_int_equal(second, 503);
    assert_int_equal(count_of(&gates[2].n_opened), 0);
    close(fd);
}

static int open_all(void **state) {
    (void)state;
    case_open(&c);
    c.options.served.n_slots = 2;
    c.options.served.n_ctx = 1 << 14; /* streams last until the test closes them */
    return 0;
}

static int close_all(void **state) {
    (void)state;
    case_close(&c);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_load_beside_answers),
        cmocka_unit_test(test_waiters_that_leave),
        cmocka_unit_test(test_cancelled_load),
        cmocka_unit_test(test_failed_load),
        cmocka_unit_test(test_at_start),
        cmocka_unit_test(test_only_model),
        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_kept_victim),
        cmocka_unit_test(test_eviction_of_busy),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_load_and_unload),
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_stop_in_between),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
