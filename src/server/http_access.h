/* http_access.h: which requests are answered: their framing, the names Host and Origin, API keys.
 *
 * Without keys a loopback server trusts everybody on the machine, browsers included. A page of
 * another site must not use that: its Origin is foreign, or, when its own name now resolves to this
 * machine (DNS rebinding), its Host is. */
#ifndef SERVER_HTTP_ACCESS_H
#define SERVER_HTTP_ACCESS_H

#include "http.h"

/* What is wrong with the headers that say where a request begins and ends (RFC 9112), where
 * libmicrohttpd and a proxy might disagree; NULL: nothing. `version` as "HTTP/1.1". */
const char *access_malformed(struct MHD_Connection *connection, const char *version);

/* False: the request names a host that is none of a keyless loopback server's: neither a loopback
 * name, nor --host, nor the host of an allowed origin. */
bool access_host_is_own(const exchange *x);
/* False: the request comes from a page of another origin, which is not allowed. */
bool access_origin_is_own(const exchange *x);
/* The origin is one of the options'. */
bool access_origin_is_named(const server_options *o, const char *origin);

/* The number of the API key that the request carries; -1: none of the server's. */
int access_find_key(const exchange *x);

#endif
