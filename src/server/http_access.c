/* http_access.c: see http_access.h. */
#include "http_access.h"

#include <string.h>

#include "ascii_case.h"
#include "os_socket.h"

/* ---- framing --------------------------------------------------------------------------------- */

typedef struct framing {
    int n_host, n_length, n_coding;
    bool bad_name, bad_length, bad_coding;
} framing;

/* libmicrohttpd treats a header with a space before its colon as unknown. */
static enum MHD_Result note_header(void *user, enum MHD_ValueKind kind, const char *name,
                                   const char *value) {
    framing *f = user;
    (void)kind;
    if (!value) value = "";
    f->bad_name |= name[strcspn(name, " \t")] != 0;
    if (ascii_same(name, MHD_HTTP_HEADER_HOST)) f->n_host++;
    if (ascii_same(name, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
        f->n_length++;
        f->bad_length |= !*value || value[strspn(value, "0123456789")] != 0;
    }
    if (ascii_same(name, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
        f->n_coding++;
        f->bad_coding |= !ascii_same(value, "chunked");
    }
    return MHD_YES;
}

const char *access_malformed(struct MHD_Connection *connection, const char *version) {
    framing f = {0};
    MHD_get_connection_values(connection, MHD_HEADER_KIND, note_header, &f);
    if (f.bad_name) return "a header has a space in its name";
    if (f.n_host != 1 && (f.n_host > 1 || strcmp(version, "HTTP/1.0") != 0))
        return "a request must have one header Host";
    if (f.n_length > 1 || f.bad_length) return "a request must have one number as Content-Length";
    if (f.n_length && f.n_coding) return "Content-Length and Transfer-Encoding exclude each other";
    if (f.n_coding > 1 || f.bad_coding) return "Transfer-Encoding: only chunked is supported";
    return NULL;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* NAME, NAME:PORT or [ADDRESS]:PORT; the pointers point into a header. */
typedef struct authority {
    const char *name; /* without brackets */
    size_t n_name;
    const char *port; /* "" when absent */
} authority;

static authority split_authority(const char *text) {
    const char *end = text[0] == '[' ? strchr(text, ']') : NULL;
    if (end)
        return (authority){.name = text + 1,
                           .n_name = (size_t)(end - text - 1),
                           .port = end[1] == ':' ? end + 2 : end + 1};
    size_t n = strcspn(text, ":");
    return (authority){.name = text, .n_name = n, .port = text[n] ? text + n + 1 : text + n};
}

static bool same_name(const authority *a, const authority *b) {
    return a->n_name == b->n_name && ascii_same_n(a->name, b->name, a->n_name);
}

/* NULL: not an origin ("null"). */
static const char *authority_of(const char *origin) {
    const char *scheme_end = strstr(origin, "://");
    return scheme_end ? scheme_end + 3 : NULL;
}

static bool is_loopback_name(const authority *a) {
    char name[64]; /* longer than any numeric address */
    if (a->n_name >= sizeof name) return false;
    memcpy(name, a->name, a->n_name);
    name[a->n_name] = 0;
    return os_address_is_loopback(name) || ascii_same(name, "localhost");
}

bool access_origin_is_named(const server_options *o, const char *origin) {
    const char *name = authority_of(origin);
    const authority from = split_authority(name ? name : "");
    for (int i = 0; i < o->n_origins; i++) {
        if (strcmp(o->origins[i], "*") == 0 || strcmp(o->origins[i], origin) == 0) return true;
        if (strcmp(o->origins[i], "localhost") == 0 && is_loopback_name(&from)) return true;
    }
    return false;
}

bool access_host_is_own(struct MHD_Connection *connection, const server_options *o,
                        bool is_loopback) {
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                                   MHD_HTTP_HEADER_HOST);
    if (!is_loopback || o->n_api_keys || !host) return true;
    const authority asked = split_authority(host);
    const authority own = {.name = o->host, .n_name = strlen(o->host)};
    if (is_loopback_name(&asked) || same_name(&asked, &own)) return true;
    for (int i = 0; i < o->n_origins; i++) {
        const char *named = authority_of(o->origins[i]);
        if (strcmp(o->origins[i], "*") == 0) return true;
        if (!named) continue;
        const authority a = split_authority(named);
        if (same_name(&asked, &a)) return true;
    }
    return false;
}

/* Refuses requests that a page of another origin makes a browser send, even where the page could
 * not read the answer. All loopback names with one port are one origin, because each of them names
 * the server. */
bool access_origin_is_own(struct MHD_Connection *connection, const server_options *o) {
    const char *origin = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                                     MHD_HTTP_HEADER_ORIGIN);
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                                   MHD_HTTP_HEADER_HOST);
    if (!origin || access_origin_is_named(o, origin)) return true;
    const char *name = authority_of(origin);
    if (!name || !host) return false;
    if (o->tls_cert && !ascii_same_n(origin, "https://", 8)) return false;
    const authority from = split_authority(name), to = split_authority(host);
    if (strcmp(from.port, to.port) != 0) return false;
    return same_name(&from, &to) || (is_loopback_name(&from) && is_loopback_name(&to));
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Compares in a time that depends only on the lengths. */
static bool same_secret(const char *given, const char *key) {
    size_t n_given = strlen(given), n_key = strlen(key);
    unsigned char differs = n_given != n_key;
    for (size_t i = 0; i < n_key; i++)
        differs |= (unsigned char)(key[i] ^ (i < n_given ? given[i] : 0));
    return differs == 0;
}

int access_find_key(struct MHD_Connection *connection, const server_options *o) {
    const char *given = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                                    MHD_HTTP_HEADER_AUTHORIZATION);
    if (given && ascii_same_n(given, "Bearer ", 7))
        given += 7;
    else
        given = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "x-api-key");
    int found = -1;
    for (int i = 0; i < o->n_api_keys && given; i++)
        if (same_secret(given, o->api_keys[i])) found = i;
    return found;
}
