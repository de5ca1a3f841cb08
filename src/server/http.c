/* http.c: the callbacks of libmicrohttpd: collects the body, checks the request (http_access.h) and
 * calls the handler of its route. */
#include "http.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ascii_case.h"
#include "clock.h"
#include "dialects.h"
#include "http_access.h"
#include "mem.h"
#include "os_cpu.h"
#include "static_files.h"

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
    *x = (exchange){
        .server = s, .connection = connection, .method = method, .key = -1, .model = -1};
    x->started = clock_seconds();
    x->deadline = HUGE_VAL;
    x->record.queue_seconds = x->record.first_token_seconds = -1;
    http_choose_id(x);
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
    enum MHD_Result result = MHD_NO;
    set_deadline(x, false);
    if (x->too_long)
        return http_reply_error(x, 413, "the body is too long: at most %d bytes", HTTP_MAX_BODY);
    if (!access_host_is_own(x->connection, &x->server->options, x->server->is_loopback))
        return http_reply_error(
            x, 403,
            "the server does not answer for this Host: allow its origin, or set "
            "an API key");
    if (!access_origin_is_own(x->connection, &x->server->options))
        return http_reply_error(x, 403, "requests from pages of this origin are not allowed");
    if (strcmp(x->method, "OPTIONS") == 0)
        return http_send(
            x, 204,
            MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT));
    x->key = access_find_key(x->connection, &x->server->options);
    const char *method = strcmp(x->method, "HEAD") == 0 ? "GET" : x->method;
    const http_route *route = http_find_route(method, x->path, &allowed);
    bool reads = strcmp(method, "GET") == 0;
    if (x->at_prefix && reads) return redirect_to_folder(x);
    if (x->server->options.static_path && reads &&
        (route ? route->handler == route_page : !allowed))
        return static_files_reply(x);
    if (x->server->options.n_api_keys && !(route && route->is_public) && x->key < 0)
        return http_reply_error(x, 401, "a valid API key is needed");
    const char *encoding = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND,
                                                       MHD_HTTP_HEADER_CONTENT_ENCODING);
    if (route && encoding && !ascii_same(encoding, "identity"))
        return http_reply_error(x, 415, "bodies with a Content-Encoding are not supported");
    if (route && !http_begin_use(x, route, &result)) return result;
    if (route) {
        result = route->handler(x);
        http_release_model(x);
        return result;
    }
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
    exchange *x = *state;
    if (!x) return;
    http_log(x, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    http_end_use(x);
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
        c = mem_calloc(1, sizeof *c);
        *socket_state = c;
        if (!c) return;
        c->fd = http_socket(connection);
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
