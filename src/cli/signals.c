/* signals.c: handlers, which do only what POSIX allows there: set a flag, cancel (documented as
 * safe), unlink, _exit. */
#include "signals.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "file.h"

static volatile sig_atomic_t caught;
static pi_context *volatile running;

static const int handled[] = {SIGINT, SIGTERM};

static void on_cancel(int number) {
    if (caught) _exit(128 + number);
    caught = number;
    if (running) pi_context_cancel(running);
}

static void on_remove(int number) {
    file_writer_signal_cleanup();
    if (isatty(STDERR_FILENO)) { /* leave the line of the progress bar */
        ssize_t ignored = write(STDERR_FILENO, "\n", 1);
        (void)ignored;
    }
    _exit(128 + number);
}

static void install(void (*handler)(int)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof handled / sizeof handled[0]; i++) {
        sigaction(handled[i], &action, NULL);
    }
}

void signals_prepare(void) {
    /* Opened the wrong way round on purpose: using the descriptor fails, as it would have. */
    static const int modes[3] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", modes[fd]) != fd) _exit(1);
    }
    signal(SIGPIPE, SIG_IGN);
}

void signals_cancel_context(pi_context *context) {
    caught = 0;
    running = context;
    install(on_cancel);
}

void signals_remove_output(void) {
    install(on_remove);
}

void signals_restore(void) {
    install(SIG_DFL);
    running = NULL;
}

int signals_caught(void) {
    return caught;
}
