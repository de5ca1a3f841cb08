/* server.c: life cycle of the server: listens, starts and stops the daemon. */
#include "server.h"

#ifdef SERVER_HAVE_MICROHTTPD

#include <string.h>
#include <time.h>

#include "clock.h"
#include "dialects.h"
#include "http.h"
#include "log.h"
#include "mem.h"

enum {
    THREAD_STACK = 512 << 10, /* bytes; only nested JSON recurses here, at most 64 levels */
    ANSWER_SECONDS = 2,       /* for the end of answers during shutdown */
    BACKLOG = 1024
};

/* TLS 1.2 and later, with the algorithms that GnuTLS considers secure. */
#define TLS_PRIORITIES "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1"

/* libmicrohttpd 1.0 refuses requests that violate the specification. http_access.h has checks for
 * earlier versions, whose strict mode only refuses a missing Host. */
#if MHD_VERSION >= 0x00097701
#define HTTP_STRICT MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1,
#else
#define HTTP_STRICT
#endif

/* ---- listening ------------------------------------------------------------------------------- */

static pi_status listen_on(server *s, pi_error *err) {
    os_listener l;
    pi_status status = os_socket_listen(s->options.host, s->options.port, BACKLOG, &l, err);
    s->listener = l.socket;
    s->port = l.port;
    s->is_loopback = l.is_loopback;
    return status;
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static void log_daemon(void *user, const char *format, va_list args) {
    char line[512];
    (void)user;
    vsnprintf(line, sizeof line, format, args);
    line[strcspn(line, "\n")] = 0;
    log_line(LOG_LEVEL_DEBUG, "http: %s", line);
}

static pi_status start_daemon(server *s, pi_error *err) {
    const bool tls = s->options.tls_cert != NULL;
    const unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
                           MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG |
                           (tls ? MHD_USE_TLS : 0u);
    struct MHD_OptionItem secure[] = {
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)s->options.tls_key},
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)s->options.tls_cert},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_PRIORITIES},
        {MHD_OPTION_END, 0, NULL}};
    if (tls && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return error_set(err, PI_ERR_UNSUPPORTED, "no TLS: libmicrohttpd was built without it");
    s->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, http_handle, s, MHD_OPTION_EXTERNAL_LOGGER, log_daemon, NULL,
        MHD_OPTION_LISTEN_SOCKET, (MHD_socket)s->listener, MHD_OPTION_NOTIFY_COMPLETED,
        http_completed, s, MHD_OPTION_NOTIFY_CONNECTION, http_connection, s,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)s->options.read_seconds,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->options.max_connections,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_MAX_HEADER, MHD_OPTION_THREAD_STACK_SIZE,
        (size_t)THREAD_STACK, MHD_OPTION_UNESCAPE_CALLBACK, http_unescape, s,
        HTTP_STRICT MHD_OPTION_ARRAY, tls ? secure : &secure[3], MHD_OPTION_END);
    if (!s->daemon)
        return error_set(
            err, PI_ERR_IO, "%s",
            tls ? "HTTPS cannot be started: the certificate does not belong to the key, "
                  "or one of them is damaged or encrypted"
                : "the HTTP server cannot be started");
    s->listener = OS_SOCKET_NONE;
    return PI_OK;
}

pi_status server_start(const server_options *options, server **out, pi_error *err) {
    *out = NULL;
    server *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, "server");
    *s = (server){.options = *options, .listener = OS_SOCKET_NONE, .created = (int64_t)time(NULL)};
    os_mutex_init(&s->clients_lock);
    pi_status status = PI_OK;
    if (!page_create(&s->page)) status = error_nomem(err, 0, "page");
    if (status == PI_OK) status = limiter_create(&s->options, &s->limiter, err);
    if (status == PI_OK) status = registry_create(&s->options, &s->registry, err);
    if (status == PI_OK) status = listen_on(s, err);
    if (status == PI_OK) status = start_daemon(s, err);
    if (status == PI_OK) status = registry_start(s->registry, err);
    if (status != PI_OK) {
        server_stop(s, 0);
        return status;
    }
    *out = s;
    return PI_OK;
}

uint16_t server_port(const server *s) {
    return s->port;
}

void server_describe(const server *s, server_description *out) {
    *out = (server_description){.n_slots = 0};
    served_model *m = s->options.routes ? NULL : registry_peek(s->registry, 0);
    if (!m) return;
    const pi_context *context = scheduler_context(m->scheduler);
    *out = (server_description){.n_slots = m->options.n_slots,
                                .n_ctx = m->options.n_ctx,
                                .n_threads = pi_context_threads(context),
                                .mode = pi_context_mode(context),
                                .kernels = pi_context_kernels(context),
                                .lacks_template = m->prompts.is_fallback && !m->encoder};
    registry_release(s->registry, m);
}

/* Closes slow connections: libmicrohttpd counts time from a client's last byte, so one byte per
 * second would keep a connection open. */
void server_tick(server *s) {
    double now = clock_seconds();
    os_mutex_lock(&s->clients_lock);
    for (http_client *c = s->clients; c; c = c->next) {
        if (c->deadline > 0 && now > c->deadline && c->fd != OS_SOCKET_NONE) os_socket_end(c->fd);
    }
    os_mutex_unlock(&s->clients_lock);
}

void server_drain(server *s) {
    atomic_store(&s->draining, true);
}

bool server_is_busy(server *s) {
    bool busy = false;
    os_mutex_lock(&s->clients_lock);
    for (const http_client *c = s->clients; c; c = c->next) busy |= c->deadline <= 0;
    os_mutex_unlock(&s->clients_lock);
    return busy;
}

static void wait_for_answers(server *s, double seconds) {
    static const double moment = 5e-3; /* seconds */
    const double end = clock_seconds() + seconds;
    while (server_is_busy(s) && clock_seconds() < end) os_sleep(moment);
}

void server_stop(server *s, double seconds) {
    if (!s) return;
    server_drain(s);
    if (s->daemon) {
        wait_for_answers(s, seconds);
        /* The daemon's thread may still use the socket until the daemon is stopped. */
        s->listener = (os_socket)MHD_quiesce_daemon(s->daemon);
    }
    if (s->registry) registry_stop(s->registry);
    if (s->daemon) {
        wait_for_answers(s, ANSWER_SECONDS); /* libmicrohttpd would truncate them */
        MHD_stop_daemon(s->daemon);          /* joins the threads of connections */
    }
    if (s->listener != OS_SOCKET_NONE) os_socket_close(s->listener);
    registry_destroy(s->registry);
    limiter_destroy(s->limiter);
    page_free(&s->page);
    os_mutex_destroy(&s->clients_lock);
    mem_free(s);
}

#else

#include "error.h"

pi_status server_start(const server_options *options, server **out, pi_error *err) {
    (void)options;
    *out = NULL;
    return error_set(err, PI_ERR_UNSUPPORTED, "no HTTP server: this program was built without %s",
                     SERVER_LACKS);
}

uint16_t server_port(const server *s) {
    (void)s;
    return 0;
}

void server_describe(const server *s, server_description *out) {
    (void)s;
    *out = (server_description){.n_slots = 0};
}

void server_tick(server *s) {
    (void)s;
}

void server_drain(server *s) {
    (void)s;
}

bool server_is_busy(server *s) {
    (void)s;
    return false;
}

void server_stop(server *s, double seconds) {
    (void)s;
    (void)seconds;
}

#endif
