/* darwin_socket.c: connections that the peer has closed. */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "os_socket.h"

enum { POLLED = 256 }; /* sockets of one poll() */

/* poll() has no event for a peer that has closed its direction: a readable socket without a byte
 * has reached the end. While there are unread bytes, the end is not seen. */
static bool at_end(int fd) {
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

void os_sockets_find_closed(const os_socket *sockets, size_t n, bool *closed) {
    struct pollfd polls[POLLED];
    for (size_t first = 0; first < n; first += POLLED) {
        size_t count = n - first < POLLED ? n - first : POLLED;
        for (size_t i = 0; i < count; i++)
            polls[i] = (struct pollfd){.fd = (int)sockets[first + i], .events = POLLIN};
        bool any = poll(polls, (nfds_t)count, 0) > 0;
        for (size_t i = 0; i < count; i++)
            closed[first + i] = any && (polls[i].revents & (POLLHUP | POLLERR | POLLNVAL) ||
                                        (polls[i].revents & POLLIN && at_end(polls[i].fd)));
    }
}
