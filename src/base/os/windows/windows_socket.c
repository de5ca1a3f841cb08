/* windows_socket.c: Windows Sockets. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <winsock2.h>
#include <ws2tcpip.h>

#include "os_socket.h"
#include "os_thread.h"

enum { POLLED = 256 }; /* sockets of one WSAPoll() */

static bool started;

static void start_sockets(void) {
    WSADATA data;
    started = WSAStartup(MAKEWORD(2, 2), &data) == 0;
}

/* The library must be started before any other call; it is never stopped. */
static bool sockets_work(void) {
    static os_once once;
    os_once_run(&once, start_sockets);
    return started;
}

static int socket_problem(void) {
    static const struct {
        int error, number;
    } table[] = {{WSAEACCES, EACCES},
                 {WSAEADDRINUSE, EADDRINUSE},
                 {WSAEADDRNOTAVAIL, EADDRNOTAVAIL},
                 {WSAEAFNOSUPPORT, EAFNOSUPPORT},
                 {WSAEINVAL, EINVAL},
                 {WSAEMFILE, EMFILE},
                 {WSAENOBUFS, ENOBUFS}};
    int error = WSAGetLastError();
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].error == error) return table[i].number;
    return EIO;
}

/* SO_REUSEADDR would share the port with other programs here; a port of ended connections is free
 * without it. */
static os_socket try_address(const struct addrinfo *a, int backlog, int *problem) {
    const BOOL one = TRUE;
    SOCKET s = WSASocketW(a->ai_family, SOCK_STREAM, a->ai_protocol, NULL, 0,
                          WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
    if (s != INVALID_SOCKET) {
        setsockopt(s, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, (const char *)&one, sizeof one);
        if (bind(s, a->ai_addr, (int)a->ai_addrlen) == 0 && listen(s, backlog) == 0)
            return (os_socket)s;
    }
    *problem = socket_problem();
    if (s != INVALID_SOCKET) closesocket(s);
    return OS_SOCKET_NONE;
}

static bool is_loopback_v4(const struct in_addr *a) {
    return ntohl(a->s_addr) >> 24 == 127;
}

static void note_address(os_listener *l) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address = {.v6 = {0}};
    int n = sizeof address;
    if (getsockname((SOCKET)l->socket, &address.any, &n) != 0) return;
    bool is_v6 = address.any.sa_family == AF_INET6;
    l->port = ntohs(is_v6 ? address.v6.sin6_port : address.v4.sin_port);
    l->is_loopback = is_v6
                         ? IN6_IS_ADDR_LOOPBACK(&address.v6.sin6_addr)
                         : address.any.sa_family == AF_INET && is_loopback_v4(&address.v4.sin_addr);
}

pi_status os_socket_listen(const char *host, uint16_t port, int backlog, os_listener *out,
                           pi_error *err) {
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    char service[8];
    *out = (os_listener){.socket = OS_SOCKET_NONE, .port = port};
    snprintf(service, sizeof service, "%u", (unsigned)port);
    if (!sockets_work())
        return error_set(err, PI_ERR_IO, "the system has no network: cannot listen on %s", host);
    int problem = getaddrinfo(host, service, &hints, &list);
    if (problem != 0) return error_set(err, PI_ERR_IO, "no such address: %s", host);
    for (const struct addrinfo *a = list; a && out->socket == OS_SOCKET_NONE; a = a->ai_next)
        out->socket = try_address(a, backlog, &problem);
    freeaddrinfo(list);
    if (out->socket == OS_SOCKET_NONE)
        return error_set_errno(err, problem, "cannot listen on %s port %s", host, service);
    note_address(out);
    return PI_OK;
}

void os_socket_close(os_socket s) {
    closesocket((SOCKET)s);
}

void os_socket_end(os_socket s) {
    shutdown((SOCKET)s, SD_BOTH);
}

/* A readable socket without bytes: the peer has closed its direction, or reset the connection. */
static bool is_at_end(SOCKET s) {
    char byte;
    int n = recv(s, &byte, 1, MSG_PEEK);
    return n == 0 || (n == SOCKET_ERROR && WSAGetLastError() != WSAEWOULDBLOCK);
}

void os_sockets_find_closed(const os_socket *sockets, size_t n, bool *closed) {
    WSAPOLLFD polls[POLLED];
    for (size_t first = 0; first < n; first += POLLED) {
        size_t count = n - first < POLLED ? n - first : POLLED;
        for (size_t i = 0; i < count; i++)
            polls[i] = (WSAPOLLFD){.fd = (SOCKET)sockets[first + i], .events = POLLRDNORM};
        bool any = WSAPoll(polls, (ULONG)count, 0) > 0;
        for (size_t i = 0; i < count; i++) {
            short seen = any ? polls[i].revents : 0;
            closed[first + i] = seen & (POLLHUP | POLLERR | POLLNVAL) ||
                                (seen & POLLRDNORM && is_at_end(polls[i].fd));
        }
    }
}

bool os_address_is_loopback(const char *text) {
    struct in_addr v4;
    struct in6_addr v6;
    if (!sockets_work()) return false;
    if (inet_pton(AF_INET, text, &v4) == 1) return is_loopback_v4(&v4);
    return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}
