/* signals.c: handlers, which do only what POSIX allows there: set a flag, cancel (documented as
 * safe), unlink, write, end the program. */
#include "signals.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "file.h"

static volatile sig_atomic_t caught;
static pi_context *volatile running;
static volatile int notified = -1;   /* descriptor */
static struct sigaction earlier_bus; /* before on_bus; a sanitizer has one */

/* Those that ask the program to end, and those that end it for what it used up. */
static const int asking[] = {SIGINT, SIGTERM, SIGHUP};
static const int ending[] = {SIGQUIT, SIGXCPU};

enum { N_ASKING = sizeof asking / sizeof *asking, N_ENDING = sizeof ending / sizeof *ending };

static void put(const char *text, size_t n) {
    ssize_t ignored = write(STDERR_FILENO, text, n);
    (void)ignored;
}

/* Leaves the line of a progress bar, or of a text that is being written. */
static void leave_line(void) {
    if (isatty(STDERR_FILENO)) put("\n", 1);
}

/* Ends the program as the signal would have, so that its parent sees which one it was. */
static void on_remove(int number) {
    if (!file_writer_signal_cleanup()) return; /* a finished file is just being put in its place */
    leave_line();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    signal(number, SIG_DFL);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    _exit(128 + number);
}

static void on_cancel(int number) {
    if (caught) on_remove(number);
    caught = number;
    if (running) pi_context_cancel(running);
}

static void on_notify(int number) {
    if (caught) on_remove(number);
    caught = number;
    ssize_t ignored = write(notified, "", 1);
    (void)ignored;
}

/* A path on one line, whatever is in it. */
static void put_path(const char *path) {
    char text[256];
    size_t n = 0;
    for (; *path; path++) {
        bool control = (unsigned char)*path < 0x20 || *path == 0x7f;
        text[n++] = control ? '?' : *path;
        if (n < sizeof text && path[1]) continue;
        put(text, n);
        n = 0;
    }
}

static void report_mapping(const char *path, uint64_t offset) {
    static const char cut[] = "powerinfer: " FILE_MAP_CUT;
    static const char unreadable[] = "powerinfer: the disk failed to read a file in use: ";
    struct stat st;
    leave_line();
    if (stat(path, &st) == 0 && (uint64_t)st.st_size > offset)
        put(unreadable, sizeof unreadable - 1);
    else
        put(cut, sizeof cut - 1);
    put_path(path);
    put("\n", 1);
}

/* A page of a mapped file that is not there any more. Another fault goes to the earlier handler:
 * returning runs the same instruction again. */
static void on_bus(int number, siginfo_t *info, void *context) {
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    (void)context;
    uint64_t offset = 0;
    const char *path = info->si_code > 0 ? file_map_path_at(info->si_addr, &offset) : NULL;
    file_writer_signal_cleanup();
    if (path) {
        while (atomic_flag_test_and_set(&reported)) pause(); /* another thread ends the program */
        report_mapping(path, offset);
        _exit(EXIT_WORK);
    }
    leave_line();
    if (info->si_code <= 0) { /* somebody sent it */
        signal(number, SIG_DFL);
        raise(number);
    } else {
        sigaction(number, &earlier_bus, NULL);
    }
}

static void handle(int number, void (*handler)(int)) {
    struct sigaction action, now;
    /* nohup, and shells that keep a job running: what is ignored at the start stays so. */
    if (number == SIGHUP && sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN) return;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void handle_asking(void (*handler)(int)) {
    for (size_t i = 0; i < N_ASKING; i++) handle(asking[i], handler);
}

static void handle_bus(void) {
    struct sigaction action, now;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_bus;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, &now) != 0) return;
    if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_bus) earlier_bus = now;
}

void signals_prepare(void) {
    /* Opened the wrong way round on purpose: using the descriptor fails, as it would have. */
    static const int modes[3] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", modes[fd]) != fd) _exit(1);
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    handle_asking(on_remove);
    for (size_t i = 0; i < N_ENDING; i++) handle(ending[i], on_remove);
    handle_bus();
}

void signals_cancel_context(pi_context *context) {
    caught = 0;
    running = context;
    handle_asking(on_cancel);
}

void signals_notify(int descriptor) {
    caught = 0;
    notified = descriptor;
    handle_asking(on_notify);
}

void signals_restore(void) {
    handle_asking(on_remove);
    running = NULL;
}

int signals_caught(void) {
    return caught;
}
