/* linux_socket.c: connections that the peer has closed, by poll. */
#include <poll.h>

#include "os_socket.h"

enum { POLLED = 256 }; /* sockets of one poll() */

void os_sockets_find_closed(const os_socket *sockets, size_t n, bool *closed) {
    struct pollfd polls[POLLED];
    for (size_t first = 0; first < n; first += POLLED) {
        size_t count = n - first < POLLED ? n - first : POLLED;
        for (size_t i = 0; i < count; i++)
            polls[i] = (struct pollfd){.fd = (int)sockets[first + i], .events = POLLRDHUP};
        bool any = poll(polls, count, 0) > 0;
        for (size_t i = 0; i < count; i++)
            closed[first + i] = any &&
                                polls[i].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
    }
}
