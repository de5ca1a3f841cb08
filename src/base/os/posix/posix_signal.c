/* posix_signal.c: POSIX signals. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "os_signal.h"
#include "posix_system.h"

static os_fault_handler *volatile on_fault;
static struct sigaction earlier_bus; /* before on_bus; a sanitizer has one */

static void handle(int number, os_signal_handler *handler) {
    struct sigaction action, now;
    if (number == SIGHUP && sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN) return;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void os_signals_on_request(os_signal_handler *handler) {
    handle(SIGINT, handler);
    handle(SIGTERM, handler);
    handle(SIGHUP, handler);
}

void os_signals_on_end(os_signal_handler *handler) {
    handle(SIGQUIT, handler);
    handle(SIGXCPU, handler);
}

void os_signals_ignore_writes(void) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

/* With the earlier handler in place, returning runs the same instruction again. */
static void on_bus(int number, siginfo_t *info, void *context) {
    bool sent = info->si_code <= 0;
    (void)context;
    on_fault(sent ? NULL : info->si_addr);
    if (sent) {
        signal(number, SIG_DFL);
        raise(number);
    } else {
        sigaction(number, &earlier_bus, NULL);
    }
}

void os_signals_on_fault(os_fault_handler *handler) {
    struct sigaction action, now;
    on_fault = handler;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_bus;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, &now) != 0) return;
    if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_bus) earlier_bus = now;
}

void os_signal_end(int number) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    signal(number, SIG_DFL);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    _exit(128 + number);
}

void os_signal_quit(void) {
    raise(SIGQUIT);
}

void os_signal_suspend(void) {
    raise(SIGTSTP);
}

void os_end(int status) {
    _exit(status);
}

void os_wait_for_end(void) {
    pause();
}

static void put(int fd, const void *data, size_t n) {
    ssize_t ignored = write(fd, data, n);
    (void)ignored;
}

void os_stderr_put(const char *text, size_t n) {
    put(STDERR_FILENO, text, n);
}

bool os_stderr_is_terminal(void) {
    return isatty(STDERR_FILENO) == 1;
}

/* An event is a pipe: setting it writes a byte, which stays there. */
int os_event_create(os_event *e) {
    int ends[2];
    if (posix_pipe(ends) != 0) return errno;
    *e = (os_event){.ends = {ends[0], ends[1]}};
    return 0;
}

void os_event_close(os_event *e) {
    for (int i = 0; i < 2; i++) close((int)e->ends[i]);
}

void os_event_set(const os_event *e) {
    put((int)e->ends[1], "", 1);
}

void os_event_wait(const os_event *e, double seconds) {
    struct pollfd fd = {.fd = (int)e->ends[0], .events = POLLIN};
    (void)poll(&fd, 1, (int)(seconds * 1e3));
}
