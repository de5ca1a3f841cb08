/* test_server_soak.c: 64 clients for a long time, on a server that has room for one of its
 * two models: answers, clients that leave, models that are evicted, unloaded and loaded
 * again, LoRA scales that change. Answers equal those of a server that answers nothing else. In
 * between the clients pause: memory, descriptors and threads must then be what they were after the
 * first part.
 *
 * Without an argument a few seconds; with the argument "long" PI_SOAK_SECONDS (default 3600). */
#include <dirent.h>
#include <malloc.h>
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

#include "adapter_file.h"
#include "clock.h"
#include "server_case.h"

#define ADAPTER TEST_BINARY_DIR "/test_server_soak.gguf"

enum {
    N_CLIENTS = 64,
    N_PROMPTS = 12,
    N_TOKENS = 12,
    N_SCALES = 2, /* of model "two": 0 and 1 */
    STORE_BYTES = 1 << 20,
    MAX_GROWTH = 2 * STORE_BYTES /* of an idle server, whose store may be empty or full */
};

static server_case c;
static char *alone[N_SCALES][N_PROMPTS]; /* answers of a server that answers nothing else */
static double part_end;                  /* clock_seconds */
static int first_round, n_clients;
static atomic_int n_good, n_left, n_changes;

/* ---- models ---------------------------------------------------------------------------------- */

static const server_adapter adapters[] = {{ADAPTER, 0}};

static pi_status open_model(void *user, const model_opening *how, served_options *out,
                            void **opened, pi_error *err) {
    const char *name = user;
    pi_adapter item = {.path = ADAPTER};
    pi_model_options o = pi_model_default_options();
    pi_model *model = NULL;
    if (strcmp(name, "two") == 0) {
        item.scale = how->scales[0];
        o.adapters = &item;
        o.n_adapters = 1;
    }
    const pi_status status = pi_model_open(CASE_MODEL, &o, &model, err);
    if (status != PI_OK) return status;
    *out = c.options.served;
    out->model = model;
    out->model_name = name;
    *opened = model;
    return PI_OK;
}

static void close_model(void *opened) {
    pi_model_close(opened);
}

static const server_model models[] = {{.name = "one",
                                       .path = CASE_MODEL,
                                       .idle_seconds = -1,
                                       .open = open_model,
                                       .close = close_model,
                                       .user = (void *)(uintptr_t) "one"},
                                      {.name = "two",
                                       .path = CASE_MODEL,
                                       .adapters = adapters,
                                       .n_adapters = 1,
                                       .idle_seconds = -1,
                                       .open = open_model,
                                       .close = close_model,
                                       .user = (void *)(uintptr_t) "two"}};

static void write_adapter(void) {
    pi_model_info info;
    pi_model_get_info(c.model, &info);
    const adapter_matrix out = {"blk.1.attn_output.weight", (uint64_t)info.n_embd,
                                (uint64_t)info.n_embd};
    adapter_file_write(ADAPTER, info.architecture, &out, 1);
}

/* ---- clients --------------------------------------------------------------------------------- */

static void write_body(char *body, size_t n, const char *model, int prompt, bool stream) {
    static const char *const names[] = {"Anna", "Peter", "the captain", "an old man"};
    static const char *const places[] = {"in the garden", "at sea", "by the fire"};
    snprintf(body, n,
             "{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"Tell me of %s "
             "%s.\"}],\"max_tokens\":%d,\"stream\":%s}",
             model, names[prompt % 4], places[prompt / 4], (int)N_TOKENS,
             stream ? "true" : "false");
}

/* Returns what is wrong with the answer to a prompt; free it with free(). NULL: nothing. */
static char *question(const char *model, int prompt, int n_scales) {
    char body[512], *wrong = NULL;
    write_body(body, sizeof body, model, prompt, true);
    http_reply r = http_post(&c, "/v1/chat/completions", body);
    char *text = http_joined(&r, "choices.0.delta.content", 0);
    bool equal = false;
    for (int i = 0; i < n_scales; i++) equal |= strcmp(text, alone[i][prompt]) == 0;
    if (r.status != 200 || !equal || !strstr(r.body, "data: [DONE]\n")) {
        wrong = malloc(4096);
        snprintf(wrong, 4096, "%s, prompt %d: %d \"%s\", alone \"%s\"", model, prompt, r.status,
                 text, alone[0][prompt]);
    }
    free(text);
    http_free(&r);
    atomic_fetch_add(&n_good, 1);
    return wrong;
}

/* Begins a long answer and leaves, before or after its first bytes. */
static void leave(const char *model, bool reads) {
    char body[256], request[512], byte;
    snprintf(body, sizeof body,
             "{\"model\":\"%s\",\"prompt\":\"Once\",\"ignore_eos\":true,\"stream\":true}", model);
    snprintf(request, sizeof request,
             "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    int fd = socket_open(&c);
    socket_send(fd, request);
    if (reads) (void)recv(fd, &byte, 1, 0);
    close(fd);
    atomic_fetch_add(&n_left, 1);
}

/* An answer in a form. */
static char *form(int prompt) {
    char body[512], *wrong = NULL;
    bool truth = false;
    json_doc *doc = NULL;
    snprintf(body, sizeof body,
             "{\"model\":\"one\",\"prompt\":\"%d\",\"max_tokens\":40,\"json_schema\":{"
             "\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"boolean\"}},"
             "\"required\":[\"a\"],\"additionalProperties\":false}}",
             prompt);
    http_reply r = http_post(&c, "/v1/completions", body);
    const char *text = r.status == 200 ? http_text(&r, "choices.0.text") : "";
    if (json_parse(text, strlen(text), "answer", &doc, NULL) != PI_OK ||
        !json_as_bool(json_get(json_root(doc), "a"), &truth)) {
        wrong = malloc(1024);
        snprintf(wrong, 1024, "form: %d %.900s", r.status, r.body);
    }
    json_free(doc);
    http_free(&r);
    return wrong;
}

/* Changes the scale of model "two", or unloads it. */
static char *change(int round) {
    char body[64], *wrong = NULL;
    const bool unloads = round % 3 == 2;
    const char *path = unloads ? "/models/unload" : "/lora-adapters?model=two";
    if (!unloads)
        snprintf(body, sizeof body, "[{\"id\":0,\"scale\":%d}]", 1 - round % 2);
    else
        snprintf(body, sizeof body, "{\"model\":\"two\"}");
    http_reply r = http_post(&c, path, body);
    if (r.status != 200 && !(unloads && r.status == 400)) {
        wrong = malloc(1024);
        snprintf(wrong, 1024, "%s: %d %.900s", path, r.status, r.body);
    }
    http_free(&r);
    atomic_fetch_add(&n_changes, 1);
    return wrong;
}

static void *client(void *arg) {
    const int id = (int)(intptr_t)arg;
    char *wrong = NULL;
    for (int round = first_round; clock_seconds() < part_end && !wrong; round++) {
        const int prompt = (int)(((unsigned)id + (unsigned)round * 5) % N_PROMPTS);
        const int kind = (int)(((unsigned)id + (unsigned)round * 7) % 10);
        if (id == 0 && round % 2 == 0)
            wrong = change(round / 2);
        else if (kind < 5)
            wrong = question("one", prompt, 1);
        else if (kind < 7)
            wrong = question("two", prompt, N_SCALES);
        else if (kind < 9)
            leave(kind == 7 ? "one" : "two", round % 2);
        else
            wrong = form(prompt);
    }
    return wrong;
}

/* ---- what an idle server uses ---------------------------------------------------------------- */

typedef struct usage {
    size_t bytes;
    int n_descriptors, n_threads;
} usage;

static int count_entries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

/* Waits until all connections have ended, as far as `first` tells (NULL: two seconds); model "one"
 * is then loaded, and the scale is 0. */
static usage rest(const usage *first) {
    usage u = {.bytes = 0};
    http_reply r = http_post(&c, "/lora-adapters?model=two", "[]");
    assert_int_equal(r.status, 200);
    http_free(&r);
    char *wrong = question("one", 0, 1);
    if (wrong) fail_msg("%s", wrong);
    for (int i = 0; i < 500; i++) {
        struct mallinfo2 m = mallinfo2();
        u = (usage){.bytes = m.uordblks + m.hblkhd,
                    .n_descriptors = count_entries("/proc/self/fd"),
                    .n_threads = count_entries("/proc/self/task")};
        if (first ? u.n_threads <= first->n_threads && u.n_descriptors <= first->n_descriptors
                  : i == 100)
            break;
        usleep(20000);
    }
    return u;
}

static void run_part(double seconds) {
    pthread_t threads[N_CLIENTS];
    int n_wrong = 0;
    part_end = clock_seconds() + seconds;
    for (int i = 0; i < n_clients; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, client, (void *)(intptr_t)i), 0);
    for (int i = 0; i < n_clients; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        if (wrong) print_message("%s\n", (char *)wrong);
        n_wrong += wrong != NULL;
        free(wrong);
    }
    first_round += 1002;
    assert_int_equal(n_wrong, 0);
}

/* Records the answers to all prompts, one at a time. */
static void learn(void) {
    char body[512];
    for (int scale = 0; scale < N_SCALES; scale++) {
        snprintf(body, sizeof body, "[{\"id\":0,\"scale\":%d}]", scale);
        http_reply set = http_post(&c, "/lora-adapters?model=two", body);
        assert_int_equal(set.status, 200);
        http_free(&set);
        for (int i = 0; i < N_PROMPTS; i++) {
            write_body(body, sizeof body, "two", i, false);
            http_reply r = http_post(&c, "/v1/chat/completions", body);
            alone[scale][i] = strdup(http_text(&r, "choices.0.message.content"));
            http_free(&r);
        }
    }
    assert_string_not_equal(alone[0][0], alone[1][0]);
}

static void soak(int clients, int n_parts, double seconds) {
    n_clients = clients;
    mallopt(M_ARENA_MAX, 1); /* mallinfo2 counts only the first heap */
    case_open(&c);
    write_adapter();
    c.options.served.context.kernels = PI_KERNELS_SCALAR; /* answers do not depend on the load */
    c.options.served.n_slots = 8;
    c.options.served.store.max_bytes = STORE_BYTES;
    c.options.models = models;
    c.options.n_models = 2;
    c.options.routes = true;
    c.options.max_models = 1;
    case_start(&c);
    learn();
    usage first = {.bytes = 0};
    for (int part = 0; part < n_parts; part++) {
        run_part(seconds / n_parts);
        const usage now = rest(part > 0 ? &first : NULL);
        print_message("part %d: %zu bytes, %d descriptors, %d threads; %d answers, %d left, "
                      "%d changes\n",
                      part, now.bytes, now.n_descriptors, now.n_threads, n_good, n_left, n_changes);
        if (part == 0) first = now;
        assert_true(now.n_descriptors <= first.n_descriptors);
        assert_true(now.n_threads <= first.n_threads);
        assert_true(now.bytes <= first.bytes + MAX_GROWTH);
    }
    case_stop(&c);
    for (int scale = 0; scale < N_SCALES; scale++)
        for (int i = 0; i < N_PROMPTS; i++) free(alone[scale][i]);
    case_close(&c);
    unlink(ADAPTER);
}

static void test_short(void **state) {
    (void)state;
    soak(16, 2, 2);
}

static void test_long(void **state) {
    (void)state;
    const char *seconds = getenv("PI_SOAK_SECONDS");
    soak(N_CLIENTS, 12, seconds ? strtod(seconds, NULL) : 3600);
}

int main(int argc, char **argv) {
    const struct CMUnitTest few[] = {cmocka_unit_test(test_short)};
    const struct CMUnitTest many[] = {cmocka_unit_test(test_long)};
    if (argc > 1 && strcmp(argv[1], "long") == 0) return cmocka_run_group_tests(many, NULL, NULL);
    return cmocka_run_group_tests(few, NULL, NULL);
}
