/* hub_server.c: see hub_server.h. One thread and one request per connection. The test changes the
 * state only between requests; a lock protects the log. */
#include "hub_server.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "sha256.h"

enum { REQUEST_ROOM = 8192, HEADER_ROOM = 2048, CHUNK = 4096 };

typedef struct connection {
    hub_server *server;
    int fd;
} connection;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void hub_server_add(hub_server *s, const char *name, const void *data, size_t n_bytes) {
    assert_true(s->n_files < HUB_SERVER_FILES);
    hub_server_file *f = &s->files[s->n_files++];
    *f = (hub_server_file){.name = name, .data = data, .n_bytes = n_bytes};
    sha256_hex(data, n_bytes, f->sha256);
}

int hub_server_count(const hub_server *s, const char *text) {
    int n = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < s->n_log; i++) n += strstr(s->log[i], text) != NULL;
    pthread_mutex_unlock(&lock);
    return n;
}

static void header(const char *request, const char *name, char *buf, size_t n_buf) {
    char start[64];
    snprintf(start, sizeof start, "\r\n%s: ", name);
    const char *at = strcasestr(request, start);
    buf[0] = 0;
    if (!at) return;
    at += strlen(start);
    snprintf(buf, n_buf, "%.*s", (int)strcspn(at, "\r"), at);
}

static void send_all(int fd, const char *data, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
        if (sent <= 0) return;
        data += sent;
        n -= (size_t)sent;
    }
}

static void answer(int fd, int status, const char *headers, const char *body, bool head) {
    char text[HEADER_ROOM + REQUEST_ROOM];
    snprintf(text, sizeof text,
             "HTTP/1.1 %d x\r\nConnection: close\r\n%sContent-Length: %zu\r\n\r\n%s", status,
             headers, strlen(body), head ? "" : body);
    send_all(fd, text, strlen(text));
}

static const hub_server_file *find(const hub_server *s, const char *name) {
    for (int i = 0; i < s->n_files; i++)
        if (strcmp(s->files[i].name, name) == 0) return &s->files[i];
    return NULL;
}

static void send_listing(const hub_server *s, int fd) {
    char body[REQUEST_ROOM];
    int n = snprintf(body, sizeof body,
                     "{\"id\": \"test/tiny-GGUF\", \"sha\": \"%s\", \"siblings\": "
                     "[{\"rfilename\": \"../../escape.gguf\"}, {\"rfilename\": \"README.md\"}",
                     s->commit);
    for (int i = 0; i < s->n_files; i++)
        n += snprintf(body + n, sizeof body - (size_t)n, ", {\"rfilename\": \"%s\"}",
                      s->files[i].name);
    snprintf(body + n, sizeof body - (size_t)n, "]}");
    answer(fd, 200, "Content-Type: application/json\r\n", body, false);
}

/* Sends the redirect of a file in the repository. */
static void send_link(const hub_server *s, int fd, const hub_server_file *f, bool head) {
    char headers[HEADER_ROOM], escaped[HUB_SERVER_LINE];
    size_t n = 0;
    for (const char *c = f->name; *c; c++)
        n += (size_t)snprintf(escaped + n, sizeof escaped - n, *c == ' ' ? "%%20" : "%c", *c);
    snprintf(headers, sizeof headers,
             "Location: http://localhost:%d/cdn/%s?signature=x\r\nX-Repo-Commit: %s\r\n"
             "X-Linked-Size: %zu\r\nX-Linked-Etag: \"%s\"\r\nETag: \"0123\"\r\n",
             s->port, escaped, s->commit, f->n_bytes + s->said_too_much,
             s->wrong_hash ? "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
                           : f->sha256);
    answer(fd, 302, headers, "moved", head);
}

/* Sends the bytes; with "bytes=N-" those from N on. */
static void send_bytes(hub_server *s, int fd, const hub_server_file *f, const char *range,
                       bool head) {
    char headers[HEADER_ROOM];
    size_t from = 0;
    if (!s->no_ranges && strncmp(range, "bytes=", 6) == 0)
        from = (size_t)strtol(range + 6, NULL, 10);
    if (from > f->n_bytes) from = 0;
    int n = snprintf(headers, sizeof headers,
                     "HTTP/1.1 %d x\r\nConnection: close\r\nContent-Length: %zu\r\n"
                     "ETag: \"%.16s\"\r\nContent-Type: application/octet-stream\r\n",
                     from ? 206 : 200, f->n_bytes - from, f->sha256);
    if (from)
        n += snprintf(headers + n, sizeof headers - (size_t)n,
                      "Content-Range: bytes %zu-%zu/%zu\r\n", from, f->n_bytes - 1, f->n_bytes);
    snprintf(headers + n, sizeof headers - (size_t)n, "\r\n");
    send_all(fd, headers, strlen(headers));
    if (head) return;
    size_t end = f->n_bytes;
    if (s->cut_after && s->n_cuts > 0 && from + s->cut_after < end) {
        s->n_cuts--;
        end = from + s->cut_after;
    }
    for (size_t at = from; at < end; at += CHUNK) {
        send_all(fd, (const char *)f->data + at, end - at < CHUNK ? end - at : CHUNK);
        if (s->pause_us) usleep(s->pause_us);
    }
}

static void reply(hub_server *s, int fd, const char *request) {
    static const char resolve[] = "/test/tiny-GGUF/resolve/";
    char method[8] = "", path[HUB_SERVER_LINE] = "", auth[128], range[64], host[128];
    sscanf(request, "%7s %511s", method, path);
    header(request, "Authorization", auth, sizeof auth);
    header(request, "Range", range, sizeof range);
    header(request, "Host", host, sizeof host);
    pthread_mutex_lock(&lock);
    if (s->n_log < HUB_SERVER_LOG)
        snprintf(s->log[s->n_log++], HUB_SERVER_LINE, "%s %.200s host=%s auth=%s range=%s", method,
                 path, host, auth, range);
    pthread_mutex_unlock(&lock);
    path[strcspn(path, "?")] = 0;
    for (char *blank; (blank = strstr(path, "%20"));) {
        *blank = ' ';
        memmove(blank + 1, blank + 3, strlen(blank + 3) + 1);
    }
    bool head = strcmp(method, "HEAD") == 0;
    const hub_server_file *f = NULL;
    if (s->fixed_status) {
        answer(fd, s->fixed_status, "X-Error-Message: as the test asked\r\n", "error", head);
        return;
    }
    if (strncmp(path, "/cdn/", 5) == 0 && (f = find(s, path + 5))) {
        send_bytes(s, fd, f, range, head);
        return;
    }
    if (strncmp(path, "/plain/", 7) == 0 && (f = find(s, path + 7))) {
        if (head && s->no_head)
            answer(fd, 405, "", "", head);
        else
            send_bytes(s, fd, f, range, head);
        return;
    }
    if (s->token && (strncmp(auth, "Bearer ", 7) != 0 || strcmp(auth + 7, s->token) != 0)) {
        answer(fd, 401, "X-Error-Code: GatedRepo\r\n", "no", head);
        return;
    }
    if (strcmp(path, "/api/models/test/tiny-GGUF/revision/main") == 0) {
        send_listing(s, fd);
        return;
    }
    if (strncmp(path, resolve, sizeof resolve - 1) == 0) {
        const char *name = strchr(path + sizeof resolve - 1, '/');
        f = name ? find(s, name + 1) : NULL;
    }
    if (f)
        send_link(s, fd, f, head);
    else
        answer(fd, 404, "X-Error-Code: EntryNotFound\r\n", "no", head);
}

static void *serve_one(void *user) {
    connection *c = user;
    char request[REQUEST_ROOM];
    size_t n = 0;
    while (n + 1 < sizeof request) {
        ssize_t got = recv(c->fd, request + n, sizeof request - 1 - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
        request[n] = 0;
        if (!strstr(request, "\r\n\r\n")) continue;
        reply(c->server, c->fd, request);
        break;
    }
    shutdown(c->fd, SHUT_RDWR);
    close(c->fd);
    free(c);
    return NULL;
}

static void *serve_all(void *user) {
    hub_server *s = user;
    for (int fd; (fd = accept(s->socket, NULL, NULL)) >= 0;) {
        pthread_t thread;
        connection *c = malloc(sizeof *c);
        *c = (connection){.server = s, .fd = fd};
        if (pthread_create(&thread, NULL, serve_one, c) != 0) abort();
        pthread_detach(thread);
    }
    return NULL;
}

void hub_server_start(hub_server *s) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t n = sizeof at;
    pthread_t thread;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *s = (hub_server){.commit = "0123456789abcdef0123456789abcdef01234567"};
    s->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s->socket >= 0);
    assert_int_equal(bind(s->socket, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s->socket, 64), 0);
    assert_int_equal(getsockname(s->socket, (struct sockaddr *)&at, &n), 0);
    s->port = ntohs(at.sin_port);
    snprintf(s->endpoint, sizeof s->endpoint, "http://127.0.0.1:%d", s->port);
    assert_int_equal(pthread_create(&thread, NULL, serve_all, s), 0);
    pthread_detach(thread);
}

void hub_server_stop(hub_server *s) {
    shutdown(s->socket, SHUT_RDWR);
    close(s->socket);
}
