/* http_access.h: decides which requests are answered: checks their framing, the names in Host and
 * Origin, and API keys.
 *
 * Without keys, a loopback server trusts every program on the machine, including browsers. A page
 * of another site must not exploit this trust: its Origin is foreign; or, when its name now
 * resolves to this machine (DNS rebinding), its Host is foreign. */
#ifndef SERVER_HTTP_ACCESS_H
#define SERVER_HTTP_ACCESS_H

#include <microhttpd.h>
#include <stdbool.h>

#include "server_options.h"

/* Returns an error in the headers that delimit the request (RFC 9112), where libmicrohttpd and a
 * proxy might disagree; NULL: none. `version`: "HTTP/1.1". */
const char *access_malformed(struct MHD_Connection *connection, const char *version);

/* False: the server is a keyless loopback server, and the Host is not one of its names: a loopback
 * name, --host, or the host of an allowed origin. */
bool access_host_is_own(struct MHD_Connection *connection, const server_options *o,
                        bool is_loopback);
/* False: the request comes from a page of another origin that is not allowed. */
bool access_origin_is_own(struct MHD_Connection *connection, const server_options *o);
/* Whether the options name this origin. */
bool access_origin_is_named(const server_options *o, const char *origin);

/* Returns the number of the API key in the request; -1: not a key of the server. */
int access_find_key(struct MHD_Connection *connection, const server_options *o);

#endif
