/* signals.c: handlers, which do only what POSIX allows there: set an atomic, cancel (documented as
 * safe), unlink, write, end the program. */
#include "signals.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "cli_message.h"
#include "file.h"
#include "os_file.h"
#include "os_signal.h"
#include "os_terminal.h"

/* A handler may run on another thread (Windows). */
static atomic_int caught;
static _Atomic(pi_context *) running;
static _Atomic(const os_event *) notified;
static _Atomic(pi_cluster *) joined;

/* Ends the line of a progress bar or of a text. */
static void leave_line(void) {
    if (os_stderr_is_terminal()) os_stderr_put("\n", 1);
}

static void on_remove(int number) {
    if (!file_writer_signal_cleanup()) return; /* a finished file is being renamed */
    leave_line();
    os_signal_end(number);
}

static void on_cancel(int number) {
    if (caught) on_remove(number);
    caught = number;
    pi_context *context = running;
    if (context) pi_context_cancel(context);
}

static void on_notify(int number) {
    if (caught) on_remove(number);
    caught = number;
    os_event_set(notified);
}

/* Appends `from` to a text of n bytes; control characters become '?', so it stays on one line. */
static size_t add_text(char *text, size_t n, size_t room, const char *from) {
    for (; *from && n + 1 < room; from++) {
        bool control = (unsigned char)*from < 0x20 || *from == 0x7f;
        text[n++] = control ? '?' : *from;
    }
    text[n] = '\0';
    return n;
}

/* In a cluster this rank ends all ranks; each of them reports the text with this rank's name. */
static void report_mapping(const char *path, uint64_t offset) {
    static const char program[] = "powerinfer: ";
    static char text[OS_PATH_MAX + 128]; /* only one thread gets here */
    os_info info;
    const bool unreadable = os_path_info(path, &info) == 0 && info.size > offset;
    size_t n = add_text(text, 0, sizeof text,
                        unreadable ? "the disk failed to read a file in use: " : FILE_MAP_CUT);
    n = add_text(text, n, sizeof text, path);
    leave_line();
    pi_cluster *cluster = joined;
    if (cluster) pi_cluster_abort(cluster, text);
    os_stderr_put(program, sizeof program - 1);
    os_stderr_put(text, n);
    os_stderr_put("\n", 1);
}

/* Handles a missing page of a mapped file. The earlier handler gets other faults. */
static void on_fault(const void *address) {
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    uint64_t offset = 0;
    const char *path = address ? file_map_path_at(address, &offset) : NULL;
    file_writer_signal_cleanup();
    if (path) {
        while (atomic_flag_test_and_set(&reported)) os_wait_for_end();
        report_mapping(path, offset);
        os_end(EXIT_WORK);
    }
    leave_line();
}

void signals_end(int number) {
    on_remove(number);
}

void signals_prepare(void) {
    if (!os_standard_streams_open()) os_end(1);
    os_signals_ignore_writes();
    os_signals_on_request(on_remove);
    os_signals_on_end(on_remove);
    os_signals_on_fault(on_fault);
}

void signals_join(pi_cluster *cluster) {
    joined = cluster;
}

void signals_cancel_context(pi_context *context) {
    caught = 0;
    running = context;
    os_signals_on_request(on_cancel);
}

void signals_notify(const os_event *event) {
    caught = 0;
    notified = event;
    os_signals_on_request(on_notify);
}

void signals_restore(void) {
    os_signals_on_request(on_remove);
    running = NULL;
}

bool signals_ask_to_end(void) {
    const os_event *event = notified;
    if (!event) return false;
    caught = SIGNALS_ASKED;
    os_event_set(event);
    return true;
}

int signals_caught(void) {
    return caught;
}
