/* fetch_http.c: requests with libcurl. This file follows redirects, not libcurl, so that the rules
 * are visible here: https stays https; the token goes to its origin only, and over plain http only
 * to this machine. Proxies come from the environment, which libcurl reads. */
#include "fetch_http.h"

#include <stdio.h>
#include <string.h>

#include "affix.h"
#include "ascii_case.h"
#include "curl_late.h"
#include "mem.h"

void fetch_http_origin(const char *url, char *buf, size_t n_buf) {
    const char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    snprintf(buf, n_buf, "%.*s", (int)(host - url) + (int)strcspn(host, "/?#"), url);
}

#ifndef FETCH_HAVE_CURL

pi_status fetch_http_open(http_client **out, pi_error *err) {
    *out = NULL;
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "downloading is not built in: install libcurl and build again, or download "
                     "the file with another program and name it with -m FILE");
}

void fetch_http_close(http_client *c) {
    (void)c;
}

pi_status fetch_http_send(http_client *c, const http_request *r, http_reply *reply, pi_error *err) {
    (void)c, (void)r, (void)reply;
    return error_set(err, PI_ERR_UNSUPPORTED, "downloading is not built in");
}

#else

#include <curl/curl.h>
#include <stdlib.h>

enum {
    MAX_REDIRECTS = 10,
    CONNECT_SECONDS = 20,
    SILENT_SECONDS = 60, /* without a byte, after which the connection is dead */
    TOKEN_MAX = 1024
};

struct http_client {
    CURL *curl;
    char reason[CURL_ERROR_SIZE];
    char url[HTTP_URL_MAX], next[HTTP_URL_MAX];
};

/* A request while it runs. */
typedef struct transfer {
    const http_request *request;
    http_reply *reply;
    CURL *curl;
    bool stopped;
} transfer;

pi_status fetch_http_open(http_client **out, pi_error *err) {
    *out = NULL;
#ifdef FETCH_OPENS_CURL
    pi_status status = curl_late_open(err);
    if (status != PI_OK) return status;
#endif
    http_client *c = mem_calloc(1, sizeof *c);
    if (!c) return error_nomem(err, sizeof *c, "HTTP client");
    if (curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) c->curl = curl_easy_init();
    if (!c->curl) {
        mem_free(c);
        return error_set(err, PI_ERR_NOMEM, "libcurl cannot start: there is not enough memory");
    }
    *out = c;
    return PI_OK;
}

void fetch_http_close(http_client *c) {
    if (!c) return;
    curl_easy_cleanup(c->curl);
    curl_global_cleanup();
    mem_free(c);
}

/* ---- origins --------------------------------------------------------------------------------- */

static bool get_part(const char *url, CURLUPart part, char *buf, size_t n_buf) {
    CURLU *u = curl_url();
    char *text = NULL;
    bool good = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
                curl_url_get(u, part, &text, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                strlen(text) < n_buf;
    if (good) snprintf(buf, n_buf, "%s", text);
    curl_free(text);
    curl_url_cleanup(u);
    return good;
}

static bool same_part(const char *a, const char *b, CURLUPart part) {
    char of_a[HTTP_VALUE_MAX], of_b[HTTP_VALUE_MAX];
    return get_part(a, part, of_a, sizeof of_a) && get_part(b, part, of_b, sizeof of_b) &&
           ascii_same(of_a, of_b);
}

static bool same_origin(const char *a, const char *b) {
    return same_part(a, b, CURLUPART_SCHEME) && same_part(a, b, CURLUPART_HOST) &&
           same_part(a, b, CURLUPART_PORT);
}

static bool is_encrypted(const char *url) {
    return ascii_same_n(url, "https://", 8);
}

static bool is_loopback(const char *url) {
    char host[HTTP_VALUE_MAX];
    if (!get_part(url, CURLUPART_HOST, host, sizeof host)) return false;
    unsigned digits[4];
    char more;
    if (sscanf(host, "%3u.%3u.%3u.%3u%c", digits, digits + 1, digits + 2, digits + 3, &more) == 4)
        return digits[0] == 127;
    return ascii_same(host, "localhost") || strcmp(host, "[::1]") == 0;
}

static bool token_may_go(const http_request *r, const char *url) {
    return r->token && r->home && same_origin(url, r->home) &&
           (is_encrypted(url) || is_loopback(url));
}

/* ---- callbacks ------------------------------------------------------------------------------- */

/* The value of header `name` in a line of n bytes. */
static bool header_value(const char *line, size_t n, const char *name, char *buf, size_t n_buf) {
    size_t n_name = strlen(name);
    if (n <= n_name || !ascii_same_n(line, name, n_name) || line[n_name] != ':') return false;
    const char *value = line + n_name + 1;
    n -= n_name + 1;
    while (n > 0 && (*value == ' ' || *value == '\t')) value++, n--;
    while (n > 0 && strchr("\r\n \t", value[n - 1])) n--;
    snprintf(buf, n_buf, "%.*s", (int)n, value);
    return true;
}

static void read_number(const char *line, size_t n, const char *name, int64_t *out) {
    char text[HTTP_VALUE_MAX], *end;
    if (!header_value(line, n, name, text, sizeof text)) return;
    long long value = strtoll(text, &end, 10);
    *out = end != text && !*end && value >= 0 ? value : -1;
}

/* "bytes 100-199/200" */
static void read_range(const char *line, size_t n, http_reply *reply) {
    char text[HTTP_VALUE_MAX];
    long long start, end, total;
    if (!header_value(line, n, "Content-Range", text, sizeof text)) return;
    if (sscanf(text, "bytes %19lld-%19lld/%19lld", &start, &end, &total) != 3) return;
    reply->range_start = start;
    reply->range_total = total;
}

static size_t on_header(char *line, size_t size, size_t n, void *user) {
    transfer *t = user;
    http_reply *reply = t->reply;
    (void)size; /* 1 */
    if (n > 5 && strncmp(line, "HTTP/", 5) == 0)
        *reply = (http_reply){
            .length = -1, .linked_size = -1, .range_start = -1, .range_total = -1};
    header_value(line, n, "ETag", reply->etag, sizeof reply->etag);
    header_value(line, n, "X-Linked-Etag", reply->linked_etag, sizeof reply->linked_etag);
    header_value(line, n, "X-Repo-Commit", reply->commit, sizeof reply->commit);
    header_value(line, n, "Content-Type", reply->type, sizeof reply->type);
    header_value(line, n, "X-Error-Message", reply->error, sizeof reply->error);
    read_number(line, n, "Content-Length", &reply->length);
    read_number(line, n, "X-Linked-Size", &reply->linked_size);
    read_range(line, n, reply);
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &reply->status);
    return n;
}

static size_t on_body(char *data, size_t size, size_t n, void *user) {
    transfer *t = user;
    (void)size;
    if (t->reply->status != 200 && t->reply->status != 206) return n;
    if (t->request->body && !t->request->body(t->request->user, data, n)) {
        t->stopped = true;
        return n + 1; /* another size than received is an error for libcurl */
    }
    return n;
}

static int on_tick(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    transfer *t = user;
    (void)a, (void)b, (void)c, (void)d;
    if (t->request->tick && !t->request->tick(t->request->user)) t->stopped = true;
    return t->stopped;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void set_options(http_client *c, transfer *t) {
    CURL *curl = c->curl;
    curl_easy_reset(curl); /* open connections stay */
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, c->reason);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "powerinfer");
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)SILENT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_tick);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
}

static struct curl_slist *add_header(struct curl_slist *list, const char *name, const char *value) {
    char line[TOKEN_MAX + HTTP_VALUE_MAX];
    struct curl_slist *longer = NULL;
    int n = snprintf(line, sizeof line, "%s%s", name, value);
    if (n > 0 && (size_t)n < sizeof line) longer = curl_slist_append(list, line);
    return longer ? longer : list;
}

/* A redirect within the hub comes before or after the response that names the file. */
static void keep_linked(http_reply *reply, const http_reply *earlier) {
    if (!reply->commit[0]) memcpy(reply->commit, earlier->commit, sizeof reply->commit);
    if (reply->linked_etag[0] || reply->linked_size >= 0 || !earlier->linked_etag[0]) return;
    memcpy(reply->linked_etag, earlier->linked_etag, sizeof reply->linked_etag);
    reply->linked_size = earlier->linked_size;
}

/* One request to c->url; c->next becomes the target of a redirect, else empty. */
static pi_status send_one(http_client *c, const http_request *r, http_reply *reply, pi_error *err) {
    transfer t = {.request = r, .reply = reply, .curl = c->curl};
    struct curl_slist *headers = NULL;
    char range[32], origin[HTTP_VALUE_MAX];
    *reply = (http_reply){.status = 0};
    c->reason[0] = c->next[0] = 0;
    set_options(c, &t);
    curl_easy_setopt(c->curl, CURLOPT_URL, c->url);
    if (r->head) curl_easy_setopt(c->curl, CURLOPT_NOBODY, 1L);
    if (token_may_go(r, c->url)) headers = add_header(headers, "Authorization: Bearer ", r->token);
    if (r->from > 0) {
        snprintf(range, sizeof range, "%lld-", (long long)r->from);
        curl_easy_setopt(c->curl, CURLOPT_RANGE, range);
        if (r->version) headers = add_header(headers, "If-Range: ", r->version);
    }
    curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, headers);
    CURLcode code = curl_easy_perform(c->curl);
    const char *location = NULL;
    curl_easy_getinfo(c->curl, CURLINFO_REDIRECT_URL, &location);
    if (location && strlen(location) < sizeof c->next)
        snprintf(c->next, sizeof c->next, "%s", location);
    curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    if (t.stopped) return error_set(err, PI_ERR_CANCELLED, "stopped");
    if (code == CURLE_OK) return PI_OK;
    fetch_http_origin(c->url, origin, sizeof origin);
    const char *reason = c->reason[0] ? c->reason : curl_easy_strerror(code);
    if (code == CURLE_OUT_OF_MEMORY) return error_set(err, PI_ERR_NOMEM, "%s: %s", origin, reason);
    if (reply->status) return error_set(err, PI_ERR_IO, "%s: %s", origin, reason);
    return error_set(err, PI_ERR_IO,
                     "no connection to %s: %s: check the network, and https_proxy behind a proxy",
                     origin, reason);
}

pi_status fetch_http_send(http_client *c, const http_request *r, http_reply *reply, pi_error *err) {
    http_reply earlier = {.status = 0};
    *reply = earlier;
    if (strlen(r->url) >= sizeof c->url)
        return error_set(err, PI_ERR_ARG, "the URL is too long: at most %d bytes",
                         HTTP_URL_MAX - 1);
    snprintf(c->url, sizeof c->url, "%s", r->url);
    for (int i = 0; i <= MAX_REDIRECTS; i++) {
        pi_status status = send_one(c, r, reply, err);
        keep_linked(reply, &earlier);
        earlier = *reply;
        if (status != PI_OK || !c->next[0]) return status;
        if (r->head && !same_origin(c->url, c->next)) return PI_OK;
        if (is_encrypted(c->url) && !is_encrypted(c->next))
            return error_set(err, PI_ERR_FORMAT,
                             "the server redirects from https to http: %.200s: not followed",
                             r->url);
        memcpy(c->url, c->next, sizeof c->url);
    }
    return error_set(err, PI_ERR_FORMAT, "too many redirects: %.200s: more than %d", r->url,
                     MAX_REDIRECTS);
}

#endif
