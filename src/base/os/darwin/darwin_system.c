/* darwin_system.c: see posix_system.h. */
#include "posix/posix_system.h"

#include <crt_externs.h>
#include <fcntl.h>
#include <limits.h>
#include <mach-o/dyld.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Another thread that starts a program at the same moment may pass the descriptor on: this system
 * sets the flag only afterwards. */
static int close_in_programs(int fd) {
    if (fd >= 0) (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

int posix_pipe(int ends[2]) {
    if (pipe(ends) != 0) return -1;
    for (int i = 0; i < 2; i++) {
        (void)close_in_programs(ends[i]);
        (void)fcntl(ends[i], F_SETFL, fcntl(ends[i], F_GETFL) | O_NONBLOCK);
    }
    return 0;
}

/* Writing to a closed connection must raise no signal; other systems have MSG_NOSIGNAL for this. */
int posix_stream_socket(int family, int protocol) {
    const int one = 1;
    int fd = close_in_programs(socket(family, SOCK_STREAM, protocol));
    if (fd >= 0) (void)setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one);
    return fd;
}

/* The system's path may contain links and "..". */
bool posix_program_path(char *buf, size_t n_buf) {
    char path[PATH_MAX], real[PATH_MAX];
    uint32_t n = sizeof path;
    if (_NSGetExecutablePath(path, &n) != 0 || !realpath(path, real) || strlen(real) >= n_buf)
        return false;
    memcpy(buf, real, strlen(real) + 1);
    return true;
}

int64_t posix_modified(const struct stat *st) {
    return (int64_t)st->st_mtimespec.tv_sec * 1000000000 + st->st_mtimespec.tv_nsec;
}

/* Shared libraries cannot see `environ`. */
char **posix_environment(void) {
    return *_NSGetEnviron();
}

char *posix_opener(void) {
    static char name[] = "open";
    return name;
}
