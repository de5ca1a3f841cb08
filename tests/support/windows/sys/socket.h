/* sys/socket.h: sockets for tests of Windows as descriptors, next to those of files. */
#ifndef TEST_SYS_SOCKET_H
#define TEST_SYS_SOCKET_H

#include <winsock2.h>
#include <ws2tcpip.h>

enum {
    MSG_NOSIGNAL = 0,
    MSG_DONTWAIT = 1 << 30,
    SHUT_RD = SD_RECEIVE,
    SHUT_WR = SD_SEND,
    SHUT_RDWR = SD_BOTH
};

int posix_socket(int domain, int type, int protocol);
int posix_connect(int fd, const struct sockaddr *to, int n);
ssize_t posix_send(int fd, const void *data, size_t n, int how);
ssize_t posix_recv(int fd, void *data, size_t n, int how);
int posix_shutdown(int fd, int how);

/* close() also closes sockets. */
#define socket(domain, type, protocol) posix_socket(domain, type, protocol)
#define connect(fd, to, n)             posix_connect(fd, to, n)
#define send(fd, data, n, how)         posix_send(fd, data, n, how)
#define recv(fd, data, n, how)         posix_recv(fd, data, n, how)
#define shutdown(fd, how)              posix_shutdown(fd, how)

#endif
