/* posix_socket.c: BSD sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os_socket.h"
#include "posix_system.h"

static os_socket try_address(const struct addrinfo *a, int backlog, int *problem) {
    const int one = 1;
    int fd = posix_stream_socket(a->ai_family, a->ai_protocol);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, backlog) == 0) return fd;
    }
    *problem = errno;
    if (fd >= 0) close(fd);
    return OS_SOCKET_NONE;
}

static bool is_loopback_v4(const struct in_addr *a) {
    return ntohl(a->s_addr) >> 24 == IN_LOOPBACKNET;
}

static void note_address(os_listener *l) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address = {.v6 = {0}};
    socklen_t n = sizeof address;
    if (getsockname((int)l->socket, &address.any, &n) != 0) return;
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
    int problem = getaddrinfo(host, service, &hints, &list);
    if (problem != 0)
        return error_set(err, PI_ERR_IO, "no such address: %s: %s", host, gai_strerror(problem));
    for (const struct addrinfo *a = list; a && out->socket == OS_SOCKET_NONE; a = a->ai_next)
        out->socket = try_address(a, backlog, &problem);
    freeaddrinfo(list);
    if (out->socket == OS_SOCKET_NONE)
        return error_set_errno(err, problem, "cannot listen on %s port %s", host, service);
    note_address(out);
    return PI_OK;
}

void os_socket_close(os_socket s) {
    close((int)s);
}

void os_socket_end(os_socket s) {
    shutdown((int)s, SHUT_RDWR);
}

bool os_address_is_loopback(const char *text) {
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, text, &v4) == 1) return is_loopback_v4(&v4);
    return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}
