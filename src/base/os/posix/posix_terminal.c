/* posix_terminal.c: terminals, by ioctl and poll. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "os_terminal.h"
#include "posix_system.h"

bool os_is_terminal(FILE *stream) {
    return isatty(fileno(stream)) == 1;
}

int os_terminal_columns(FILE *stream) {
    struct winsize size;
    return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* In the locale that the program has set. */
int os_character_width(const char *character, size_t n) {
    wchar_t wide;
    mbstate_t state = {0};
    return mbrtowc(&wide, character, n, &state) == n ? wcwidth(wide) : -1;
}

int os_stdin_get(void) {
    return getc(stdin);
}

size_t os_stdin_lines(char *text, size_t n) {
    (void)text;
    return n;
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

bool os_terminal_closes(void) {
    return false;
}

/* The opener finds the browser, which gets neither this program's standard streams nor its Ctrl-C
 * nor its ignored signals. Nobody waits for it, so its entry in the table of processes stays until
 * this program ends. */
int os_open_address(const char *address) {
    char *name = posix_opener();
    char *const arguments[] = {name, (char *)(uintptr_t)address, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t changed;
    pid_t child;
    int problem = posix_spawn_file_actions_init(&actions);
    if (problem) return problem;
    problem = posix_spawnattr_init(&attributes);
    if (problem) {
        posix_spawn_file_actions_destroy(&actions);
        return problem;
    }
    sigemptyset(&changed);
    sigaddset(&changed, SIGPIPE);
    sigaddset(&changed, SIGXFSZ);
    posix_spawnattr_setsigdefault(&attributes, &changed);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    for (int fd = 0; fd < 3 && !problem; fd++)
        problem = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    if (!problem)
        problem = posix_spawnp(&child, name, &actions, &attributes, arguments, posix_environment());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return problem;
}

bool os_keys_begin(void) {
    return false;
}

void os_keys_end(void) {}

int os_key_read(void) {
    return -1;
}

void os_stream_lock(FILE *stream) {
    flockfile(stream);
}

void os_stream_unlock(FILE *stream) {
    funlockfile(stream);
}
