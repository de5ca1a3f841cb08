/* linux_system.c: see posix_system.h. */
#include "posix/posix_system.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

int posix_pipe(int ends[2]) {
    return pipe2(ends, O_CLOEXEC | O_NONBLOCK);
}

int posix_stream_socket(int family, int protocol) {
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC, protocol);
}

bool posix_program_path(char *buf, size_t n_buf) {
    ssize_t n = readlink("/proc/self/exe", buf, n_buf);
    if (n <= 0 || (size_t)n >= n_buf) return false;
    buf[n] = '\0';
    return true;
}

int64_t posix_modified(const struct stat *st) {
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

char **posix_environment(void) {
    return environ;
}

char *posix_opener(void) {
    static char name[] = "xdg-open";
    return name;
}
