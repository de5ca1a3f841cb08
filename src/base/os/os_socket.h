/* os_socket.h: the few socket calls of the server; libmicrohttpd makes the others. */
#ifndef BASE_OS_SOCKET_H
#define BASE_OS_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

typedef intptr_t os_socket;
enum { OS_SOCKET_NONE = -1 };

typedef struct os_listener {
    os_socket socket;
    uint16_t port;    /* the one that the system chose, for port 0 */
    bool is_loopback; /* only this machine reaches it */
} os_listener;

/* Listens on the first address of `host` that works. Up to `backlog` connections wait to be
 * accepted. PI_ERR_IO: no such address, or it cannot be used. */
pi_status os_socket_listen(const char *host, uint16_t port, int backlog, os_listener *out,
                           pi_error *err);
void os_socket_close(os_socket s);
/* Ends both directions of a connection; its socket stays. */
void os_socket_end(os_socket s);
/* Sets closed[i] for each socket whose peer has closed the connection or at least its sending
 * direction. Does not wait. */
void os_sockets_find_closed(const os_socket *sockets, size_t n, bool *closed);

/* Whether `text` is a numeric address, IPv4 or IPv6, that leads to this machine only. */
bool os_address_is_loopback(const char *text);

#endif
