/* linux_terminal.c: terminals, by ioctl and poll. */
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "os_terminal.h"

bool os_is_terminal(FILE *stream) {
    return isatty(fileno(stream)) == 1;
}

int os_terminal_columns(FILE *stream) {
    struct winsize size;
    return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int os_character_width(wchar_t c) {
    return wcwidth(c);
}

bool os_stdin_has_input(double seconds) {
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&fd, 1, (int)(seconds * 1e3)) == 1 && (fd.revents & POLLIN);
}

bool os_stdout_is_broken(void) {
    struct pollfd fd = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&fd, 1, 0) == 1 && (fd.revents & POLLERR);
}

/* Input opens for writing and output for reading on purpose: using the descriptor then fails, as
 * using a closed one would have. */
bool os_standard_streams_open(void) {
    static const int modes[3] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", modes[fd]) != fd) return false;
    return true;
}

void os_stream_lock(FILE *stream) {
    flockfile(stream);
}

void os_stream_unlock(FILE *stream) {
    funlockfile(stream);
}
