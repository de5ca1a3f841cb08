/* exchange.c: the replies that all routes share. */
#include "exchange.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "clock.h"
#include "duration.h"
#include "http_access.h"
#include "log.h"
#include "mem.h"

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
    case 429:
        return "rate_limit_error";
    case 503:
        return "unavailable_error";
    case 504:
        return "timeout_error";
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

static void add_level(struct MHD_Response *response, const limit_level *level, const char *what) {
    static const char *const parts[] = {"limit", "remaining", "reset"};
    char values[3][32];
    if (level->limit == 0) return;
    snprintf(values[0], sizeof values[0], "%.0f", level->limit);
    snprintf(values[1], sizeof values[1], "%.0f", floor(level->left));
    duration_write(level->refill, values[2], sizeof values[2]);
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "x-ratelimit-%s-%s", parts[i], what);
        MHD_add_response_header(response, name, values[i]);
    }
}

os_socket http_socket(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? (os_socket)info->connect_fd : OS_SOCKET_NONE;
}

void http_label_sequence(const exchange *x, sequence *q) {
    q->owner = http_owner(x);
    q->account = x->key + 1;
    q->priority = (int32_t)x->priority;
    q->deadline = isfinite(x->deadline) ? x->deadline : 0;
    q->fd = http_socket(x->connection);
}

enum MHD_Result http_send(exchange *x, unsigned status, struct MHD_Response *response) {
    char retry[16] = "1";
    if (!response) return MHD_NO;
    x->status = status;
    MHD_add_response_header(response, "X-Request-Id", x->id);
    add_level(response, &x->levels.requests, "requests");
    add_level(response, &x->levels.tokens, "tokens");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (x->widened.used) MHD_add_response_header(response, "X-Schema-Widened", x->widened.data);
    if (x->retry_seconds > 0) snprintf(retry, sizeof retry, "%d", (int)x->retry_seconds);
    if (status == 503 || status == 429)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, retry);
    if (atomic_load(&x->server->draining))
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
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
    int32_t n_ctx = x->served->options.n_ctx;
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

/* Writes an error that OpenAI's clients know by the name of its code. */
static void put_coded(json_writer *w, const exchange *x, unsigned status, const char *message) {
    json_put_object(w, "error");
    json_put_text(w, "message", message);
    json_put_text(w, "type", error_type(status));
    json_put_text(w, "param", NULL);
    json_put_text(w, "code", x->error_code);
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
    const bool messages = is_under(x, "/v1/messages"), ollama = is_under(x, "/api/");
    char too_long[96];
    if (messages) json_put_text(&j.writer, "type", "error");
    if (x->n_too_long)
        snprintf(too_long, sizeof too_long, "prompt is too long: %zu tokens > %d maximum",
                 x->n_too_long, x->served->options.n_ctx);
    if (ollama)
        json_put_text(&j.writer, "error", message);
    else if (x->unsupported)
        put_unsupported(&j.writer, x, message);
    else if (x->n_too_long && !messages)
        put_too_long(&j.writer, x, message);
    else if (x->error_code && is_under(x, "/v1/") && !messages)
        put_coded(&j.writer, x, status, message);
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
    *out = json_root(x->doc);
    if (x->doc) return true;
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
