/* server_case.c: see server_case.h. */
#include "server_case.h"

#include <arpa/inet.h>
#include <errno.h>
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

#include "os_file.h"

pi_model *case_model;

int case_open_model(void **state) {
    (void)state;
    return pi_model_open(CASE_MODEL, NULL, &case_model, NULL);
}

int case_close_model(void **state) {
    (void)state;
    pi_model_close(case_model);
    return 0;
}

static void open_with(server_case *c, const pi_model_options *o) {
    pi_error err;
    *c = (server_case){.model = NULL};
    if (pi_model_open(CASE_MODEL, o, &c->model, &err) != PI_OK) fail_msg("%s", err.message);
    c->options = (server_options){.served = {.model = c->model,
                                             .model_name = "novella",
                                             .model_path = CASE_MODEL,
                                             .context = pi_context_default_options(),
                                             .sampling = pi_sampler_default_options(),
                                             .n_slots = 4,
                                             .n_ctx = 256,
                                             .max_queue = 256,
                                             .max_tokens = -1,
                                             .reasoning_budget = -1,
                                             .template_name = "chatml"},
                                  .metrics_prefix = "powerinfer_",
                                  .host = "127.0.0.1",
                                  .has_page = true,
                                  .ping_seconds = 30,
                                  .read_seconds = 60,
                                  .max_connections = 1200};
    c->options.served.context.device = PI_DEVICE_CPU;
    c->options.served.context.n_threads = 2;
    /* Tests compare answers: rounded keys and values would differ where sums differ. */
    c->options.served.context.cache_k = c->options.served.context.cache_v = PI_CACHE_F32;
    c->options.served.sampling.temp = 0;
}

void case_open(server_case *c) {
    open_with(c, NULL);
}

void case_open_fim(server_case *c) {
    static const pi_metadata_override fim[] = {
        {.key = "tokenizer.ggml.fim_pre_token_id", .type = PI_VALUE_INT, .integer = CASE_FIM_PRE},
        {.key = "tokenizer.ggml.fim_suf_token_id", .type = PI_VALUE_INT, .integer = CASE_FIM_SUF},
        {.key = "tokenizer.ggml.fim_mid_token_id", .type = PI_VALUE_INT, .integer = CASE_FIM_MID}};
    pi_model_options o = pi_model_default_options();
    o.overrides = fim;
    o.n_overrides = 3;
    open_with(c, &o);
}

void case_start(server_case *c) {
    pi_error err;
    if (server_start(&c->options, &c->server, &err) != PI_OK) fail_msg("%s", err.message);
    c->port = server_port(c->server);
    assert_int_not_equal(c->port, 0);
}

void case_stop(server_case *c) {
    server_stop(c->server, 1);
    c->server = NULL;
}

void case_close(server_case *c) {
    case_stop(c);
    pi_model_close(c->model);
}

/* ---- sockets --------------------------------------------------------------------------------- */

int socket_open(const server_case *c) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(c->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
    fail_msg("cannot connect");
    return -1;
}

void socket_send(int fd, const char *text) {
    size_t n = strlen(text);
    while (n) {
        ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent <= 0) return; /* the server may have closed the connection: the answer tells */
        text += sent;
        n -= (size_t)sent;
    }
}

char *socket_read_all(int fd, size_t *n) {
    size_t room = 1 << 16;
    char *data = malloc(room);
    *n = 0;
    for (;;) {
        ssize_t got = recv(fd, data + *n, room - *n - 1, 0);
        if (got <= 0) break;
        *n += (size_t)got;
        if (*n + 1 < room) continue;
        room *= 2;
        data = realloc(data, room);
    }
    data[*n] = 0;
    return data;
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

/* Joins chunks in place; returns the total length. */
static size_t join_chunks(char *body) {
    char *to = body, *from = body;
    for (;;) {
        char *end = NULL;
        size_t n = strtoul(from, &end, 16);
        if (end == from || n == 0) break;
        from = end + strspn(end, "\r") + 1;
        memmove(to, from, n);
        to += n;
        from += n + 2;
    }
    *to = 0;
    return (size_t)(to - body);
}

static http_reply parse_reply(char *data, size_t n) {
    http_reply r = {0};
    char *split = strstr(data, "\r\n\r\n");
    r.headers = data;
    if (!split) return r;
    *split = 0;
    r.body = split + 4;
    r.n_body = n - (size_t)(r.body - data);
    r.status = (int)strtol(strchr(data, ' ') + 1, NULL, 10);
    if (strcasestr(data, "Transfer-Encoding: chunked")) r.n_body = join_chunks(r.body);
    return r;
}

http_reply http_ask(const server_case *c, const char *method, const char *path, const char *headers,
                    const char *body) {
    size_t n_body = body ? strlen(body) : 0, n_reply = 0;
    size_t n = n_body + strlen(path) + (headers ? strlen(headers) : 0) + 256;
    char *text = malloc(n);
    snprintf(text, n,
             "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n%sContent-Length: %zu\r\n"
             "\r\n%s",
             method, path, headers ? headers : "", n_body, body ? body : "");
    int fd = socket_open(c);
    socket_send(fd, text);
    char *data = socket_read_all(fd, &n_reply);
    close(fd);
    free(text);
    return parse_reply(data, n_reply);
}

http_reply http_post(const server_case *c, const char *path, const char *body) {
    return http_ask(c, "POST", path, "Content-Type: application/json\r\n", body);
}

void http_free(http_reply *r) {
    json_free(r->doc);
    free(r->headers);
    *r = (http_reply){0};
}

static const json_node *follow(const json_node *node, const char *path) {
    char key[64];
    while (*path && node) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        node = json_kind_of(node) == JSON_ARRAY ? json_at(node, strtoul(key, NULL, 10))
                                                : json_get(node, key);
        path += n + (path[n] == '.');
    }
    return node;
}

const json_node *http_json(http_reply *r, const char *path) {
    pi_error err;
    if (!r->doc && json_parse(r->body ? r->body : "", r->n_body, "reply", &r->doc, &err) != PI_OK)
        fail_msg("status %d: %s: %s", r->status, err.message, r->body ? r->body : "");
    return follow(json_root(r->doc), path);
}

const char *http_text(http_reply *r, const char *path) {
    const char *text = NULL;
    size_t n = 0;
    if (!json_as_string(http_json(r, path), &text, &n)) fail_msg("no text %s: %s", path, r->body);
    return text;
}

int64_t http_int(http_reply *r, const char *path) {
    int64_t value = 0;
    if (!json_as_int(http_json(r, path), &value)) fail_msg("no number %s: %s", path, r->body);
    return value;
}

double case_metric(const server_case *c, const char *name) {
    char line[128];
    http_reply r = http_ask(c, "GET", "/metrics", NULL, NULL);
    snprintf(line, sizeof line, "\npowerinfer_%s ", name);
    const char *at = strstr(r.body, line);
    if (!at) fail_msg("no %s", name);
    double value = strtod(at + strlen(line), NULL);
    http_free(&r);
    return value;
}

void http_refused(const server_case *c, const char *path, const char *body, int status) {
    http_reply r = http_post(c, path, body);
    if (r.status != status)
        fail_msg("%s %.200s: %d: %s", path, body, r.status, r.body ? r.body : "");
    /* OpenAI's error codes are names */
    if (json_kind_of(http_json(&r, "error.code")) != JSON_STRING)
        assert_int_equal(http_int(&r, "error.code"), status);
    assert_true(strlen(http_text(&r, "error.message")) > 0);
    assert_true(strlen(http_text(&r, "error.type")) > 0);
    http_free(&r);
}

void case_check_weather(const char *arguments) {
    json_doc *doc;
    const char *city = NULL;
    size_t n;
    int64_t days = 0;
    assert_int_equal(json_parse(arguments, strlen(arguments), "arguments", &doc, NULL), PI_OK);
    assert_true(json_as_string(json_get(json_root(doc), "city"), &city, &n));
    assert_true(strcmp(city, "Rome") == 0 || strcmp(city, "Oslo") == 0);
    assert_true(json_as_int(json_get(json_root(doc), "days"), &days) && days >= 1 && days <= 9);
    json_free(doc);
}

/* ---- events ---------------------------------------------------------------------------------- */

const char *http_event(http_reply *r, size_t i) {
    static _Thread_local char text[1 << 16];
    const char *at = r->body ? r->body : "";
    for (;;) {
        at = strstr(at, "data: ");
        if (!at) return NULL;
        at += 6;
        if (i-- == 0) break;
    }
    size_t n = strcspn(at, "\n");
    assert_true(n < sizeof text);
    memcpy(text, at, n);
    text[n] = 0;
    return text;
}

const json_node *event_json(http_reply *r, size_t i, const char *path, json_doc **doc) {
    const char *text = http_event(r, i);
    *doc = NULL;
    if (!text || strcmp(text, "[DONE]") == 0) return NULL;
    if (json_parse(text, strlen(text), "event", doc, NULL) != PI_OK) fail_msg("event: %s", text);
    return follow(json_root(*doc), path);
}

char *http_joined(http_reply *r, const char *path, int index) {
    char *all = calloc(1, r->n_body + 1);
    size_t used = 0;
    for (size_t i = 0; http_event(r, i); i++) {
        json_doc *doc;
        const char *text = NULL;
        size_t n = 0;
        int64_t at = 0;
        const json_node *node = event_json(r, i, path, &doc);
        json_as_int(follow(json_root(doc), "choices.0.index"), &at);
        if (at != index) node = NULL;
        if (json_as_string(node, &text, &n)) memcpy(all + used, text, n);
        used += n;
        json_free(doc);
    }
    return all;
}

/* ---- prompt stores --------------------------------------------------------------------------- */

int store_each_file(const char *folder, void (*act)(const char *path)) {
    char sub[512], path[1024];
    const char *name;
    int n = 0;
    os_folder *outer = os_folder_open(folder);
    while (outer && (name = os_folder_next(outer))) {
        snprintf(sub, sizeof sub, "%s/%s", folder, name);
        os_folder *inner = os_folder_open(sub);
        while (inner && (name = os_folder_next(inner))) {
            snprintf(path, sizeof path, "%s/%s", sub, name);
            act(path);
            n++;
        }
        os_folder_close(inner);
    }
    os_folder_close(outer);
    return n;
}

static void remove_file(const char *path) {
    assert_int_equal(os_path_remove(path), 0);
}

void store_empty_folder(const char *folder) {
    int problem = os_folder_create(folder);
    assert_true(problem == 0 || problem == EEXIST);
    store_each_file(folder, remove_file);
}
