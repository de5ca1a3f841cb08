/* http.c: leads libmicrohttpd's callbacks to a route: collects the body, checks the request
 * (http_access.h) and finds the handler. Also the replies that all routes share. */
#include "http.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ascii_case.h"
#include "clock.h"
#include "dialects.h"
#include "http_access.h"
#include "log.h"
#include "mem.h"
#include "os_cpu.h"
#include "static_files.h"

/* ---- replies --------------------------------------------------------------------------------- */

static const char json_type[] = "application/json; charset=utf-8";

static const char *error_type(unsigned status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
    case 405:
        return "not_found_error";
    case 503:
        return "unavailable_error";
    default:
        return status < 500 ? "invalid_request_error" : "server_error";
    }
}

static unsigned http_status_of(pi_status status) {
    switch (status) {
    case PI_ERR_ARG:
    case PI_ERR_FORMAT:
    case PI_ERR_RANGE:
    case PI_ERR_LIMIT:
    case PI_ERR_UNSUPPORTED:
        return 400;
    case PI_ERR_NOT_FOUND:
        return 404;
    case PI_ERR_CANCELLED:
        return 503;
    default:
        return 500;
    }
}

void http_put_error(json_writer *w, const char *key, unsigned status, const char *message) {
    json_put_object(w, key);
    json_put_int(w, "code", status);
    json_put_text(w, "message", message);
    json_put_text(w, "type", error_type(status));
    json_end_object(w);
}

static void add_cors(const exchange *x, struct MHD_Response *response) {
    const char *origin = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND,
                                                     MHD_HTTP_HEADER_ORIGIN);
    if (!origin || !access_origin_is_named(&x->server->options, origin)) return;
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, "Origin");
    MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    /* Clients in browsers send additional headers: allow the ones they request. */
    const char *headers = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND,
                                                      "Access-Control-Request-Headers");
    MHD_add_response_header(response, "Access-Control-Allow-Headers",
                            headers ? headers
                                    : "authorization, content-type, x-api-key, anthropic-version");
}

enum MHD_Result http_send(exchange *x, unsigned status, struct MHD_Response *response) {
    if (!response) return MHD_NO;
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (x->widened.used) MHD_add_response_header(response, "X-Schema-Widened", x->widened.data);
    if (status == 503) MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    if (status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    add_cors(x, response);
    enum MHD_Result result = MHD_queue_response(x->connection, status, response);
    MHD_destroy_response(response);
    log_line(LOG_LEVEL_DEBUG, "%s %s %u after %.1f ms", x->method, x->path, status,
             1e3 * (clock_seconds() - x->started));
    return result;
}

enum MHD_Result http_reply_text(exchange *x, unsigned status, const char *type, bytes *body) {
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback(
        body->used, body->data ? (void *)body->data : "", body->data ? mem_free : NULL);
    if (!response) {
        bytes_free(body);
        return MHD_NO;
    }
    *body = (bytes){0};
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    return http_send(x, status, response);
}

static bool is_under(const exchange *x, const char *path) {
    return strncmp(x->path, path, strlen(path)) == 0;
}

/* Writes the error of a prompt that is too long, in the form of each API, because clients recognise
 * this form and shorten the prompt. */
static void put_too_long(json_writer *w, const exchange *x, const char *message) {
    int32_t n_ctx = x->server->options.n_ctx;
    bool openai = is_under(x, "/v1/");
    json_put_object(w, "error");
    if (openai)
        json_put_text(w, "code", "context_length_exceeded");
    else
        json_put_int(w, "code", 400);
    json_put_text(w, "message", message);
    json_put_text(w, "type", openai ? error_type(400) : "exceed_context_size_error");
    if (openai) json_put_text(w, "param", NULL);
    json_put_int(w, "n_prompt_tokens", (int64_t)x->n_too_long);
    json_put_int(w, "n_ctx", n_ctx);
    json_end_object(w);
}

/* Writes the error of an unsupported feature. Anthropic's clients then send the whole conversation
 * instead of using threads. */
static void put_unsupported(json_writer *w, const exchange *x, const char *message) {
    json_put_object(w, "error");
    json_put_text(w, "type", error_type(400));
    json_put_text(w, "message", message);
    json_put_object(w, "details");
    json_put_text(w, "error_code", "thread_unsupported_request");
    json_put_array(w, "unsupported");
    json_put_text(w, NULL, x->unsupported);
    json_end_array(w);
    json_end_object(w);
    json_end_object(w);
}

static enum MHD_Result reply_message(exchange *x, unsigned status, const char *message) {
    bytes body = {0};
    bytes_json j;
    if (!bytes_json_begin(&j, &body)) return MHD_NO;
    json_put_object(&j.writer, NULL);
    const bool messages = is_under(x, "/v1/messages");
    char too_long[96];
    if (messages) json_put_text(&j.writer, "type", "error");
    snprintf(too_long, sizeof too_long, "prompt is too long: %zu tokens > %d maximum",
             x->n_too_long, x->server->options.n_ctx);
    if (x->unsupported)
        put_unsupported(&j.writer, x, message);
    else if (x->n_too_long && !messages)
        put_too_long(&j.writer, x, message);
    else
        http_put_error(&j.writer, "error", status, x->n_too_long ? too_long : message);
    json_end_object(&j.writer);
    if (bytes_json_end(&j)) return http_reply_text(x, status, json_type, &body);
    bytes_free(&body);
    return MHD_NO;
}

enum MHD_Result http_reply_error(exchange *x, unsigned status, const char *format, ...) {
    char text[PI_ERROR_TEXT_MAX];
    pi_error err; /* keeps the client's text on one line */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error_set(&err, PI_ERR_ARG, "%s", text);
    return reply_message(x, status, err.message);
}

enum MHD_Result http_reply_json(exchange *x, bytes_json *j, bytes *body) {
    if (bytes_json_end(j)) return http_reply_text(x, 200, json_type, body);
    bytes_free(body);
    return http_reply_error(x, 500, "out of memory");
}

enum MHD_Result http_reply_failed(exchange *x, const pi_error *err) {
    return reply_message(x, http_status_of(err->status), err->message);
}

bool http_parse_body(exchange *x, const json_node **out, enum MHD_Result *result) {
    pi_error err = {.status = PI_OK};
    *out = NULL;
    if (json_parse(x->body.data ? x->body.data : "", x->body.used, "request", &x->doc, &err)) {
        *result = http_reply_failed(x, &err);
        return false;
    }
    bytes_free(&x->body);
    *out = json_root(x->doc);
    if (json_kind_of(*out) == JSON_OBJECT) return true;
    *result = http_reply_error(x, 400, "request: must be a JSON object");
    return false;
}

/* ---- from connection to route ---------------------------------------------------------------- */

static bool normalise_path(const char *url, char *path) {
    size_t n = 0;
    for (; *url; url++) {
        if (*url == '/' && n && path[n - 1] == '/') continue;
        if (n + 1 >= HTTP_MAX_PATH) return false;
        path[n++] = *url;
    }
    if (n > 1 && path[n - 1] == '/') n--;
    path[n] = 0;
    return true;
}

/* Removes the server's prefix; false: the path does not begin with the prefix. */
static bool drop_prefix(const server *s, char *path) {
    const char *prefix = s->options.api_prefix;
    size_t n = prefix ? strlen(prefix) : 0;
    if (n == 0) return true;
    if (strncmp(path, prefix, n) != 0 || (path[n] && path[n] != '/')) return false;
    memmove(path, path + n, strlen(path + n) + 1);
    if (!*path) memcpy(path, "/", 2);
    return true;
}

/* Redirects to the path with a slash at its end: the page's addresses are relative to its
 * folder. */
static enum MHD_Result redirect_to_folder(exchange *x) {
    char folder[HTTP_MAX_PATH + 2];
    struct MHD_Response *response = MHD_create_response_from_buffer(0, (void *)(uintptr_t) "",
                                                                    MHD_RESPMEM_PERSISTENT);
    snprintf(folder, sizeof folder, "%.*s/", HTTP_MAX_PATH, x->server->options.api_prefix);
    if (response) MHD_add_response_header(response, MHD_HTTP_HEADER_LOCATION, folder);
    return http_send(x, 308, response);
}

/* Starts the deadline of the next request, or stops it when the request is complete. */
static void set_deadline(exchange *x, bool waiting) {
    server *s = x->server;
    if (!x->client) return;
    os_mutex_lock(&s->clients_lock);
    x->client->deadline = waiting ? clock_seconds() + s->options.read_seconds : 0;
    os_mutex_unlock(&s->clients_lock);
}

/* Lowers the priority of the thread, so that long requests leave the CPU to the threads that
 * compute for all clients. */
static void lower_priority(void) {
    if (os_thread_nice() < HTTP_NICE) (void)os_thread_set_nice(HTTP_NICE);
}

static enum MHD_Result begin(server *s, struct MHD_Connection *connection, const char *url,
                             const char *method, const char *version, void **state) {
    exchange *x = mem_calloc(1, sizeof *x);
    if (!x) return MHD_NO;
    *state = x;
    *x = (exchange){.server = s, .connection = connection, .method = method, .key = -1};
    x->started = clock_seconds();
    lower_priority();
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info) x->client = info->socket_context;
    const char *malformed = access_malformed(connection, version);
    if (malformed) return http_reply_error(x, 400, "%s", malformed);
    if (!normalise_path(url, x->path)) return http_reply_error(x, 414, "the path is too long");
    x->at_prefix = s->options.api_prefix && strcmp(url, s->options.api_prefix) == 0;
    if (!drop_prefix(s, x->path)) return http_reply_error(x, 404, "there is no %s", x->path);
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                                     MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (length && (strlen(length) > 9 || strtol(length, NULL, 10) > HTTP_MAX_BODY))
        return http_reply_error(x, 413, "the body is too long: at most %d bytes", HTTP_MAX_BODY);
    return MHD_YES;
}

static enum MHD_Result dispatch(exchange *x) {
    const char *allowed = NULL;
    set_deadline(x, false);
    if (x->too_long)
        return http_reply_error(x, 413, "the body is too long: at most %d bytes", HTTP_MAX_BODY);
    if (!access_host_is_own(x))
        return http_reply_error(
            x, 403,
            "the server does not answer for this Host: allow its origin, or set "
            "an API key");
    if (!access_origin_is_own(x))
        return http_reply_error(x, 403, "requests from pages of this origin are not allowed");
    if (strcmp(x->method, "OPTIONS") == 0)
        return http_send(
            x, 204,
            MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT));
    x->key = access_find_key(x);
    const char *method = strcmp(x->method, "HEAD") == 0 ? "GET" : x->method;
    route_handler handler = http_find_route(method, x->path, &allowed);
    bool reads = strcmp(method, "GET") == 0;
    if (x->at_prefix && reads) return redirect_to_folder(x);
    if (x->server->options.static_path && reads &&
        (handler == route_page || (!handler && !allowed)))
        return static_files_reply(x);
    if (x->server->options.n_api_keys && !http_is_public(x->path) && x->key < 0)
        return http_reply_error(x, 401, "a valid API key is needed");
    const char *encoding = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND,
                                                       MHD_HTTP_HEADER_CONTENT_ENCODING);
    if (handler && encoding && !ascii_same(encoding, "identity"))
        return http_reply_error(x, 415, "bodies with a Content-Encoding are not supported");
    if (handler) return handler(x);
    if (!allowed) return http_reply_error(x, 404, "there is no %s", x->path);
    return http_reply_error(x, 405, "%s takes %s, not %s", x->path, allowed, x->method);
}

enum MHD_Result http_handle(void *user, struct MHD_Connection *connection, const char *url,
                            const char *method, const char *version, const char *upload,
                            size_t *n_upload, void **state) {
    if (!*state) return begin(user, connection, url, method, version, state);
    exchange *x = *state;
    if (*n_upload == 0) return dispatch(x);
    size_t n = *n_upload, n_body = x->body.used + n;
    *n_upload = 0;
    if (n_body > 2 * (size_t)HTTP_MAX_BODY) return MHD_NO; /* stops reading */
    if (n_body > HTTP_MAX_BODY) x->too_long = true;
    return bytes_append(&x->body, upload, n) ? MHD_YES : MHD_NO;
}

size_t http_unescape(void *user, struct MHD_Connection *connection, char *text) {
    (void)user;
    (void)connection;
    return strstr(text, "%00") ? strlen(text) : MHD_http_unescape(text);
}

void http_completed(void *user, struct MHD_Connection *connection, void **state,
                    enum MHD_RequestTerminationCode code) {
    (void)user;
    (void)connection;
    (void)code;
    exchange *x = *state;
    if (!x) return;
    set_deadline(x, true);
    json_free(x->doc);
    bytes_free(&x->body);
    bytes_free(&x->widened);
    mem_free(x);
    *state = NULL;
}

void http_connection(void *user, struct MHD_Connection *connection, void **socket_state,
                     enum MHD_ConnectionNotificationCode code) {
    server *s = user;
    http_client *c = *socket_state;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(
            connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        c = mem_calloc(1, sizeof *c);
        *socket_state = c;
        if (!c) return;
        c->fd = info ? info->connect_fd : -1;
        c->deadline = clock_seconds() + s->options.read_seconds;
        os_mutex_lock(&s->clients_lock);
        c->next = s->clients;
        if (c->next) c->next->previous = c;
        s->clients = c;
        os_mutex_unlock(&s->clients_lock);
    } else if (c) {
        os_mutex_lock(&s->clients_lock);
        if (c->next) c->next->previous = c->previous;
        if (c->previous)
            c->previous->next = c->next;
        else
            s->clients = c->next;
        os_mutex_unlock(&s->clients_lock);
        mem_free(c);
        *socket_state = NULL;
    }
}
