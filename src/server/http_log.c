/* http_log.c: the ids of requests, and one line of JSON per request. */
#include <string.h>

#include "clock.h"
#include "http.h"
#include "rng.h"

/* Takes the client's id if it consists of characters that need no care in logs and headers. */
void http_choose_id(exchange *x) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/+=@";
    const char *given = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "X-Request-Id");
    const size_t n = given ? strlen(given) : 0;
    if (n > 0 && n <= HTTP_MAX_ID && strspn(given, allowed) == n)
        memcpy(x->id, given, n + 1);
    else
        snprintf(x->id, sizeof x->id, "req_%016llx", (unsigned long long)rng_entropy());
}

static void put_time(json_writer *w, const char *key) {
    const int64_t ns = clock_unix_ns();
    struct tm utc = {.tm_mday = 1};
    char text[32], whole[48];
    clock_utc_time((time_t)(ns / 1000000000), &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(whole, sizeof whole, "%s.%03dZ", text, (int)(ns / 1000000 % 1000));
    json_put_text(w, key, whole);
}

static void put_key(json_writer *w, const exchange *x) {
    const server_options *o = &x->server->options;
    const char *name = x->key >= 0 && o->limits ? o->limits[x->key].name : NULL;
    char number[32];
    snprintf(number, sizeof number, "key %d", x->key + 1);
    json_put_text(w, "key", x->key < 0 ? NULL : name ? name : number);
}

void http_log(const exchange *x, bool complete) {
    server *s = x->server;
    const double seconds = clock_seconds() - x->started;
    const request_record *r = &x->record;
    bytes line = {0};
    bytes_json j;
    if (x->counted) {
        os_mutex_lock(&s->clients_lock);
        histogram_add(&s->request_seconds, seconds);
        os_mutex_unlock(&s->clients_lock);
    }
    if (!s->options.log_request || !bytes_json_begin(&j, &line)) return;
    json_writer *w = &j.writer;
    json_put_object(w, NULL);
    put_time(w, "time");
    json_put_text(w, "id", x->id);
    json_put_text(w, "method", x->method);
    json_put_text(w, "route", x->path);
    json_put_text(w, "model", x->model >= 0 ? registry_model(s->registry, x->model)->name : NULL);
    put_key(w, x);
    json_put_int(w, "status", x->status);
    json_put_bool(w, "complete", complete && x->status);
    if (x->counted) {
        json_put_int(w, "prompt_tokens", r->prompt_tokens);
        json_put_int(w, "cached_tokens", r->cached_tokens);
        json_put_int(w, "completion_tokens", r->generated_tokens);
        if (r->queue_seconds >= 0) json_put_number(w, "queue_seconds", r->queue_seconds);
        if (r->first_token_seconds >= 0)
            json_put_number(w, "first_token_seconds", r->first_token_seconds);
    }
    json_put_number(w, "seconds", seconds);
    json_end_object(w);
    if (bytes_json_end(&j) && bytes_append(&line, "\n", 1))
        s->options.log_request(line.data, line.used);
    bytes_free(&line);
}
